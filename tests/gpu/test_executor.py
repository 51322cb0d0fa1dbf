"""The GPU executor's host side: the contract, and what goes into which stream, on a driver without a GPU."""

import pytest
from hypothesis import given, settings

from conccl.core.errors import WaitTimeoutError
from conccl.core.ops import Collective, CollectiveKind, Copy, Elementwise, Gemm, Memory
from conccl.core.pair import Pair
from conccl.core.plan import Dependency, Engine, Part, Plan, Side, Task
from conccl.core.timeline import Clock
from conccl.costs.catalogue import load_device, system_of
from conccl.gpu.executor import GpuExecutor
from conccl.gpu.program import program_of
from conccl.strategies.choices import strategy
from conccl.strategies.lower import lower
from executor_contract import ExecutorContract
from gpu.fake_driver import FakeDriver
from record_strategies import plans

OP = Elementwise(name="add", read_nbytes=8, written_nbytes=4)
SYSTEM = system_of(load_device("h200-sxm"), gpus=8)


class TestGpuExecutorKeepsTheContract(ExecutorContract):
    @pytest.fixture
    def run(self):
        return lambda plan: GpuExecutor(driver=FakeDriver()).run(plan)


@settings(max_examples=60)
@given(plans())
def test_a_wait_always_follows_the_record_that_it_waits_for(plan):
    """The fake driver refuses any other order; all steps are launched once, parts in order."""
    if plan.needs:
        return
    driver = FakeDriver()
    GpuExecutor(driver=driver).run(plan)
    launched = [(call[1], call[2]) for call in driver.calls if call[0] == "launch"]
    assert sorted(launched) == sorted(
        (task.id, part) for task in plan.tasks for part in range(max(1, len(task.parts)))
    )


def lowered(name: str, communication=None, **fields):
    op = communication or Collective(kind=CollectiveKind.ALL_GATHER, nbytes=1 << 26, ranks=8)
    pair = Pair(compute=Gemm(m=4096, n=7168, k=8192), communication=op, **fields)
    return lower(pair, strategy(name), system=SYSTEM)


def test_times_are_those_of_events_from_the_first_start_on():
    plan = Plan(
        tasks=(
            Task(id="gemm", op=OP, side=Side.COMPUTE),
            Task(id="copy", op=OP, lane="other", side=Side.COMMUNICATION, after=(Dependency(task="gemm"),)),
        )
    )
    timeline = GpuExecutor(driver=FakeDriver(ns={"copy": 40})).run(plan)
    rows = {span.name: span for span in timeline}
    assert timeline.clock is Clock.GPU
    assert (rows["gemm"].start_ns, rows["gemm"].end_ns) == (0, 100)
    assert (rows["copy"].start_ns, rows["copy"].end_ns) == (100, 140)


def test_priorities_partitions_and_limits_make_streams():
    first = program_of(lowered("prioritized:8")).streams[0]
    assert (first.priority, first.partition) == (-1, None)
    parted = program_of(lowered("partitioned:16"))
    assert {key.partition for key in parted.streams} == {"compute", "communication"}
    assert parted.partitions == {"compute": 112, "communication": 16}
    limited = Plan(tasks=(Task(id="gemm", op=OP, sms=124),))
    assert program_of(limited).streams[0].sms == 124


def test_communication_that_comes_first_is_launched_first():
    names = [launch.task.side for launch in program_of(lowered("prioritized:8"), ranks=(0,)).launches]
    assert names == [Side.COMMUNICATION, Side.COMPUTE]
    names = [launch.task.side for launch in program_of(lowered("baseline"), ranks=(0,)).launches]
    assert names == [Side.COMPUTE, Side.COMMUNICATION]


@pytest.mark.parametrize("name", ["serial", "baseline", "prioritized", "partitioned:8", "ce"])
def test_one_rank_of_many_waits_for_nobody_else(name):
    plan = lowered(name)
    program = program_of(plan, ranks=(0,))
    assert {launch.task.rank for launch in program.launches} == {0}
    steps = {launch.step for launch in program.launches}
    assert all(set(launch.waits) <= steps for launch in program.launches)
    assert len(GpuExecutor(driver=FakeDriver(), ranks=(0,)).run(plan)) == len(plan.for_rank(0))


def test_tasks_of_a_lane_that_need_other_streams_keep_their_order():
    plan = Plan(
        tasks=(
            Task(id="a", op=OP, priority=0),
            Task(id="b", op=OP, priority=-1),
            Task(id="c", op=OP, priority=0),
        )
    )
    program = program_of(plan)
    assert len(program.streams) == 2
    rows = {span.name: span for span in GpuExecutor(driver=FakeDriver()).run(plan)}
    assert rows["a"].end_ns <= rows["b"].start_ns
    assert rows["b"].end_ns <= rows["c"].start_ns


def test_only_events_that_someone_needs_are_recorded():
    parts = tuple(Part(start=i, stop=i + 1) for i in range(50))
    driver = FakeDriver()
    GpuExecutor(driver=driver).run(Plan(tasks=(Task(id="gemm", op=OP, parts=parts),)))
    assert sum(1 for call in driver.calls if call[0] == "record") == 2


def test_a_run_that_does_not_end_is_an_error():
    copy = Copy(nbytes=1 << 20, destination=Memory.HOST)
    plan = Plan(tasks=(Task(id="copy", op=copy, engine=Engine.COPY_ENGINE),))
    with pytest.raises(WaitTimeoutError, match="not done after 3 s"):
        GpuExecutor(driver=FakeDriver(hangs=True), patience_s=3).run(plan)
