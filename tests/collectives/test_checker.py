"""The checker finds nothing in what the package builds, and what is done to it on purpose."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from collective_cases import Case, cases
from conccl.collectives.checker import check, check_hazards
from conccl.collectives.choose import fragment_of
from conccl.collectives.finding import Finding, FindingKind, require_ok
from conccl.collectives.layout import Layout, Window, Windows, layout_of
from conccl.collectives.transfer import Direction, Embedding, Flags, Transfer
from conccl.core.errors import PlanError
from conccl.core.ops import Collective, CollectiveKind, DType, Move, Reduce, ReduceOp, Region
from conccl.core.plan import Dependency, Engine, Plan, Task, merged

K = CollectiveKind


def built(case: Case) -> Plan:
    return fragment_of(
        case.layout, algorithm=case.algorithm, transfer=case.transfer, embedding=case.embedding
    )


def layout(kind: CollectiveKind, *, ranks: int = 4, nbytes: int = 64, **fields) -> Layout:
    return layout_of(Collective(kind=kind, nbytes=nbytes, ranks=ranks, dtype=DType.FP32, **fields))


def changed(plan: Plan, **tasks: Task | None) -> Plan:
    """The plan with some tasks replaced; what waits for a removed one waits no more."""
    gone = {id_ for id_, task in tasks.items() if task is None}
    kept = []
    for task in plan.tasks:
        if task.id not in gone:
            after = tuple(one for one in tasks.get(task.id, task).after if one.task not in gone)
            kept.append(replace(tasks.get(task.id, task), after=after))
    return Plan(tasks=tuple(kept), buffers=plan.buffers)


def kinds(findings: tuple[Finding, ...]) -> set[FindingKind]:
    return {finding.kind for finding in findings}


@given(case=cases())
@settings(max_examples=200, deadline=None)
def test_nothing_is_wrong_with_what_is_built(case: Case):
    assert check(built(case), layout=case.layout) == ()


@given(case=cases(most_ranks=6), data=st.data())
@settings(max_examples=100, deadline=None)
def test_every_dependency_is_needed(case: Case, data: st.DataObject):
    """Without it something races, or leaves too early; what other waits imply may be left out.

    Not so where one flag stands for a whole batch: a rank then waits for more than it needs.
    """
    transfer = replace(case.transfer, flags=Flags.PER_MOVE)
    assume(case.algorithm != "b2b")
    plan = built(replace(case, transfer=transfer))
    waits = [(task, index) for task in plan.tasks for index in range(len(task.after))]
    assume(waits and case.layout.kind is not K.BARRIER)
    task, index = data.draw(st.sampled_from(waits))
    after = (*task.after[:index], *task.after[index + 1 :])
    without = changed(plan, **{task.id: replace(task, after=after)})
    if _still_ordered(without, task, task.after[index]):
        return
    found = kinds(check(without, layout=case.layout))
    is_exit = task.id.endswith(f".exit.r{task.rank}")
    assert found & ({FindingKind.OUTSIDE} if is_exit else {FindingKind.RACE, FindingKind.OUTSIDE})


def _still_ordered(plan: Plan, task: Task, dependency: Dependency) -> bool:
    """Whether other waits imply this one (a wait for a peer's later move, say)."""
    steps = plan.steps()
    index = {one.id: position for position, one in enumerate(plan.tasks)}
    other = index[dependency.task]
    awaited = steps.first[other + 1] - 1 if dependency.part is None else steps.first[other] + dependency.part
    ahead, seen = [steps.first[index[task.id]] + (dependency.needed_by or 0)], set()
    while ahead:
        for step in steps.before[ahead.pop()]:
            if step not in seen:
                seen.add(step)
                ahead.append(step)
    return awaited in seen


@given(case=cases(most_ranks=6), data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_move_and_reduction_is_needed(case: Case, data: st.DataObject):
    plan = built(case)
    work = [task for task in plan.tasks if ".enter." not in task.id and ".exit." not in task.id]
    assume(work and case.layout.kind is not K.BARRIER)
    task = data.draw(st.sampled_from(work))
    found = kinds(check(changed(plan, **{task.id: None}), layout=case.layout))
    assert found & {FindingKind.MISSING, FindingKind.WRONG, FindingKind.UNWRITTEN}


def direct(kind: CollectiveKind, **fields) -> tuple[Plan, Layout]:
    one = layout(kind, **fields)
    return fragment_of(one, algorithm="direct"), one


def first(plan: Plan, op: type) -> Task:
    """Rank 0's first reduction, or its first move to a peer."""
    engine = Engine.SM if op is Reduce else Engine.COPY_ENGINE
    return next(t for t in plan.for_rank(0) if isinstance(t.op, op) and t.engine is engine)


def test_bytes_that_arrive_at_the_wrong_place_are_wrong_there_and_missing_here():
    plan, one = direct(K.ALL_GATHER)
    task = first(plan, Move)
    moved = replace(task.op, destination=replace(task.op.destination, offset=48))
    findings = check(changed(plan, **{task.id: replace(task, op=moved)}), layout=one)
    assert {FindingKind.MISSING, FindingKind.RACE} <= kinds(findings)
    missing = next(finding for finding in findings if finding.kind is FindingKind.MISSING)
    assert missing.ranks == (task.op.destination.rank,)
    assert "[0, 16) of 'output' of rank 1 never get" in missing.sentence


def test_bytes_of_another_rank_are_wrong():
    plan, one = direct(K.ALL_TO_ALL)
    task = first(plan, Move)
    moved = replace(task.op, source=replace(task.op.source, offset=(task.op.source.offset + 16) % 64))
    (finding,) = check(changed(plan, **{task.id: replace(task, op=moved)}), layout=one)
    assert finding.kind is FindingKind.WRONG
    assert "hold byte 32 of rank 0's input instead of byte 16 of rank 0's input" in finding.sentence


def test_bytes_that_arrive_twice_are_named_with_both_tasks():
    plan, one = direct(K.ALL_GATHER)
    task = first(plan, Move)
    again = replace(task, id="again")
    (finding,) = check(with_extra(plan, task.id, again), layout=one)
    assert finding.kind is FindingKind.TWICE
    assert finding.ranks == (task.op.destination.rank,)
    assert "'again'" in finding.sentence
    assert repr(task.id) in finding.sentence


def with_extra(plan: Plan, after: str, extra: Task) -> Plan:
    """The plan with a task behind another on its lane; the exits wait for it too."""
    tasks = []
    for task in plan.tasks:
        leaves = ".exit." in task.id
        tasks.append(replace(task, after=(*task.after, Dependency(task=extra.id))) if leaves else task)
        if task.id == after:
            tasks.append(extra)
    return Plan(tasks=tuple(tasks), buffers=plan.buffers)


def test_a_rank_that_is_reduced_twice_is_wrong():
    plan, one = direct(K.REDUCE_SCATTER)
    task = first(plan, Reduce)
    sources = (task.op.sources[0], task.op.sources[0], *task.op.sources[2:])
    findings = check(
        changed(plan, **{task.id: replace(task, op=replace(task.op, sources=sources))}), layout=one
    )
    assert kinds(findings) == {FindingKind.WRONG}
    assert "2 times" in findings[0].sentence


def test_another_operation_is_wrong():
    plan, one = direct(K.REDUCE_SCATTER)
    task = first(plan, Reduce)
    (finding,) = check(
        changed(plan, **{task.id: replace(task, op=replace(task.op, reduce_op=ReduceOp.MAX))}), layout=one
    )
    assert finding.kind is FindingKind.WRONG
    assert "by max in fp32; the collective does by sum in fp32" in finding.sentence


def test_an_average_that_is_not_divided_is_wrong():
    plan, one = direct(K.ALL_REDUCE, reduce_op=ReduceOp.AVG)
    task = first(plan, Reduce)
    op = replace(task.op, reduce_op=ReduceOp.SUM, divisor=None)
    findings = check(changed(plan, **{task.id: replace(task, op=op)}), layout=one)
    assert kinds(findings) == {FindingKind.WRONG}
    assert "divided by 4" in findings[0].sentence


def test_bytes_that_nobody_wrote_are_not_read_unnoticed():
    plan, one = direct(K.REDUCE_SCATTER)
    task = first(plan, Reduce)
    sources = (*task.op.sources[:-1], Region(rank=0, buffer="staging", offset=4096, nbytes=16))
    findings = check(
        changed(plan, **{task.id: replace(task, op=replace(task.op, sources=sources))}), layout=one
    )
    assert {FindingKind.UNWRITTEN, FindingKind.OUT_OF_BOUNDS} <= kinds(findings)


def test_a_copy_onto_itself_with_an_offset_overlaps():
    plan, one = direct(K.ALL_GATHER)
    task = first(plan, Move)
    here = Region(rank=0, buffer="output", offset=0, nbytes=16)
    moved = Move(source=here, destination=replace(here, offset=8))
    assert FindingKind.OVERLAP in kinds(
        check(changed(plan, **{task.id: replace(task, op=moved)}), layout=one)
    )


def test_a_push_before_the_receiver_has_entered_is_found():
    plan, one = direct(K.ALL_GATHER)
    task = first(plan, Move)
    after = tuple(dependency for dependency in task.after if dependency.task != "all_gather.enter.r1")
    (finding,) = check(changed(plan, **{task.id: replace(task, after=after)}), layout=one)
    assert finding.kind is FindingKind.OUTSIDE
    assert finding.ranks == (0, 1)
    assert "before it has entered" in finding.sentence


def test_kernels_that_hold_sms_while_they_wait_must_fit_together():
    one = layout(K.ALL_REDUCE, nbytes=1 << 20)
    transfer = Transfer(engine=Engine.SM, direction=Direction.PUSH, chunks=4, sms=132)
    plan = fragment_of(one, algorithm="direct", transfer=transfer)
    assert check(plan, layout=one, sm_count=264) == ()
    findings = check(plan, layout=one, sm_count=64)
    assert kinds(findings) == {FindingKind.POSSIBLE_DEADLOCK}
    assert "Lower their sms" in findings[0].sentence


def test_findings_become_an_error_only_where_asked_for():
    require_ok(())
    one = Finding(kind=FindingKind.RACE, ranks=(0,), calls=("a",), sentence="This races.")
    with pytest.raises(PlanError, match=r"This races\. \(and 1 more findings\)"):
        require_ok((one, one))


def test_sixteen_ranks_and_thousands_of_steps_are_checked_in_a_moment():
    one = layout_of(Collective(kind=K.ALL_REDUCE, nbytes=64 << 20, ranks=16))
    plan = fragment_of(one, algorithm="ring", transfer=Transfer(chunks=8))
    assert len(plan.steps().task) > 5000
    assert check(plan, layout=one) == ()


@given(pair=st.tuples(cases(most_ranks=4), cases(most_ranks=4)))
@settings(max_examples=60, deadline=None)
def test_collectives_on_one_lane_may_share_all_their_buffers(pair: tuple[Case, Case]):
    """The second enters when the first has left, on each rank: entries and exits are all that it takes."""
    parts = [
        fragment_of(
            case.layout,
            algorithm=case.algorithm,
            transfer=case.transfer,
            embedding=replace(case.embedding, name=f"call{number}"),
        )
        for number, case in enumerate(pair)
    ]
    assert check_hazards(merged(parts)) == ()


def test_collectives_on_two_lanes_may_not_share_staging():
    one = layout(K.REDUCE_SCATTER)
    parts = [
        fragment_of(one, embedding=Embedding(name=name, lane=name, windows=one.windows))
        for name in ("a", "b")
    ]
    findings = check_hazards(merged(parts))
    assert kinds(findings) == {FindingKind.RACE}
    apart = [
        fragment_of(replace(one, windows=windows), embedding=Embedding(name=name, lane=name, windows=windows))
        for name in ("a", "b")
        for windows in [
            Windows(output=Window(buffer=f"output.{name}"), staging=Window(buffer=f"staging.{name}"))
        ]
    ]
    assert check_hazards(merged(apart)) == ()


def test_different_issue_orders_on_one_lane_make_a_plan_that_cannot_be():
    one = layout(K.ALL_GATHER, ranks=2)
    parts = {
        name: fragment_of(one, embedding=Embedding(name=name, windows=one.windows)) for name in ("a", "b")
    }
    orders = {0: ("a", "b"), 1: ("b", "a")}
    tasks = [task for rank, names in orders.items() for name in names for task in parts[name].for_rank(rank)]
    with pytest.raises(PlanError, match=r"waits for itself: .*a\.(enter|exit|move).* waits for .*b\."):
        Plan(tasks=tuple(tasks))
