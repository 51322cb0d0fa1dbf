"""Pairs by strategies: each side alone, and both together in every way asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from conccl.bench.bench import Bench, failed
from conccl.bench.results import Characterization, PairResult, Skipped, StrategyResult
from conccl.core.errors import InputError
from conccl.core.hardware import System
from conccl.core.measurement import Measurement, Status
from conccl.core.metrics import Overlap
from conccl.core.ops import Copy, Gemm
from conccl.core.pair import Pair
from conccl.core.plan import Engine, Plan, Side
from conccl.core.records import to_json_value
from conccl.core.units import format_bytes
from conccl.costs.kernels import kernels_of
from conccl.strategies.choices import NAMES, POLICY, Strategy, name_of, strategy
from conccl.strategies.choosing import choose as choose_from_costs
from conccl.strategies.heuristics import KernelsOf
from conccl.strategies.lower import isolated, lower
from conccl.strategies.transfers import Means

Choose = Callable[[Pair, System], Strategy]
"""How a named strategy becomes a value for a pair: most ignore the pair, a policy looks at it."""


class Keeper(Protocol):
    """Where measurements are kept: a store, or what a worker was told of one."""

    def get(self, label: str, /) -> Measurement | None:
        """What is known of a cell."""
        ...

    def add(self, measurements: Sequence[Measurement], /) -> None:
        """Keep these."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The strategy of a name, whatever the pair."""

    value: Strategy

    def __call__(self, _pair: Pair, _system: System, /) -> Strategy:
        """The same for every pair."""
        return self.value


def strategies_of(names: Sequence[str], /, *, policy: Choose = choose_from_costs) -> dict[str, Choose]:
    """What each name does, in the order given; ``policy`` is what the name "policy" asks."""
    chosen: dict[str, Choose] = {}
    for name in names:
        if name.strip().lower() == POLICY:
            chosen[POLICY] = policy
        else:
            chosen[name.strip().lower()] = Named(value=strategy(name))
    if not chosen:
        raise InputError(f"no strategies are named. Name one or more of {', '.join(NAMES)}.")
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Characterizer:
    """Measures pairs on one bench; takes from the store what is there already."""

    bench: Bench
    system: System
    strategies: Mapping[str, Choose]
    store: Keeper | None = None
    kernels_of: KernelsOf = kernels_of

    def characterize(
        self, pairs: Sequence[Pair], /, *, done: Callable[[], None] = lambda: None
    ) -> Characterization:
        """All pairs; ``done`` is called after each. One that cannot be is skipped with its reason."""
        results: list[PairResult] = []
        skipped: list[Skipped] = []
        for pair in pairs:
            result = self.pair(pair)
            if result.alone is None:
                skipped.append(Skipped(source=pair.source, reason=result.reason))
            else:
                results.append(result)
            done()
        return Characterization(
            environment=self.bench.environment, pairs=tuple(results), skipped=tuple(skipped)
        )

    def pair(self, pair: Pair, /) -> PairResult:
        """One pair, alone and by every strategy."""
        key = pair_key(pair)
        compute = self._cell(f"{key}/compute", lambda: self._alone(pair, Side.COMPUTE))
        communication = self._cell(f"{key}/communication", lambda: self._alone(pair, Side.COMMUNICATION))
        results = {}
        for name, choose in self.strategies.items():
            if compute.median_ns is None or communication.median_ns is None:
                break
            chosen = choose(pair, self.system)
            cell = self._cell(f"{key}/{name}", lambda chosen=chosen: self._plan(pair, chosen))  # type: ignore[misc]
            overlap = _overlap(compute, communication, cell)
            results[name] = StrategyResult(
                overlap=overlap,
                measurement=cell,
                chosen=name_of(chosen) if name == POLICY else "",
                communication_ns=self._faster_alone_ns(pair, chosen, overlap, key=key),
            )
        return PairResult(pair=pair, compute=compute, communication=communication, strategies=results)

    def _alone(self, pair: Pair, side: Side) -> Plan:
        require_memory(pair, self.system)
        op = pair.compute if side is Side.COMPUTE else pair.communication
        return isolated(op, side=side, system=self.system)

    def _faster_alone_ns(
        self, pair: Pair, chosen: Strategy, overlap: Overlap | None, *, key: str
    ) -> int | None:
        """What communication takes by the strategy's engines alone, where there is more than ideal."""
        fraction = None if overlap is None else overlap.fraction_of_ideal
        if overlap is None or fraction is None or fraction <= 1 or chosen.engine is not Engine.COPY_ENGINE:
            return None
        means = Means(engine=chosen.engine, path=chosen.path)
        cell = self._cell(
            f"{key}/communication by {chosen.path} copy engines",
            lambda: isolated(pair.communication, side=Side.COMMUNICATION, system=self.system, means=means),
        )
        faster = cell.median_ns is not None and cell.median_ns < overlap.communication_ns
        return cell.median_ns if faster else None

    def _plan(self, pair: Pair, chosen: Strategy) -> Plan:
        return lower(pair, chosen, system=self.system, kernels_of=self.kernels_of)

    def _cell(self, label: str, plan: Callable[[], Plan]) -> Measurement:
        """What the store has of a cell, or else a new measurement of its plan."""
        known = self.store.get(label) if self.store is not None else None
        if known is not None and known.status in (Status.OK, Status.UNSUPPORTED):
            return known
        try:
            measurement = self.bench.measure(plan(), label=label)
        except InputError as error:
            measurement = failed(label, reason=str(error), environment=self.bench.environment)
        if self.store is not None:
            self.store.add([measurement])
        return measurement


def pair_key(pair: Pair, /) -> str:
    """A short name that is the same for the same pair, whatever it is called."""
    value = to_json_value(pair)
    del value["source"]
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def require_memory(pair: Pair, system: System, /) -> None:
    """Refuse a pair whose buffers do not fit, and say how much is missing."""
    device = system.device
    needed = sum(nbytes for _, nbytes in _buffers(pair))
    if needed > device.hbm_nbytes:
        largest, nbytes = max(_buffers(pair), key=lambda buffer: buffer[1])
        raise InputError(
            f"the pair needs {format_bytes(needed)} and {device.name} has"
            f" {format_bytes(device.hbm_nbytes)}: {format_bytes(needed - device.hbm_nbytes)} too much."
            f" Most of it is the {largest} ({format_bytes(nbytes)}); make that smaller."
        )


def _buffers(pair: Pair) -> Iterator[tuple[str, int]]:
    compute, communication = pair.compute, pair.communication
    if isinstance(compute, Gemm):
        size, out = compute.dtype.nbytes * compute.batch, compute.output_dtype.nbytes * compute.batch
        yield "GEMM's first operand", compute.m * compute.k * size
        yield "GEMM's second operand", compute.n * compute.k * size
        yield "GEMM's output", compute.m * compute.n * out
    else:
        yield "computation's operands", compute.nbytes
    if isinstance(communication, Copy):
        yield "copy's buffer on the GPU", communication.nbytes
    else:
        yield "communication's input and output", 2 * communication.nbytes


def _overlap(compute: Measurement, communication: Measurement, together: Measurement) -> Overlap | None:
    if together.median_ns is None or compute.median_ns is None or communication.median_ns is None:
        return None
    return Overlap(
        compute_ns=compute.median_ns,
        communication_ns=communication.median_ns,
        concurrent_ns=together.median_ns,
    )
