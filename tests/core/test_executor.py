import pytest
from hypothesis import given, settings

from conccl.core.errors import PlanError
from conccl.core.executor import FakeExecutor
from conccl.core.ops import Elementwise
from conccl.core.plan import Dependency, Part, Plan, Task
from conccl.core.timeline import Clock
from executor_contract import ExecutorContract, Run
from record_strategies import plans

OP = Elementwise(name="add", read_nbytes=8, written_nbytes=4)


def fake(plan: Plan, **durations_ns: int):
    default = dict.fromkeys((task.id for task in plan.tasks), 100)
    return FakeExecutor(durations_ns=default | durations_ns).run(plan)


class TestFakeExecutor(ExecutorContract):
    @pytest.fixture
    def run(self) -> Run:
        return fake


def parts(count: int) -> tuple[Part, ...]:
    return tuple(Part(start=k, stop=k + 1) for k in range(count))


def test_parts_take_even_shares_of_their_task():
    plan = Plan(
        tasks=(
            Task(id="gemm", op=OP, parts=parts(4)),
            Task(id="copy", op=OP, lane="b", after=(Dependency(task="gemm", part=1),)),
        )
    )
    rows = {span.name: span for span in fake(plan, gemm=1001, copy=10)}
    assert (rows["gemm"].start_ns, rows["gemm"].end_ns) == (0, 1001)
    assert rows["copy"].start_ns == 500


def test_a_task_that_waits_in_its_middle_is_longer_than_its_work():
    plan = Plan(
        tasks=(
            Task(id="gather", op=OP, lane="b"),
            Task(id="gemm", op=OP, parts=parts(2), after=(Dependency(task="gather", needed_by=1),)),
        )
    )
    rows = {span.name: span for span in fake(plan, gather=1000, gemm=100)}
    assert (rows["gemm"].start_ns, rows["gemm"].end_ns) == (0, 1050)


def test_its_clock_is_the_simulated_one():
    assert fake(Plan(tasks=())).clock is Clock.SIMULATED


def test_a_task_without_a_duration_is_named():
    with pytest.raises(PlanError, match="'t'"):
        FakeExecutor(durations_ns={}).run(Plan(tasks=(Task(id="t", op=OP),)))


@given(plans())
@settings(max_examples=40)
def test_the_same_plan_gives_the_same_rows(plan: Plan):
    assert list(fake(plan)) == list(fake(plan))


@given(plans())
@settings(max_examples=40)
def test_every_dependency_holds(plan: Plan):
    rows = {span.name: span for span in fake(plan)}
    for task in plan.tasks:
        for dependency in task.after:
            other = plan.task(dependency.task)
            if dependency.part in (None, len(other.parts) - 1) and dependency.needed_by in (None, 0):
                assert rows[other.id].end_ns <= rows[task.id].start_ns
