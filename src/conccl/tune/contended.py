"""How long each side of a pair takes while the other runs beside it: what schedulers need and do not have.

The partner lasts twice as long, so that the side in question is never alone: a large GEMM beside a
collective, a large all-gather beside computation. Communication is launched first with high priority on as
many SMs as the library takes, which is how frameworks run it. Simulated.
"""

from __future__ import annotations

import dataclasses

from conccl.core.hardware import System
from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective, Compute, Gemm
from conccl.core.pair import Pair
from conccl.core.plan import Side
from conccl.core.timeline import Activity
from conccl.sim.executor import SimExecutor
from conccl.strategies.choices import Prioritized, Strategy
from conccl.strategies.heuristics import alone_ns
from conccl.strategies.lower import isolated, lower

LONGER = 2.0

_GEMM = Gemm(m=4096, n=8192, k=8192)

_GATHER = CollectiveKind.ALL_GATHER


def contended_compute_ns(op: Compute, /, *, system: System) -> int:
    """Time of computation beside an all-gather among all GPUs of the system."""
    compute_ns = alone_ns(op, system.device)
    gather = Collective(kind=_GATHER, nbytes=1 << 28, ranks=system.gpus)
    nbytes = round(gather.nbytes * LONGER * compute_ns / alone_ns(gather, system.device))
    partner = dataclasses.replace(gather, nbytes=max(1 << 20, nbytes))
    return _beside(Pair(compute=op, communication=partner), side=Side.COMPUTE, system=system)


def contended_communication_ns(op: Collective, /, *, system: System) -> int:
    """Time of a collective beside a GEMM."""
    rows = round(_GEMM.m * LONGER * alone_ns(op, system.device) / alone_ns(_GEMM, system.device))
    partner = dataclasses.replace(_GEMM, m=max(128, rows))
    return _beside(Pair(compute=partner, communication=op), side=Side.COMMUNICATION, system=system)


def _beside(pair: Pair, *, side: Side, system: System) -> int:
    """Start to end of one side of the pair on rank 0; the longer of alone and together."""
    executor = SimExecutor(system=system)
    wanted = Activity.COMPUTE if side is Side.COMPUTE else Activity.COMMUNICATION
    together = executor.run(lower(pair, Strategy(sharing=Prioritized()), system=system)).of_rank(0)
    rows = together.where(together.activity == wanted)
    op = pair.compute if side is Side.COMPUTE else pair.communication
    return max(rows.span_ns, executor.run(isolated(op, side=side, system=system)).span_ns)
