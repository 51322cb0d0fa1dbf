import pickle
import re
import time

import pytest
from hypothesis import given, settings

from conccl.core.errors import PlanError
from conccl.core.ops import Elementwise, Memory
from conccl.core.plan import Buffer, Dependency, Part, Plan, Task, merged
from conccl.core.records import from_json_value, to_json_value
from record_strategies import plans

OP = Elementwise(name="add", read_nbytes=8, written_nbytes=4)


def task(id_: str, *after: str | Dependency, parts: int = 0, **fields) -> Task:
    waits = tuple(Dependency(task=one) if isinstance(one, str) else one for one in after)
    pieces = tuple(Part(start=k, stop=k + 1) for k in range(parts))
    return Task(id=id_, op=OP, after=waits, parts=pieces, **({"lane": id_} | fields))


def plan(*tasks: Task, **fields) -> Plan:
    return Plan(tasks=tasks, **fields)


def test_a_task_that_is_not_there_is_named():
    with pytest.raises(PlanError, match="'a' waits for 'ghost', which is not in the plan"):
        plan(task("a", "ghost"))


def test_a_part_that_is_not_there_is_named():
    with pytest.raises(PlanError, match="'b' waits for part 2 of 'a', which has 2"):
        plan(task("a", parts=2), task("b", Dependency(task="a", part=2)))
    with pytest.raises(PlanError, match="part -1 of 'a'"):
        plan(task("a", parts=2), task("b", Dependency(task="a", part=-1)))
    with pytest.raises(PlanError, match="'b' waits before its part 1 of 'b', which has 1"):
        plan(task("a"), task("b", Dependency(task="a", needed_by=1)))


def test_the_whole_of_a_task_without_parts_is_its_part_0():
    assert plan(task("a"), task("b", Dependency(task="a", part=0))).steps().before[1] == [0]


def test_two_tasks_with_one_id_are_refused():
    with pytest.raises(PlanError, match="'a' stands in the plan twice"):
        plan(task("a"), task("b"), task("a"))


def test_a_partition_that_is_not_there_is_named():
    with pytest.raises(PlanError, match="'p'"):
        plan(task("a", partition="p"))
    assert plan(task("a", partition="p"), partitions={"p": 16}).partitions == {"p": 16}


def test_a_cycle_is_named_task_by_task():
    with pytest.raises(
        PlanError, match=r"waits for itself: (\w) waits for (\w) waits for (\w) waits for \1"
    ) as error:
        plan(task("a", "c"), task("b", "a"), task("c", "b"), task("d"), task("e", "a"))
    named = set(re.findall(r"\b[a-e]\b", str(error.value).split("(")[0]))
    assert named - {"a", "b", "c"} == set()


def test_a_task_may_not_wait_for_itself():
    with pytest.raises(PlanError, match="a waits for a"):
        plan(task("a", "a"))
    with pytest.raises(PlanError, match="a waits for a"):
        plan(task("a", Dependency(task="a", part=1, needed_by=1), parts=2))


def test_lane_order_counts_in_a_cycle():
    with pytest.raises(PlanError, match="waits for itself"):
        plan(task("first", "second", lane="x"), task("second", lane="x"))
    plan(task("first", "second", lane="x"), task("second", lane="x", rank=1))


def test_parts_that_wait_in_turn_are_no_cycle_but_in_the_wrong_order_they_are():
    ping = task("ping", Dependency(task="pong", part=0, needed_by=1), parts=2)
    plan(ping, task("pong", Dependency(task="ping", part=0), parts=2))
    with pytest.raises(PlanError, match="waits for itself"):
        plan(ping, task("pong", Dependency(task="ping", part=1), parts=2))


def test_steps_are_numbered_task_by_task():
    steps = plan(task("a", parts=3), task("b"), task("c", Dependency(task="a", part=1), lane="b")).steps()
    assert list(steps.first) == [0, 3, 4, 5]
    assert list(steps.task) == [0, 0, 0, 1, 2]
    assert [sorted(awaited) for awaited in steps.before] == [[], [0], [1], [], [1, 3]]


@given(plans())
@settings(max_examples=40)
def test_the_order_of_steps_respects_what_each_waits_for(one: Plan):
    steps = one.steps()
    place = {step: index for index, step in enumerate(steps.order)}
    assert sorted(place) == list(range(len(steps.task)))
    assert all(place[other] < place[step] for step in place for other in steps.before[step])


def test_a_fragment_needs_what_it_does_not_have():
    fragment = plan(task("copy", "gemm"), needs=("gemm",))
    with pytest.raises(PlanError, match=r"'gemm'.*Merge"):
        fragment.require_whole()
    whole = merged([plan(task("gemm")), fragment])
    whole.require_whole()
    assert whole.needs == ()
    assert merged([fragment]).needs == ("gemm",)
    with pytest.raises(PlanError, match="says that it needs it"):
        plan(task("a"), needs=("a",))


def test_a_need_with_a_part_is_checked_when_the_plans_are_merged():
    fragment = plan(task("copy", Dependency(task="gemm", part=3)), needs=("gemm",))
    merged([plan(task("gemm", parts=4)), fragment])
    with pytest.raises(PlanError, match="part 3 of 'gemm', which has 2"):
        merged([plan(task("gemm", parts=2)), fragment])


def test_merging_keeps_order_partitions_labels_and_the_larger_buffer():
    one = plan(
        task("a"), partitions={"p": 8}, label="one", buffers=(Buffer(rank=0, name="staging", nbytes=10),)
    )
    other = plan(
        task("b"), partitions={"q": 16}, label="two", buffers=(Buffer(rank=0, name="staging", nbytes=20),)
    )
    both = merged([one, other])
    assert [t.id for t in both.tasks] == ["a", "b"]
    assert both.partitions == {"p": 8, "q": 16}
    assert both.label == "one + two"
    assert [buffer.nbytes for buffer in both.buffers] == [20]


def test_one_buffer_cannot_lie_in_two_memories():
    plans_ = [
        plan(buffers=(Buffer(rank=0, name="staging", nbytes=1, memory=memory),))
        for memory in (Memory.HOST, Memory.DEVICE)
    ]
    with pytest.raises(PlanError, match="'staging' of rank 0"):
        merged(plans_)


def test_a_rank_gets_its_tasks_in_issue_order():
    whole = plan(task("a", rank=1), task("b"), task("c", rank=1))
    assert whole.ranks == (0, 1)
    assert [t.id for t in whole.for_rank(1)] == ["a", "c"]
    assert whole.task("b").id == "b"
    with pytest.raises(PlanError, match="'z'"):
        whole.task("z")


def test_a_part_is_in_order():
    with pytest.raises(PlanError, match="in order"):
        Part(start=2, stop=1)


@given(plans())
@settings(max_examples=40)
def test_plans_round_trip_through_json_and_pickle(one: Plan):
    assert from_json_value(to_json_value(one), Plan) == one
    assert pickle.loads(pickle.dumps(one)) == one
    assert pickle.loads(pickle.dumps(one)).steps() == one.steps()


def test_a_large_plan_is_checked_in_linear_time():
    """Eight times the tasks take at most forty times as long (on a busy machine); 64 times is quadratic."""

    def best(count: int) -> float:
        tasks = tuple(
            task(f"t{i}", *([f"t{i - 1}"] if i else []), rank=i % 16, lane=f"l{i % 7}") for i in range(count)
        )
        times = []
        for _ in range(5):
            start = time.process_time()
            one = plan(*tasks)
            one.task(f"t{count - 1}")
            times.append(time.process_time() - start)
        return min(times)

    assert best(8000) < 40 * best(1000)
