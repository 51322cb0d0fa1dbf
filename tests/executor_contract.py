"""What every executor does with a plan: a suite that fakes, simulators and devices are run through alike.

Use it by subclassing, with a fixture that makes the executor for a plan::

    class TestMyExecutor(ExecutorContract):
        @pytest.fixture
        def run(self):
            return lambda plan: MyExecutor(...).run(plan)

An executor whose ops must be real ones (not the moves and elementwise kernels below) overrides `op`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conccl.core.errors import PlanError
from conccl.core.ops import Move, Op, Region, Signal
from conccl.core.plan import Dependency, Engine, Part, Plan, Side, Task
from conccl.core.timeline import Activity, Span, Timeline

Run = Callable[[Plan], Timeline]
NBYTES = 1 << 20


def spans(timeline: Timeline) -> dict[str, Span]:
    """The rows of a timeline by task."""
    return {span.name: span for span in timeline}


class ExecutorContract:
    """Give it a fixture ``run``: a function from plan to timeline."""

    def op(self, *, rank: int, peer: int) -> Op:
        """An op that the executor can carry out."""
        return Move(
            source=Region(rank=rank, buffer="input", offset=0, nbytes=NBYTES),
            destination=Region(rank=peer, buffer="output", offset=0, nbytes=NBYTES),
        )

    def task(
        self, id_: str, *, rank: int = 0, parts: int = 0, lane: str = "a", after: tuple = (), **fields
    ) -> Task:
        """A copy-engine move of one rank to itself or to the rank above."""
        share = NBYTES // max(1, parts)
        return Task(
            id=id_,
            op=fields.pop("op", self.op(rank=rank, peer=rank)),
            rank=rank,
            lane=lane,
            side=fields.pop("side", Side.COMMUNICATION),
            engine=Engine.COPY_ENGINE,
            after=after,
            parts=tuple(Part(start=k * share, stop=(k + 1) * share) for k in range(parts)),
            **fields,
        )

    def test_an_empty_plan_is_an_empty_timeline(self, run: Run):
        assert len(run(Plan(tasks=()))) == 0

    def test_each_task_is_one_row_of_its_rank_lane_and_side(self, run: Run):
        plan = Plan(
            tasks=(
                self.task("gemm", rank=0, lane="compute", side=Side.COMPUTE),
                self.task("send", rank=0, lane="comm"),
                self.task("other", rank=1, lane="comm"),
            )
        )
        rows = spans(run(plan))
        assert rows.keys() == {"gemm", "send", "other"}
        assert [(rows[n].lane.rank, rows[n].lane.stream) for n in ("gemm", "send", "other")] == [
            (0, "compute"),
            (0, "comm"),
            (1, "comm"),
        ]
        assert rows["gemm"].activity is Activity.COMPUTE
        assert rows["send"].activity is Activity.COMMUNICATION

    def test_rows_are_sorted_by_start(self, run: Run):
        timeline = run(Plan(tasks=tuple(self.task(f"t{i}", lane=f"l{i % 3}") for i in range(9))))
        assert list(timeline.start_ns) == sorted(timeline.start_ns)

    def test_tasks_of_a_lane_run_in_issue_order(self, run: Run):
        rows = spans(run(Plan(tasks=tuple(self.task(f"t{i}") for i in range(5)))))
        for i in range(4):
            assert rows[f"t{i}"].end_ns <= rows[f"t{i + 1}"].start_ns

    def test_a_task_begins_after_what_it_waits_for(self, run: Run):
        plan = Plan(
            tasks=(
                self.task("first", lane="a"),
                self.task("second", lane="b", after=(Dependency(task="first"),)),
                self.task("peer", rank=1, lane="a", after=(Dependency(task="second"),)),
            )
        )
        rows = spans(run(plan))
        assert rows["first"].end_ns <= rows["second"].start_ns
        assert rows["second"].end_ns <= rows["peer"].start_ns

    def test_tasks_may_be_listed_before_what_they_wait_for(self, run: Run):
        plan = Plan(
            tasks=(self.task("late", lane="b", after=(Dependency(task="early"),)), self.task("early"))
        )
        rows = spans(run(plan))
        assert rows["early"].end_ns <= rows["late"].start_ns

    def test_a_part_releases_what_waits_for_it_no_earlier_than_its_task_begins(self, run: Run):
        plan = Plan(
            tasks=(
                self.task("producer", parts=4),
                self.task("first", lane="b", after=(Dependency(task="producer", part=0),)),
                self.task("last", lane="c", after=(Dependency(task="producer", part=3),)),
            )
        )
        rows = spans(run(plan))
        assert rows["producer"].start_ns <= rows["first"].start_ns
        assert rows["first"].start_ns <= rows["last"].start_ns
        assert rows["producer"].end_ns <= rows["last"].start_ns

    def test_a_task_whose_last_part_waits_ends_after_what_it_waits_for(self, run: Run):
        after = (Dependency(task="producer", needed_by=1),)
        plan = Plan(tasks=(self.task("producer"), self.task("consumer", lane="b", parts=2, after=after)))
        rows = spans(run(plan))
        assert rows["producer"].end_ns <= rows["consumer"].end_ns

    def test_two_tasks_may_wait_for_each_others_parts_in_turn(self, run: Run):
        plan = Plan(
            tasks=(
                self.task("ping", parts=2, after=(Dependency(task="pong", part=0, needed_by=1),)),
                self.task(
                    "pong",
                    lane="b",
                    parts=2,
                    after=(Dependency(task="ping", part=0), Dependency(task="ping", part=1, needed_by=1)),
                ),
            )
        )
        rows = spans(run(plan))
        assert rows["ping"].start_ns <= rows["pong"].start_ns
        assert rows["ping"].end_ns <= rows["pong"].end_ns

    def test_a_signal_waits_for_all_and_releases_all(self, run: Run):
        plan = Plan(
            tasks=(
                self.task("a"),
                self.task("b", rank=1),
                self.task("met", lane="s", op=Signal(), after=(Dependency(task="a"), Dependency(task="b"))),
                self.task("c", rank=1, lane="c", after=(Dependency(task="met"),)),
            )
        )
        rows = spans(run(plan))
        assert max(rows["a"].end_ns, rows["b"].end_ns) <= rows["met"].end_ns <= rows["c"].start_ns

    def test_a_fragment_is_refused(self, run: Run):
        fragment = Plan(tasks=(self.task("t", after=(Dependency(task="elsewhere"),)),), needs=("elsewhere",))
        with pytest.raises(PlanError, match="elsewhere"):
            run(fragment)
