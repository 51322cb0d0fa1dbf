"""A device's library from nothing: a corpus of sets, surveyed, and logic trained on what was found."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

from conccl.core.hardware import Device
from conccl.core.ops import DType, Gemm
from conccl.tune.gemms.choice import GemmSet
from conccl.tune.gemms.library import Library, entries_of
from conccl.tune.gemms.running import Runner, bound_ns
from conccl.tune.gemms.search import Tuned
from conccl.tune.gemms.survey import Keeper, survey
from conccl.tune.gemms.training import example_of, train

CORPUS = 300
"""Sets that the logic is trained on, beside those that the user gives."""

WIDTHS = (64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 7168, 8192, 14336)
"""Columns of weights in published models; depths are the same up to 8192."""

COUNTS = (2, 3, 4, 6, 8, 12, 16)


def corpus(count: int = CORPUS, /, *, dtype: DType = DType.BF16, seed: int = 0) -> tuple[GemmSet, ...]:
    """Sets as models have them: equal GEMMs, experts with unlike rows, and unlike GEMMs, drawn once."""
    draw = random.Random(seed)
    return tuple(
        GemmSet(
            name=f"corpus {index}", gemms=tuple(_drawn(draw, kind=index % 3, dtype=dtype)), source="corpus"
        )
        for index in range(count)
    )


def _drawn(draw: random.Random, *, kind: int, dtype: DType) -> Iterator[Gemm]:
    first = _gemm(draw, dtype)
    for _ in range(draw.choice(COUNTS)):
        match kind:
            case 0:
                yield first
            case 1:
                m = max(1, round(first.m * draw.uniform(0.2, 2)))
                yield Gemm(m=m, n=first.n, k=first.k, dtype=dtype)
            case _:
                yield _gemm(draw, dtype)


def _gemm(draw: random.Random, dtype: DType) -> Gemm:
    m = 2 ** draw.randint(4, 12) if draw.random() < 0.7 else 8 * draw.randint(1, 512)
    return Gemm(m=m, n=draw.choice(WIDTHS), k=draw.choice(WIDTHS[:-1]), dtype=dtype)


def surveyed(
    sets: Iterable[GemmSet], /, *, device: Device, runner: Runner, keeper: Keeper | None = None
) -> Iterator[Tuned]:
    """Each set, measured where the cost model says that it is worth it."""
    return survey(
        sets,
        runner=runner,
        estimate=lambda gemms, choice: bound_ns(gemms, choice, device=device),
        keeper=keeper,
    )


def library_of(found: Sequence[Tuned], /, *, device: Device, runner: Runner) -> Library:
    """GO-kernels of what was found, and logic trained on it; the runner says how it was measured."""
    return Library(
        environment=runner.environment,
        sms=device.sm_count,
        logic=train([example_of(one, free_sms=device.sm_count) for one in found]),
        entries=entries_of(found),
    )
