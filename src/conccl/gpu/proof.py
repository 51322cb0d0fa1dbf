"""Whether what a plan asks for was seen to happen: the proofs that contracts ask of every strategy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from conccl.core.ops import Collective, Copy, Move
from conccl.core.plan import Engine, Plan, Side, Task
from conccl.core.timeline import Timeline
from conccl.gpu.driver import Evidence
from conccl.gpu.executor import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Whether it was seen; None where the plan asks for nothing that could be."""

    proved: bool | None
    sentence: str = ""


def prove(plan: Plan, runs: Sequence[Run], /) -> Proof:
    """All claims of the plan in all runs; the first that fails decides."""
    found = [proof for run in runs for proof in _proofs(plan, run)]
    failed = next((proof for proof in found if proof.proved is False), None)
    if failed is not None:
        return failed
    sentences = dict.fromkeys(proof.sentence for proof in found if proof.proved)
    return Proof(proved=True, sentence="; ".join(sentences)) if sentences else Proof(proved=None)


def _proofs(plan: Plan, run: Run) -> Iterator[Proof]:
    computes = [task for task in plan.tasks if task.side is Side.COMPUTE]
    moving = [task for task in plan.tasks if task.side is Side.COMMUNICATION]
    rows = {span.name for span in run.timeline}
    seen = [task for task in moving if task.id in rows and isinstance(task.op, (Collective, Copy, Move))]
    if len(plan.partitions) > 1:
        yield _partitioned(plan, run.evidence)
    if computes and any(task.priority < 0 and task.engine is Engine.SM for task in seen):
        yield _prioritized([task for task in seen if task.engine is Engine.SM], computes, run.evidence)
    if any(task.engine is Engine.COPY_ENGINE for task in seen):
        yield _by_engine([task for task in seen if task.engine is Engine.COPY_ENGINE], run.evidence)
    if any(task.parts for task in computes):
        yield _in_the_middle(computes, moving, run.timeline)


def _partitioned(plan: Plan, evidence: Evidence) -> Proof:
    sms = evidence.partition_sms
    missing = [name for name in plan.partitions if not sms.get(name)]
    if missing:
        return Proof(proved=False, sentence=f"no kernel was seen in partition {missing[0]!r}")
    for one, other in combinations(plan.partitions, 2):
        shared = sms[one] & sms[other]
        if shared:
            return Proof(proved=False, sentence=f"{one} and {other} share {len(shared)} SMs")
    sizes = ", ".join(f"{name} {len(sms[name])}" for name in plan.partitions)
    return Proof(proved=True, sentence=f"disjoint SMs by %smid: {sizes}")


def _prioritized(moving: Sequence[Task], computes: Sequence[Task], evidence: Evidence) -> Proof:
    last = [evidence.started_ns[task.id][1] for task in moving[:1] if task.id in evidence.started_ns]
    first = [evidence.compute_from_ns[task.id] for task in computes if task.id in evidence.compute_from_ns]
    if not last or not first:
        return Proof(proved=False, sentence="nothing was seen of when the kernels' CTAs started")
    if max(last) > min(first):
        late_us = (max(last) - min(first)) / 1e3
        return Proof(
            proved=False, sentence=f"communication's last CTA started {late_us:.1f} us after the GEMM"
        )
    return Proof(proved=True, sentence="communication's CTAs were resident before the GEMM (global timer)")


def _by_engine(moving: Sequence[Task], evidence: Evidence) -> Proof:
    by_sms = [task for task in moving if not evidence.without_sms.get(task.id, False)]
    if by_sms:
        return Proof(proved=False, sentence=f"{by_sms[0].id}: its path waits for SMs (occupancy test)")
    return Proof(proved=True, sentence="copies pass the occupancy test: no SMs")


def _in_the_middle(computes: Sequence[Task], moving: Sequence[Task], timeline: Timeline) -> Proof:
    ends = {span.name: span.end_ns for span in timeline}
    starts = {span.name: span.start_ns for span in timeline}
    if any(len(task.parts) > 1 for task in computes):
        return Proof(
            proved=False, sentence="the GEMM ran in as many launches as it has parts: not one kernel"
        )
    first = min((starts[task.id] for task in moving if task.id in starts), default=None)
    last = max((ends[task.id] for task in computes if task.id in ends), default=None)
    if first is None or last is None or first >= last:
        return Proof(proved=False, sentence="no copy began before the producer ended")
    return Proof(proved=True, sentence="copies began before the producer ended")
