"""Collectives of every kind, algorithm and choice, drawn by hypothesis; inputs for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from conccl.collectives.catalogue import algorithms
from conccl.collectives.elements import Bytes, encode
from conccl.collectives.layout import REDUCING, Layout, Place, Window, Windows, layout_of
from conccl.collectives.transfer import Direction, Embedding, Flags, Transfer
from conccl.core.ops import Collective, CollectiveKind, DType, ReduceOp
from conccl.core.plan import Engine, Launch

KINDS = tuple(CollectiveKind)
UNEVEN = frozenset(
    {
        CollectiveKind.ALL_GATHER,
        CollectiveKind.ALL_TO_ALL,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.GATHER,
        CollectiveKind.SCATTER,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A fragment to build."""

    layout: Layout
    algorithm: str
    transfer: Transfer
    embedding: Embedding

    def __str__(self) -> str:
        return f"{self.layout.kind} {self.algorithm} {self.layout.count}"


@st.composite
def layouts(
    draw: st.DrawFn, *, kinds: tuple[CollectiveKind, ...] = KINDS, most_ranks: int = 16, dtypes=tuple(DType)
) -> Layout:
    """A collective among 1 to 16 ranks, of odd sizes, even or not, anywhere in its buffers."""
    kind = draw(st.sampled_from(kinds))
    count = draw(st.integers(1, 2 if kind in (CollectiveKind.SEND, CollectiveKind.RECV) else most_ranks))
    dtype = draw(st.sampled_from(dtypes))
    reduce_op = draw(
        st.sampled_from([op for op in ReduceOp if not (dtype is DType.BOOL and op is ReduceOp.AVG)])
    )
    unit = dtype.nbytes if kind in REDUCING else 1
    elements = draw(st.integers(0, 5 * count) | st.integers(0, 2000))
    place = draw(st.sampled_from(Place))
    split, nbytes = None, elements * unit
    if kind in UNEVEN and draw(st.booleans()):
        block = st.integers(0, 40).map(lambda number: number * unit)
        row = st.lists(block, min_size=count, max_size=count)
        if kind is CollectiveKind.ALL_TO_ALL:
            split = draw(st.lists(row, min_size=count, max_size=count))
            if place is Place.IN_PLACE:
                split = [[split[min(i, j)][max(i, j)] for j in range(count)] for i in range(count)]
            nbytes = max(sum(one) for one in split)
        else:
            split = draw(row)
            nbytes = sum(split)
    elif kind is CollectiveKind.ALL_TO_ALL and place is Place.IN_PLACE:
        nbytes = elements // count * count * dtype.nbytes
    ranks = tuple(draw(st.permutations(range(count + 2))))[:count]
    offsets = [draw(st.sampled_from([0, 1, 16, 4099])) for _ in range(4)]
    names = ("input", "output", "staging", "host_staging")
    windows = Windows(**{n: Window(buffer=n, offset=at) for n, at in zip(names, offsets, strict=True)})
    return layout_of(
        Collective(kind=kind, nbytes=nbytes, ranks=count, dtype=dtype, reduce_op=reduce_op),
        ranks=ranks,
        root=draw(st.sampled_from(ranks)),
        split_nbytes=split,
        place=place,
        windows=windows,
    )


@st.composite
def cases(draw: st.DrawFn, **limits) -> Case:
    """A layout, an algorithm that can carry it out, and choices of every kind."""
    layout = draw(layouts(**limits))
    sizes = [size for size in range(1, layout.count + 1) if layout.count % size == 0]
    transfer = Transfer(
        engine=draw(st.sampled_from(Engine)),
        direction=draw(st.sampled_from(Direction)),
        engines=draw(st.none() | st.integers(1, 4)),
        chunks=draw(st.sampled_from([1, 1, 2, 3, 7])),
        sms=draw(st.sampled_from([1, 4, 16])),
        flags=draw(st.sampled_from(Flags)),
        launch=draw(st.sampled_from(Launch)),
        gpus_per_node=draw(st.sampled_from(sizes)),
        host_staging_nbytes=draw(st.none() | st.sampled_from([32 * layout.count, 4096])),
    )
    able = [one.name for one in algorithms(layout.kind).values() if one.refusal(layout, transfer) is None]
    return Case(
        layout=layout,
        algorithm=draw(st.sampled_from(able)),
        transfer=transfer,
        embedding=Embedding(windows=layout.windows, name=draw(st.sampled_from(["", "layer7"]))),
    )


def inputs_of(layout: Layout, /, *, seed: int, exact: bool = False) -> list[Bytes]:
    """What each position gives. ``exact``: sums and products stay exact in the element type, in any order."""
    source = np.random.default_rng(seed)
    dtype = layout.collective.dtype
    given = []
    for position in range(layout.count):
        nbytes = layout.input_nbytes(position)
        if layout.kind not in REDUCING or dtype.nbytes == 0:
            given.append(source.integers(0, 256, nbytes, dtype=np.uint8))
            continue
        count = nbytes // dtype.nbytes
        if dtype is DType.BOOL:
            values = source.integers(0, 2, count).astype(np.bool_)
        elif exact and layout.collective.reduce_op is ReduceOp.PRODUCT:
            values = source.choice([-1.0, 1.0], count)
        elif exact:
            values = source.integers(-1, 1, count, endpoint=True).astype(np.float64)
        else:
            values = source.normal(size=count)
        if dtype is DType.UINT8:
            values = np.abs(values)
        given.append(encode(values, dtype))
    return given
