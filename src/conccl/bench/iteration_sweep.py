"""Iterations of a model on variations of a device, side by side, kept as they come, resumed where stopped."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import conccl
from conccl.bench.executors import device_digest
from conccl.bench.iteration import Iteration, simulate_iteration
from conccl.bench.kept import Kept
from conccl.bench.spreading import Workers, all_processors, spread
from conccl.bench.sweep import Variation
from conccl.core.errors import InputError
from conccl.core.hardware import Device
from conccl.core.records import to_json_value
from conccl.costs.catalogue import system_of, under_load
from conccl.sim.executor import SimExecutor
from conccl.workloads.memory import require_memory
from conccl.workloads.steps import Workload

ITERATIONS_WORTH_PROCESSES = 8
"""Iterations, about a second each, beyond which starting processes pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one variation: an iteration, or why there is none."""

    variation: Variation
    iteration: Iteration | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationSweep:
    """A workload on one device after the other."""

    workload: Workload
    folder: Path | None = None
    """Where results are kept; None: nowhere."""
    jobs: int | None = None
    """Iterations at a time; None: as many as pay."""
    workers: Workers = Workers.JOBLIB

    def run(
        self, variations: Sequence[Variation], /, *, done: Callable[[], None] = lambda: None
    ) -> tuple[Outcome, ...]:
        """All variations; one that cannot be has its reason. ``done`` is called after each."""
        kept = None if self.folder is None else Kept(self.folder / "iterations.jsonl")
        keys = [iteration_key(self.workload, variation.device) for variation in variations]
        known = {key: kept.get(key) for key in keys} if kept is not None else {}
        missing = [place for place, key in enumerate(keys) if known.get(key) is None]
        fresh = self._simulated([variations[place].device for place in missing])
        outcomes = []
        for variation, key in zip(variations, keys, strict=True):
            value = known.get(key)
            if value is None:
                iteration, reason = next(fresh)
                if kept is not None:
                    kept.add(key, _value(iteration, reason))
            else:
                iteration, reason = _iteration(value)
            outcomes.append(Outcome(variation=variation, iteration=iteration, reason=reason))
            done()
        return tuple(outcomes)

    def _simulated(self, devices: Sequence[Device]) -> Iterator[tuple[Iteration | None, str]]:
        most = all_processors(self.workers)
        pays = len(devices) > ITERATIONS_WORTH_PROCESSES or most < 0
        jobs = self.jobs or (most if pays else 1)
        work = [(self.workload, device) for device in devices]
        return spread(
            _simulate, work, jobs=jobs if most < 0 else min(jobs, len(work) or 1), workers=self.workers
        )


def simulate_on(workload: Workload, device: Device, /) -> Iteration:
    """One iteration on as many of a device as the parallelism takes; an error where it does not fit."""
    require_memory(workload, device)
    device = under_load(device)
    system = system_of(device, gpus=workload.parallelism.gpus)
    return simulate_iteration(workload, executor=SimExecutor(system=system), device=device)


def iteration_key(workload: Workload, device: Device, /) -> str:
    """A short name of all that an iteration follows from."""
    of = [conccl.__version__, device_digest(device), to_json_value(workload)]
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]


def _simulate(workload: Workload, device: Device) -> tuple[Iteration | None, str]:
    """One variation in a worker process."""
    try:
        return simulate_on(workload, device), ""
    except InputError as error:
        return None, str(error)


_NUMBERS = tuple(field.name for field in dataclasses.fields(Iteration) if field.name != "timeline")


def _value(iteration: Iteration | None, reason: str) -> dict[str, object]:
    if iteration is None:
        return {"reason": reason}
    return {name: getattr(iteration, name) for name in _NUMBERS}


def _iteration(value: dict[str, object]) -> tuple[Iteration | None, str]:
    if "reason" in value:
        return None, str(value["reason"])
    return Iteration(timeline=None, **value), ""  # type: ignore[arg-type]  # numbers that `_value` wrote
