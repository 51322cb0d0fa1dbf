"""Lengths of the iterations of one epoch, from logs of utterances, sentence pairs and requests.

Batches are made as the networks' own training scripts make them: sorted by length and cut (speech), bucketed
(translation, Transformer); an iteration is as long as the longest member of its batch, padded to a multiple.
Where the log has too few members for the iterations wanted, it is drawn from with replacement, seed 0.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt

Lengths = npt.NDArray[np.int64]

FRAMES_PER_SECOND = 100
"""DeepSpeech2 steps its spectrogram by 10 ms."""


def speech(folder: Path, *, iterations: int) -> Lengths:
    """[iterations, 1]: frames of batches of 32 utterances of similar length, in random order."""
    seconds = _columns(folder / "librispeech_dev_clean_durations.csv", "duration_s")[:, 0]
    frames = np.ceil(seconds * FRAMES_PER_SECOND)[:, None]
    return _batches(frames, batch=32, iterations=iterations, multiple=16)


def translation(folder: Path, *, iterations: int) -> Lengths:
    """[iterations, 2]: source and target tokens of batches of 128 pairs of similar length."""
    pairs = _columns(folder / "opennmt_wmt_sample_en_de_token_lengths.csv", "src_tokens", "tgt_tokens")
    return _batches(pairs, batch=128, iterations=iterations, multiple=4)


def transformer(folder: Path, *, iterations: int) -> Lengths:
    """[iterations, 1]: tokens of batches of 8 requests of similar length, context and answer together."""
    tokens = _columns(folder / "AzureLLMInferenceTrace_conv.csv", "ContextTokens", "GeneratedTokens")
    return _batches(
        np.minimum(4096, tokens.sum(axis=1, keepdims=True)), batch=8, iterations=iterations, multiple=32
    )


LOGS = {"speech": speech, "translation": translation, "transformer": transformer}


def _columns(path: Path, *names: str) -> npt.NDArray[np.float64]:
    with path.open(newline="") as file:
        rows = [[float(row[name]) for name in names] for row in csv.DictReader(file)]
    table = np.array(rows)
    return table[(table >= 1).all(axis=1)]


def _batches(members: npt.NDArray[np.float64], *, batch: int, iterations: int, multiple: int) -> Lengths:
    random = np.random.default_rng(0)
    drawn = members[random.integers(0, len(members), size=batch * iterations)]
    drawn = drawn[np.lexsort(tuple(drawn.T[::-1]))]
    longest = drawn.reshape(iterations, batch, -1).max(axis=1)
    padded = (np.ceil(longest / multiple) * multiple).astype(np.int64)
    return padded[random.permutation(iterations)]
