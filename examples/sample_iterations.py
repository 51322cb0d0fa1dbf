"""Record a training run, choose a few of its iterations, run only those, and project the whole run.

    python examples/sample_iterations.py FOLDER [ITERATIONS]

A small recurrent network on the CPU; what a user adds to a training script is marked with `# (conccl)`.
The second run here uses one thread: another machine, of which only the chosen iterations are measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

import conccl
from conccl.sampling.document import iterations_document
from conccl.sampling.logs import read_log
from conccl.sampling.seqpoint import project
from conccl.sampling.study import study

WORDS = 100


def loader(iterations: int) -> Iterable[Any]:
    """Batches of 8 sentences of similar length, padded to the longest, in random order."""
    random = torch.Generator().manual_seed(0)
    lengths = (4 + 60 * torch.rand(8 * iterations, generator=random) ** 3).long().sort().values
    sentences = [torch.randint(WORDS, (int(length),), generator=random) for length in lengths]
    order = torch.randperm(iterations, generator=random)
    batches = [list(range(8 * int(place), 8 * int(place) + 8)) for place in order]
    return torch.utils.data.DataLoader(
        sentences,  # type: ignore[arg-type]
        batch_sampler=batches,
        collate_fn=lambda rows: {"input_ids": pad_sequence(rows, batch_first=True)},
    )


class Model(torch.nn.Module):
    """Predicts each next word."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, 128)
        self.recurrent = torch.nn.GRU(128, 128, batch_first=True)
        self.output = torch.nn.Linear(128, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """[batch, length] -> [batch, length, words]."""
        return self.output(self.recurrent(self.words(tokens))[0])


def train(batches: Iterable[Any]) -> None:
    """A training loop as anybody has it."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        tokens = batch["input_ids"]
        loss = cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main() -> None:
    """Record, choose, run the chosen, project; then the whole run, to see how far off that was."""
    folder = Path(sys.argv[1])
    iterations = int(sys.argv[2]) if len(sys.argv) > 2 else 1000

    recorder = conccl.IterationRecorder(folder / "run.csv")  # (conccl)
    train(recorder.batches(loader(iterations)))  # (conccl)
    recorder.close()

    found = study(folder / "run.csv", choose_by="time_ms", error_percent=0.5)
    (folder / "chosen.json").write_text(json.dumps(iterations_document(found)))

    torch.set_num_threads(1)
    chosen = conccl.ChosenIterations(folder / "chosen.json", folder=folder / "profiles")  # (conccl)
    train(chosen.batches(loader(iterations)))  # (conccl)
    measured = read_log(folder / "profiles" / "statistics.csv")
    values = dict(zip(map(tuple, measured.length.tolist()), measured.statistics["time_ms"], strict=True))
    projected = project(found.selection.seqpoints, values=values)

    recorder = conccl.IterationRecorder(folder / "one-thread.csv")
    train(recorder.batches(loader(iterations)))
    recorder.close()
    actual = float(read_log(folder / "one-thread.csv").statistics["time_ms"].sum())
    points = len(found.selection.seqpoints)
    print(
        f"{points} of {iterations} iterations project {projected:.0f} ms; the whole run took {actual:.0f} ms"
    )


if __name__ == "__main__":
    main()
