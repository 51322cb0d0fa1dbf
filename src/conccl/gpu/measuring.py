"""One cell measured in the process that has the GPU: warm-up, samples, results, proof, clocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from conccl.core.measurement import Status
from conccl.core.plan import Plan
from conccl.gpu.executor import GpuExecutor, Run
from conccl.gpu.proof import prove
from conccl.gpu.sampling import Stopping, sample

WARM_UP = 2

Slowed = Callable[[], list[str]]
"""Why clocks are low now; nothing where they are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a cell; goes from process to process."""

    samples_ns: tuple[int, ...]
    status: Status
    reason: str = ""
    proved: bool | None = None
    proof: str = ""


def measured(plan: Plan, /, *, executor: GpuExecutor, stopping: Stopping, slowed: Slowed = list) -> Outcome:
    """Run the plan until the spread is small; once more where clocks fell, and say so if they did again."""
    outcome = _measured(plan, executor, stopping)
    why = slowed()
    if not why or outcome.status is not Status.OK:
        return outcome
    outcome = _measured(plan, executor, stopping)
    why = slowed()
    if not why or outcome.status is not Status.OK:
        return outcome
    return Outcome(
        samples_ns=outcome.samples_ns,
        status=Status.THROTTLED,
        reason=f"clocks were lowered by {', '.join(why)}, twice",
        proved=outcome.proved,
        proof=outcome.proof,
    )


def _measured(plan: Plan, executor: GpuExecutor, stopping: Stopping) -> Outcome:
    prepared = executor.prepared(plan)
    runs: list[Run] = []

    def once() -> int:
        runs.append(prepared.run(check=False))
        return runs[-1].timeline.span_ns

    for _ in range(WARM_UP - 1):
        prepared.run(check=False)
    wrong = prepared.run().wrong
    samples = () if wrong else sample(once, stopping=stopping)
    wrong = wrong or prepared.run().wrong  # behind the samples: what the many runs left
    if wrong:
        return Outcome(samples_ns=samples, status=Status.WRONG_RESULT, reason=wrong)
    proof = prove(plan, runs)
    return Outcome(samples_ns=samples, status=Status.OK, proved=proof.proved, proof=proof.sentence)
