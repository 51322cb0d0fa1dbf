"""Hypothesis strategies for ops, tasks and plans: every kind of op, every field of a task."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing

from hypothesis import strategies as st

from conccl.core.errors import InputError
from conccl.core.ops import (
    Cold,
    Convolution,
    DType,
    Move,
    Multicast,
    Op,
    Pooling,
    Reduce,
    ReduceOp,
    Region,
    Swap,
    Warm,
)
from conccl.core.plan import Buffer, Dependency, Engine, Launch, Part, Plan, Side, Task

OP_KINDS = typing.get_args(Op)

names = st.text(alphabet="abcxyz01._-é", min_size=1, max_size=6)
small = st.integers(1, 1 << 20)


@st.composite
def regions(draw: st.DrawFn, *, nbytes: int) -> Region:
    """A region of this many bytes."""
    return Region(
        rank=draw(st.integers(0, 7)), buffer=draw(names), offset=draw(st.integers(0, 1 << 40)), nbytes=nbytes
    )


@st.composite
def _reduces(draw: st.DrawFn) -> Reduce:
    dtype = draw(st.sampled_from(DType))
    nbytes = dtype.nbytes * draw(st.integers(0, 1000))
    reduce_op = draw(st.sampled_from(ReduceOp))
    return Reduce(
        sources=tuple(draw(st.lists(regions(nbytes=nbytes), min_size=1, max_size=4))),
        destination=draw(regions(nbytes=nbytes)),
        dtype=dtype,
        reduce_op=reduce_op,
        divisor=draw(st.none() | st.integers(1, 16)) if reduce_op is ReduceOp.AVG else None,
    )


@st.composite
def _windows(draw: st.DrawFn, kind: type) -> object:
    """A convolution or pooling whose shapes agree."""
    rank = draw(st.integers(1, 3))
    shape = st.lists(st.integers(1, 3), min_size=rank, max_size=rank).map(tuple)
    given: dict[str, object] = {
        "in_size": draw(st.lists(st.integers(8, 16), min_size=rank, max_size=rank).map(tuple)),
        "out_size": draw(shape),
        "kernel_size": draw(shape),
        "stride": draw(shape),
        "padding": draw(shape),
        "dilation": draw(shape),
        "groups": 1,
    }
    return _build(draw, kind, given)


def _build(draw: st.DrawFn, kind: type, given: dict[str, object]) -> object:
    hints = typing.get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    values = {f.name: given[f.name] if f.name in given else draw(_values(hints[f.name])) for f in fields}
    return kind(**values)


def _values(hint: typing.Any) -> st.SearchStrategy[typing.Any]:
    if isinstance(hint, types.UnionType):
        return st.one_of([_values(one) for one in typing.get_args(hint)])
    if hint is type(None):
        return st.none()
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return st.sampled_from(hint)
    if typing.get_origin(hint) is tuple:
        return st.lists(_values(typing.get_args(hint)[0]), min_size=1, max_size=4).map(tuple)
    finite = st.floats(0, 1e18, allow_nan=False)
    return {bool: st.booleans(), int: small, float: finite, str: names}[hint]


@st.composite
def ops_of(draw: st.DrawFn, kind: type) -> Op:
    """An op of this kind, drawn from the types of its fields."""
    if kind is Reduce:
        return draw(_reduces())
    if kind in (Move, Swap, Multicast):
        nbytes = draw(st.integers(0, 1 << 20))
        one, other = draw(regions(nbytes=nbytes)), draw(regions(nbytes=nbytes))
        if kind is Move:
            return Move(source=one, destination=other)
        return (
            Swap(first=one, second=other)
            if kind is Swap
            else Multicast(source=one, destinations=(other, one))
        )
    if kind in (Convolution, Pooling):
        return draw(_windows(kind))
    if kind is Warm:
        cold = draw(st.sampled_from(typing.get_args(Cold)).flatmap(ops_of))
        return Warm(op=cold, share=draw(st.floats(0, 1)))
    for _ in range(20):
        try:
            return _build(draw, kind, {})
        except InputError:  # fields that have to agree with each other: draw again
            continue
    raise AssertionError(f"no {kind.__name__} could be drawn; give it a strategy of its own")


ops = st.sampled_from(OP_KINDS).flatmap(ops_of)


@st.composite
def plans(draw: st.DrawFn, *, max_tasks: int = 8) -> Plan:
    """A plan that can run: dependencies name earlier tasks."""
    partitions = draw(st.dictionaries(names, st.integers(1, 128), max_size=2))
    tasks: list[Task] = []
    for number in range(draw(st.integers(0, max_tasks))):
        parts = tuple(Part(start=4 * k, stop=4 * k + 4) for k in range(draw(st.sampled_from([0, 1, 2, 5]))))
        after = draw(st.lists(_dependencies(tasks, own_parts=len(parts)), max_size=3)) if tasks else []
        tasks.append(
            Task(
                id=f"{draw(names)}{number}",
                op=draw(ops),
                rank=draw(st.integers(0, 3)),
                lane=draw(st.sampled_from(["compute", "communication.0", "x"])),
                side=draw(st.sampled_from(Side)),
                engine=draw(st.sampled_from(Engine)),
                launch=draw(st.sampled_from(Launch)),
                priority=draw(st.integers(-5, 0)),
                sms=draw(st.none() | st.integers(1, 132)),
                ctas_per_sm=draw(st.none() | st.just(1)),
                partition=draw(st.none() | st.sampled_from(sorted(partitions))) if partitions else None,
                after=tuple(after),
                parts=parts,
            )
        )
    buffers = [Buffer(rank=rank, name="output", nbytes=64) for rank in range(draw(st.integers(0, 3)))]
    return Plan(tasks=tuple(tasks), partitions=partitions, buffers=tuple(buffers), label=draw(names))


@st.composite
def _dependencies(draw: st.DrawFn, tasks: list[Task], *, own_parts: int) -> Dependency:
    other = draw(st.sampled_from(tasks))
    part = draw(st.none() | st.integers(0, max(0, len(other.parts) - 1)))
    needed_by = draw(st.none() | st.integers(0, max(0, own_parts - 1)))
    return Dependency(task=other.id, part=part, needed_by=needed_by)
