"""What one iteration of a named model is, given its lengths by name: a batch, or a request served whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from conccl.core.errors import InputError
from conccl.sampling.seqpoint import Length
from conccl.workloads.layers import Batch, Phase

Priced = Callable[[Batch], int]
"""Time in ns of one pass over a batch."""

SEQUENCES = ("batch", "sequences")
PREFILL = ("prefill", "context", "prompt", "input")
DECODE = ("decode", "generated", "output", "completion")


def batch_time(names: Sequence[str], /, *, batch: Batch, price: Priced) -> Callable[[Length], int]:
    """Time of an iteration from its lengths, whose names say what each is.

    One length is that of the sequences; ``batch`` beside another is how many sequences; ``prefill`` and
    ``decode`` are a request served from its prompt to its last token.
    """
    if is_served(names):
        return lambda length: _served_ns(*length, sequences=batch.sequences, price=price)
    words = _words(names)
    if len(words) == 1:
        return lambda length: price(replace(batch, length=length[0]))
    if len(words) == 2:
        for first, second in ((0, 1), (1, 0)):
            if words[first].startswith(SEQUENCES):
                return _sized(first, second, batch=batch, price=price)
    raise InputError(
        f"a named model has no lengths {', '.join(names)}. Name them batch and length, or prefill and decode;"
        " or give file.py:function, which is called with all of them."
    )


def is_served(names: Sequence[str], /) -> bool:
    """Whether the lengths are a request's: those of its prompt and of its answer, in this order."""
    words = _words(names)
    return len(words) == 2 and words[0].startswith(PREFILL) and words[1].startswith(DECODE)


def _words(names: Sequence[str]) -> list[str]:
    return [name.lower().removeprefix("length_").removeprefix("length.") for name in names]


def _sized(first: int, second: int, *, batch: Batch, price: Priced) -> Callable[[Length], int]:
    return lambda length: price(replace(batch, sequences=length[first], length=length[second]))


def _served_ns(prompt: int, generated: int, *, sequences: int, price: Priced) -> int:
    """Prefill, which gives the first token, then a step for each further one.

    A step grows by the cache that it reads, linearly; so all of them take what as many of mean cache take.
    """
    first = price(Batch(sequences=sequences, length=prompt, phase=Phase.PREFILL))
    steps = generated - 1
    if steps < 1:
        return first
    step = price(Batch(sequences=sequences, length=prompt + generated // 2, phase=Phase.DECODE))
    return first + steps * step
