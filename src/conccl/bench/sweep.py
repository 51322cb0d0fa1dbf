"""Sweeps: pairs on variations of a device, in several processes where that pays, resumed where stopped."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conccl.bench.characterize import Characterizer, Choose
from conccl.bench.executors import open_bench
from conccl.bench.results import Characterization, PairResult, Skipped
from conccl.bench.store import Store
from conccl.core.hardware import Device
from conccl.core.measurement import Environment, Measurement
from conccl.core.pair import Pair
from conccl.costs.catalogue import system_of, with_fields

CELLS_WORTH_PROCESSES = 4_000
"""Simulated cells, about a millisecond each, beyond which starting processes pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """One device of a sweep and what was changed to get it."""

    device: Device
    changes: Mapping[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``field=value`` of every change; empty where there is none."""
        return ",".join(f"{name}={value}" for name, value in self.changes.items())


def variations(device: Device, axes: Mapping[str, Sequence[object]], /) -> tuple[Variation, ...]:
    """The product of all axes: one device for each combination of values."""
    found = []
    for values in itertools.product(*axes.values()):
        changes = dict(zip(axes, values, strict=True))
        found.append(Variation(device=with_fields(device, changes), changes=changes))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What to characterize, on what, and where to keep it."""

    executor: str
    gpus: int
    strategies: Mapping[str, Choose]
    folder: Path | None = None
    """Where stores are kept; None: nowhere."""
    jobs: int | None = None
    """Processes; None: as many as pay."""
    backend: str | None = None
    """Of joblib; None: processes of this machine."""

    def run(
        self,
        variation: Variation,
        pairs: Sequence[Pair],
        /,
        *,
        done: Callable[[], None] = lambda: None,
    ) -> Characterization:
        """All pairs on one device; ``done`` is called after each."""
        environment = open_bench(self.executor, device=variation.device, gpus=self.gpus).environment
        store = self._store(variation, environment)
        results: list[PairResult] = []
        skipped: list[Skipped] = []
        for pair, result in zip(pairs, self._results(variation, pairs, store=store), strict=True):
            if result.alone is None:
                skipped.append(Skipped(source=pair.source, reason=result.reason))
            else:
                results.append(result)
            done()
        return Characterization(environment=environment, pairs=tuple(results), skipped=tuple(skipped))

    def _store(self, variation: Variation, environment: Environment) -> Store | None:
        if self.folder is None:
            return None
        name = f"store.{variation.name}.jsonl" if variation.changes else "store.jsonl"
        return Store(self.folder / name.replace("/", "_"), environment=environment)

    def _results(
        self, variation: Variation, pairs: Sequence[Pair], *, store: Store | None
    ) -> Iterator[PairResult]:
        jobs = self._jobs(pairs)
        if jobs == 1:
            characterizer = _characterizer(self, variation.device, keep=store)
            yield from (characterizer.pair(pair) for pair in pairs)
            return
        import joblib  # noqa: PLC0415 (slow to load, and most sweeps are small)

        known = store.all() if store is not None else {}
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator", backend=self.backend)
        work = (joblib.delayed(_one)(self, variation.device, pair, known) for pair in pairs)
        for result in parallel(work):
            if store is not None:
                cells = [one.measurement for one in result.strategies.values()]
                store.add(
                    cell
                    for cell in (result.compute, result.communication, *cells)
                    if store.get(cell.label) != cell
                )
            yield result

    def _jobs(self, pairs: Sequence[Pair]) -> int:
        if self.executor != "sim":
            return 1  # a GPU measures one thing at a time
        if self.jobs is not None:
            return min(self.jobs, max(1, len(pairs)))
        cells = len(pairs) * (len(self.strategies) + 2)
        return (os.cpu_count() or 1) if cells > CELLS_WORTH_PROCESSES else 1


class _Known:
    """What has been measured, where a worker has no file to look into."""

    def __init__(self, measurements: Mapping[str, Measurement], /) -> None:
        self._measurements = measurements

    def get(self, label: str, /) -> Measurement | None:
        return self._measurements.get(label)

    def add(self, measurements: Sequence[Measurement], /) -> None:
        """Nothing: the process that has the file adds what comes back."""


def _characterizer(sweep: Sweep, device: Device, *, keep: Store | _Known | None) -> Characterizer:
    return Characterizer(
        bench=open_bench(sweep.executor, device=device, gpus=sweep.gpus),
        system=system_of(device, gpus=sweep.gpus),
        strategies=sweep.strategies,
        store=keep,
    )


def _one(sweep: Sweep, device: Device, pair: Pair, known: Mapping[str, Measurement]) -> PairResult:
    """One pair in a worker process."""
    return _characterizer(sweep, device, keep=_Known(known)).pair(pair)
