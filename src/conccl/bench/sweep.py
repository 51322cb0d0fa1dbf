"""Sweeps: pairs on variations of a device, in several processes where that pays, resumed where stopped."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conccl.bench.characterize import Characterizer, Choose, pair_key
from conccl.bench.executors import open_bench
from conccl.bench.results import Characterization, PairResult, Skipped
from conccl.bench.spreading import Workers, all_processors, spread
from conccl.bench.store import Store
from conccl.core.hardware import Device
from conccl.core.measurement import Environment, Measurement
from conccl.core.pair import Pair
from conccl.costs.catalogue import system_of, with_fields
from conccl.costs.fields import parse_settings, parse_variations, require_apart

CELLS_WORTH_PROCESSES = 4_000
"""Simulated cells, about a millisecond each, beyond which starting processes pays."""

LONGEST_NAME = 200
"""Characters of a store's file name; longer ones get a short one made of theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """One device of a sweep and what was changed to get it."""

    device: Device
    changes: Mapping[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``field=value`` of every change; empty where there is none."""
        return ",".join(f"{name}={value}" for name, value in self.changes.items())


def variations_of(
    device: Device, /, *, settings: Sequence[str], vary: Sequence[str]
) -> tuple[Variation, ...]:
    """The devices that ``--set`` and ``--vary`` ask for."""
    fixed, axes = parse_settings(tuple(settings)), parse_variations(tuple(vary))
    require_apart(fixed, axes)
    return variations(with_fields(device, fixed), axes)


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
    """Calls at a time; None: as many as pay."""
    workers: Workers = Workers.JOBLIB

    def run(
        self, variation: Variation, pairs: Sequence[Pair], /, *, done: Callable[[], None] = lambda: None
    ) -> Characterization:
        """All pairs on one device; ``done`` is called after each."""
        (found,) = self.run_all([variation], pairs, done=done)
        return found

    def run_all(
        self,
        variations: Sequence[Variation],
        pairs: Sequence[Pair],
        /,
        *,
        done: Callable[[], None] = lambda: None,
    ) -> Iterator[Characterization]:
        """All pairs on each device in turn, all of them side by side; ``done`` is called after each pair."""
        benches = [
            open_bench(self.executor, device=variation.device, gpus=self.gpus) for variation in variations
        ]
        stores = [
            self._store(variation, bench.environment)
            for variation, bench in zip(variations, benches, strict=True)
        ]
        results = self._results(variations, pairs, stores=stores)
        for bench in benches:
            found: list[PairResult] = []
            skipped: list[Skipped] = []
            for pair in pairs:
                result = next(results)
                if result.alone is None:
                    skipped.append(Skipped(source=pair.source, reason=result.reason))
                else:
                    found.append(result)
                done()
            yield Characterization(environment=bench.environment, pairs=tuple(found), skipped=tuple(skipped))

    def _store(self, variation: Variation, environment: Environment) -> Store | None:
        if self.folder is None:
            return None
        return Store(self.folder / store_name(variation), environment=environment)

    def _results(
        self, variations: Sequence[Variation], pairs: Sequence[Pair], *, stores: Sequence[Store | None]
    ) -> Iterator[PairResult]:
        """Pair by pair, variation by variation."""
        cells = [(place, pair) for place in range(len(variations)) for pair in pairs]
        jobs = self._jobs(len(cells))
        if jobs == 1 and self.workers is Workers.JOBLIB:
            for variation, store in zip(variations, stores, strict=True):
                characterizer = _characterizer(self, variation.device, keep=store)
                yield from (characterizer.pair(pair) for pair in pairs)
            return
        known = [_by_pair(store) for store in stores]
        work = [
            (self, variations[place].device, pair, known[place].get(pair_key(pair), {}))
            for place, pair in cells
        ]
        results = spread(_one, work, jobs=jobs, workers=self.workers)
        for (place, _), result in zip(cells, results, strict=True):
            _keep(stores[place], result)
            yield result

    def _jobs(self, pairs: int) -> int:
        if self.executor != "sim":
            return 1  # a GPU measures one thing at a time
        most = all_processors(self.workers)
        if self.jobs is not None:
            return self.jobs if most < 0 else min(self.jobs, max(1, pairs))
        cells = pairs * (len(self.strategies) + 2)
        return most if cells > CELLS_WORTH_PROCESSES or most < 0 else 1


def store_name(variation: Variation, /) -> str:
    """The file of a variation's store."""
    name = f"store.{variation.name}.jsonl" if variation.changes else "store.jsonl"
    if len(name) > LONGEST_NAME:
        name = f"store.{hashlib.sha256(variation.name.encode()).hexdigest()[:16]}.jsonl"
    return name.replace("/", "_")


class _Known:
    """What has been measured, where a worker has no file to look into."""

    def __init__(self, measurements: Mapping[str, Measurement], /) -> None:
        self._measurements = measurements

    def get(self, label: str, /) -> Measurement | None:
        return self._measurements.get(label)

    def add(self, measurements: Sequence[Measurement], /) -> None:
        """Nothing: the process that has the file adds what comes back."""


def _by_pair(store: Store | None) -> dict[str, dict[str, Measurement]]:
    """What a store has of each pair, by the pair's key."""
    found: dict[str, dict[str, Measurement]] = {}
    for label, measurement in store.all().items() if store is not None else ():
        found.setdefault(label.partition("/")[0], {})[label] = measurement
    return found


def _keep(store: Store | None, result: PairResult) -> None:
    if store is not None:
        cells = [one.measurement for one in result.strategies.values()]
        store.add(
            cell for cell in (result.compute, result.communication, *cells) if store.get(cell.label) != cell
        )


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
