"""Lowering: (pair, strategy, system) becomes a plan.

Everything that tells strategies apart ends up in the tasks' fields: issue order, priority, engine, SM limits,
partitions, parts and what waits for which of them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from conccl.core.errors import InputError
from conccl.core.hardware import Device, System
from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective, Communication, Compute, Copy, Gemm
from conccl.core.pair import Dependence, Pair
from conccl.core.plan import Dependency, Engine, Part, Plan, Side, Task, merged
from conccl.costs.kernels import kernels_of
from conccl.strategies.choices import (
    Alone,
    Chunked,
    Fused,
    Partitioned,
    Path,
    Prioritized,
    PrioritizedPartitioned,
    Strategy,
    Whole,
)
from conccl.strategies.cutting import Sizes, cut_rows
from conccl.strategies.fusing import fed, feeding
from conccl.strategies.heuristics import (
    KernelsOf,
    communication_sms,
    is_worth_trimming,
    partition_sms,
)
from conccl.strategies.transfers import FIRST, Means, Transferring, transfer

LIBRARY_BY_ENGINES = frozenset(
    {CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL, CollectiveKind.GATHER, CollectiveKind.SCATTER}
)
"""What NCCL does by copy engines where its CTA policy is zero."""


def resolved(
    strategy: Strategy, /, *, pair: Pair, device: Device, kernels_of: KernelsOf = kernels_of
) -> Strategy:
    """The strategy with the numbers that it leaves open filled in by heuristics, checked on this device."""
    _check_library_engines(strategy, pair=pair, device=device)
    sharing = strategy.sharing
    if isinstance(sharing, (Partitioned, PrioritizedPartitioned)):
        sms = sharing.communication_sms
        if sms is None:
            sms = partition_sms(pair, device, kernels_of=kernels_of)
        _check_partition(sms, device)
        return dataclasses.replace(strategy, sharing=type(sharing)(communication_sms=sms))
    if isinstance(sharing, Prioritized) and strategy.engine is Engine.SM:
        sms = sharing.communication_sms or communication_sms(pair.communication, device)
        if sms >= device.sm_count:
            raise InputError(
                f"communication on {sms} SMs leaves none of {device.name}'s {device.sm_count} to computation."
                f" Give it {device.sm_count - 1} or fewer."
            )
        return dataclasses.replace(strategy, sharing=Prioritized(communication_sms=sms))
    if not 0 <= strategy.trimmed_sms < device.sm_count:
        raise InputError(
            f"trimming {strategy.trimmed_sms} of {device.name}'s {device.sm_count} SMs leaves none."
            f" Trim {device.sm_count - 1} or fewer."
        )
    return strategy


def _check_library_engines(strategy: Strategy, /, *, pair: Pair, device: Device) -> None:
    """NCCL 2.28 has a copy-engine path for what only gathers or scatters, within one NVLink domain."""
    op = pair.communication
    if strategy.engine is not Engine.COPY_ENGINE or strategy.path is not Path.LIBRARY:
        return
    if device.vendor.lower() == "amd":
        why = f"it is a path of NCCL, and {device.name} has RCCL"
    elif not isinstance(op, Collective):
        why = "NCCL does collectives, and this pair communicates by a copy"
    elif op.kind not in LIBRARY_BY_ENGINES:
        why = f"NCCL's copy engines do {', '.join(sorted(LIBRARY_BY_ENGINES))} and not {op.kind}"
    elif op.ranks > device.gpus_per_node:
        why = f"NCCL needs one NVLink domain, and {op.ranks} ranks take more than {device.gpus_per_node} GPUs"
    else:
        return
    raise InputError(f"nccl_zero is not possible: {why}. Use ce.")


def _check_partition(sms: int, device: Device) -> None:
    largest = (device.sm_count - 1) // device.sm_group * device.sm_group
    if sms % device.sm_group or not device.sm_group <= sms <= largest:
        raise InputError(
            f"a partition of {sms} SMs on {device.name}: possible are multiples of {device.sm_group}"
            f" from {device.sm_group} to {largest}."
        )


def lower(pair: Pair, strategy: Strategy, /, *, system: System, kernels_of: KernelsOf = kernels_of) -> Plan:
    """The plan that runs the pair by the strategy, on all ranks that its communication has."""
    strategy = resolved(strategy, pair=pair, device=system.device, kernels_of=kernels_of)
    lowering = _Lowering(pair=pair, strategy=strategy, system=system, kernels_of=kernels_of)
    match strategy.granularity:
        case Whole():
            return lowering.whole()
        case Chunked() as chunked:
            return lowering.chunked(chunked.count, sizes=chunked.sizes)
        case Fused() as fused:
            return lowering.fused(fused.parts)


def isolated(
    op: Compute | Communication, /, *, side: Side, system: System, means: Means | None = None
) -> Plan:
    """One side of a pair with the GPUs to itself, as the library or a plain stream would run it.

    ``means`` moves communication by something else.
    """
    if side is Side.COMPUTE:
        return Plan(tasks=(Task(id="compute.r0", op=op),), label="compute alone")
    engine = Engine.COPY_ENGINE if isinstance(op, Copy) and _by_engines(op, system.device) else Engine.SM
    alone = transfer(
        _communication(op), name="communication", means=means or Means(engine=engine), system=system
    )
    return dataclasses.replace(alone.plan, label="communication alone")


def _communication(op: Compute | Communication) -> Communication:
    if not isinstance(op, (Collective, Copy)):
        raise InputError(f"a pair communicates by a Collective or a Copy, not by a {type(op).__name__}.")
    return op


def _by_engines(op: Copy, device: Device) -> bool:
    """Whether a plain copy goes by copy engines: those that leave the GPU do, local ones where they can."""
    return op.source is not op.destination or device.copy_engines.local_copies


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lowering:
    """One pair on its way to a plan; the strategy is resolved."""

    pair: Pair
    strategy: Strategy
    system: System
    kernels_of: KernelsOf

    @property
    def ranks(self) -> range:
        op = self.pair.communication
        return range(op.ranks if isinstance(op, Collective) else 1)

    # Whole ops

    def whole(self) -> Plan:
        waits: dict[int, tuple[Dependency, ...]] = {}
        if self._communication_follows():
            waits = {rank: (Dependency(task=f"compute.r{rank}"),) for rank in self.ranks}
        communication = self._communication("communication", self.pair.communication, after=waits)
        computes = []
        for rank in self.ranks:
            after: tuple[Dependency, ...] = ()
            if self.pair.dependence is Dependence.COMMUNICATION_FEEDS_COMPUTE:
                after = communication.ends[rank]
            computes.append(self._compute(f"compute.r{rank}", self.pair.compute, rank=rank, after=after))
        return self._ordered(computes, [communication])

    def _communication_follows(self) -> bool:
        feeds = self.pair.dependence is Dependence.COMPUTE_FEEDS_COMMUNICATION
        alone = isinstance(self.strategy.sharing, Alone) and self.pair.dependence is Dependence.NONE
        return feeds or alone

    # Chunks of rows

    def chunked(self, count: int, *, sizes: Sizes) -> Plan:
        gemm = self._dependent_gemm("chunked")
        feeds = self.pair.dependence is Dependence.COMPUTE_FEEDS_COMMUNICATION
        rows = cut_rows(gemm.m, count, sizes=sizes)
        if not feeds:
            rows.reverse()  # nothing hides the first chunk's transfer
        shares = _shares(self.pair.communication.nbytes, rows)
        computes: list[Task] = []
        transfers: list[Transferring] = []
        for index, (chunk_rows, nbytes) in enumerate(zip(rows, shares, strict=True)):
            chunk = dataclasses.replace(gemm, m=chunk_rows)
            part = _sized(self.pair.communication, nbytes)
            name = f"communication.c{index}"
            waits = {rank: (Dependency(task=f"compute.c{index}.r{rank}"),) for rank in self.ranks}
            moving = self._communication(name, part, after=waits if feeds else {})
            transfers.append(moving)
            computes.extend(
                self._compute(
                    f"compute.c{index}.r{rank}", chunk, rank=rank, after=() if feeds else moving.ends[rank]
                )
                for rank in self.ranks
            )
        return self._ordered(computes, transfers)

    # One kernel with parts

    def fused(self, count: int) -> Plan:
        gemm = self._dependent_gemm("fused")
        op = self.pair.communication
        if isinstance(op, Collective) and self.strategy.engine is Engine.COPY_ENGINE:
            return self._fused_with(gemm, op, count)
        written = gemm.batch * gemm.m * gemm.n * gemm.output_dtype.nbytes
        bounds = [written * index // count for index in range(count + 1)]
        parts = tuple(Part(start=a, stop=b) for a, b in itertools.pairwise(bounds))
        sizes = _shares(self.pair.communication.nbytes, [part.stop - part.start for part in parts])
        feeds = self.pair.dependence is Dependence.COMPUTE_FEEDS_COMMUNICATION
        transfers = []
        needs: dict[int, list[Dependency]] = {rank: [] for rank in self.ranks}
        for index, nbytes in enumerate(sizes):
            waits = {rank: (Dependency(task=f"compute.r{rank}", part=index),) for rank in self.ranks}
            moving = self._communication(
                f"communication.p{index}",
                _sized(self.pair.communication, nbytes),
                after=waits if feeds else {},
            )
            transfers.append(moving)
            if not feeds:
                for rank in self.ranks:
                    ends = moving.ends[rank]
                    needs[rank].extend(dataclasses.replace(end, needed_by=index) for end in ends)
        computes = [
            self._compute(f"compute.r{rank}", gemm, rank=rank, after=tuple(needs[rank]), parts=parts)
            for rank in self.ranks
        ]
        return self._ordered(computes, transfers)

    def _fused_with(self, gemm: Gemm, op: Collective, count: int) -> Plan:
        """One collective that begins with the first tiles, or whose blocks the GEMM takes as they come."""
        feeds = self.pair.dependence is Dependence.COMPUTE_FEEDS_COMMUNICATION
        fusion = (feeding if feeds else fed)(gemm, op, parts=count, system=self.system)
        computes = [
            self._compute(
                f"compute.r{rank}",
                gemm,
                rank=rank,
                parts=fusion.parts[rank],
                after=fusion.waits.get(rank, ()),
            )
            for rank in self.ranks
        ]
        return self._ordered(computes, [Transferring(plan=fusion.plan, ends={})])

    def _dependent_gemm(self, word: str) -> Gemm:
        if self.pair.dependence is Dependence.NONE:
            raise InputError(
                f"{word} overlaps an op with the transfer that it feeds or is fed by; the sides of this pair"
                " are independent. Use ce, prioritized or partitioned."
            )
        if not isinstance(self.pair.compute, Gemm):
            raise InputError(
                f"{word} cuts a GEMM's rows; this pair computes {type(self.pair.compute).__name__}."
            )
        return self.pair.compute

    # Tasks

    def _compute(
        self,
        id_: str,
        op: Compute,
        *,
        rank: int,
        after: tuple[Dependency, ...] = (),
        parts: tuple[Part, ...] = (),
    ) -> Task:
        device = self.system.device
        trimmed = self.strategy.trimmed_sms
        if trimmed and not is_worth_trimming(op, device, sms=trimmed, kernels_of=self.kernels_of):
            trimmed = 0
        return Task(
            id=id_,
            op=op,
            rank=rank,
            lane="compute",
            side=Side.COMPUTE,
            sms=device.sm_count - trimmed if trimmed else None,
            partition="compute" if self._partitioned() else None,
            after=after,
            parts=parts,
        )

    def _communication(
        self, name: str, op: Communication, *, after: Mapping[int, tuple[Dependency, ...]]
    ) -> Transferring:
        strategy = self.strategy
        by_sms = strategy.engine is Engine.SM
        means = Means(
            engine=strategy.engine,
            path=strategy.path,
            sms=getattr(strategy.sharing, "communication_sms", None) if by_sms else None,
            priority=FIRST if self._comes_first() else 0,
            partition="communication" if self._partitioned() else None,
        )
        return transfer(op, name=name, means=means, system=self.system, after=after)

    def _comes_first(self) -> bool:
        return isinstance(self.strategy.sharing, (Prioritized, PrioritizedPartitioned))

    def _partitioned(self) -> bool:
        return isinstance(self.strategy.sharing, (Partitioned, PrioritizedPartitioned))

    def _ordered(self, computes: list[Task], transfers: list[Transferring]) -> Plan:
        """One plan, in the issue order that the strategy asks for."""
        needs = {dependency.task for task in computes for dependency in task.after}
        compute = Plan(tasks=tuple(computes), partitions=self._partitions(), needs=tuple(sorted(needs)))
        moving = [one.plan for one in transfers]
        return merged([*moving, compute] if self._comes_first() else [compute, *moving])

    def _partitions(self) -> dict[str, int]:
        sharing, device = self.strategy.sharing, self.system.device
        if not isinstance(sharing, (Partitioned, PrioritizedPartitioned)):
            return {}
        assert sharing.communication_sms is not None  # resolved
        rest = (device.sm_count - sharing.communication_sms) // device.sm_group * device.sm_group
        return {"compute": rest}


def _sized(op: Communication, nbytes: int) -> Communication:
    return dataclasses.replace(op, nbytes=nbytes)  # type: ignore[arg-type]  # Collective or Copy


def _shares(nbytes: int, weights: list[int]) -> list[int]:
    """The bytes spread in proportion to weights, all of them."""
    whole, done, given = sum(weights), 0, 0
    shares = []
    for weight in weights:
        done += weight
        upto = nbytes * done // whole
        shares.append(upto - given)
        given = upto
    return shares
