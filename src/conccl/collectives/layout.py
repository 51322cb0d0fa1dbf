"""Which bytes of which buffer each rank of a collective gives and gets.

Ranks are counted by their position in the group here (0 to count - 1); regions name the rank itself. The
bytes of a collective are counted as nccl-tests does (`metrics.bus_factor`).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from conccl.core.errors import InputError
from conccl.core.ops import Collective, CollectiveKind, DType, ReduceOp, Region

REDUCING = frozenset({CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.REDUCE})
ROOTED = frozenset(
    {CollectiveKind.BROADCAST, CollectiveKind.REDUCE, CollectiveKind.GATHER, CollectiveKind.SCATTER}
)
_WHOLE = frozenset({CollectiveKind.ALL_REDUCE, CollectiveKind.BROADCAST, CollectiveKind.REDUCE})
_POINT_TO_POINT = frozenset({CollectiveKind.SEND, CollectiveKind.RECV})

ALIGNMENT = 128
"""Pieces of large messages begin at multiples of this: a cache line of NVIDIA's and AMD's GPUs."""


class Place(enum.StrEnum):
    """Whether a rank's input lies inside its output."""

    OUT_OF_PLACE = "out_of_place"
    IN_PLACE = "in_place"
    """As NCCL has it: one buffer, the larger of the two (``output``; ``input`` of reduce_scatter and of a
    scatter's root), in which a rank's own block lies where it belongs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Where in which buffer a collective's bytes begin."""

    buffer: str
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The buffers of every rank that a collective uses."""

    input: Window = field(default_factory=lambda: Window(buffer="input"))
    output: Window = field(default_factory=lambda: Window(buffer="output"))
    staging: Window = field(default_factory=lambda: Window(buffer="staging"))
    """On the device; peers write into it."""
    host_staging: Window = field(default_factory=lambda: Window(buffer="host_staging"))
    """In host memory that all ranks of the node can reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a collective has to bring where; made by `layout_of`."""

    collective: Collective
    ranks: tuple[int, ...]
    root: int
    """Position of the root; of the sender, in send and recv."""
    place: Place
    windows: Windows
    sizes: tuple[tuple[int, ...], ...]
    """[i][j]: bytes of block j in the input of position i. A rank's input and the outputs are made of blocks:
    all_to_all has one for each pair, the others one for each position, the same in every row."""
    starts: tuple[tuple[int, ...], ...]
    """[i][j]: where block j begins in an input that holds all blocks; one entry more, the end."""
    arrivals: tuple[tuple[int, ...], ...]
    """[i][j]: where the block that comes from j begins in the output of i; one entry more, the end."""

    @property
    def kind(self) -> CollectiveKind:
        """What the collective does."""
        return self.collective.kind

    @property
    def count(self) -> int:
        """How many ranks take part."""
        return len(self.ranks)

    @property
    def receiver(self) -> int:
        """Position of the receiver, in send and recv."""
        return self.count - 1 - self.root

    @property
    def unit(self) -> int:
        """Bytes that must not be cut: an element where elements are reduced."""
        return self.collective.dtype.nbytes if self.kind in REDUCING else 1

    def input_nbytes(self, position: int, /) -> int:
        """Bytes that this position gives."""
        match self.kind:
            case CollectiveKind.ALL_GATHER | CollectiveKind.GATHER:
                return self.sizes[position][position]
            case (
                CollectiveKind.BROADCAST | CollectiveKind.SCATTER | CollectiveKind.SEND | CollectiveKind.RECV
            ):
                return self.starts[position][-1] if position == self.root else 0
            case _:
                return self.starts[position][-1]

    def output_nbytes(self, position: int, /) -> int:
        """Bytes that this position gets."""
        match self.kind:
            case CollectiveKind.REDUCE_SCATTER | CollectiveKind.SCATTER:
                return self.sizes[position][position]
            case CollectiveKind.GATHER | CollectiveKind.REDUCE:
                return self.starts[position][-1] if position == self.root else 0
            case CollectiveKind.SEND | CollectiveKind.RECV:
                return self.starts[position][-1] if position == self.receiver else 0
            case CollectiveKind.ALL_TO_ALL:
                return self.arrivals[position][-1]
            case _:
                return self.starts[position][-1]

    def input(self, position: int, start: int, nbytes: int, /) -> Region:
        """Bytes [start, start + nbytes) of what this position gives."""
        window, base = self._input_window(position)
        return Region(
            rank=self.ranks[position],
            buffer=window.buffer,
            offset=window.offset + base + start,
            nbytes=nbytes,
        )

    def output(self, position: int, start: int, nbytes: int, /) -> Region:
        """Bytes [start, start + nbytes) of what this position gets."""
        window, base = self._output_window(position)
        return Region(
            rank=self.ranks[position],
            buffer=window.buffer,
            offset=window.offset + base + start,
            nbytes=nbytes,
        )

    def whole_input(self, position: int, /) -> Region:
        """All bytes that this position gives."""
        return self.input(position, 0, self.input_nbytes(position))

    def whole_output(self, position: int, /) -> Region:
        """All bytes that this position gets."""
        return self.output(position, 0, self.output_nbytes(position))

    def given(self, position: int, block: int, /) -> Region:
        """Block ``block`` of this position's input; where the input is one block, that one."""
        if self.kind in (CollectiveKind.ALL_GATHER, CollectiveKind.GATHER):
            return self.input(position, 0, self.sizes[position][position])
        return self.input(position, self.starts[position][block], self.sizes[position][block])

    def got(self, position: int, block: int, /) -> Region:
        """Block ``block`` of this position's output (from that position); where it is one block, that one."""
        if self.kind in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.SCATTER):
            return self.output(position, 0, self.sizes[position][position])
        return self.output(
            position, self.arrivals[position][block], self.sizes[block][self._column(position, block)]
        )

    def _column(self, position: int, block: int) -> int:
        return position if self.kind is CollectiveKind.ALL_TO_ALL else block

    def _input_window(self, position: int) -> tuple[Window, int]:
        if self.place is Place.OUT_OF_PLACE or self.kind in (
            CollectiveKind.REDUCE_SCATTER,
            CollectiveKind.SCATTER,
        ):
            return self.windows.input, 0
        if self.kind in (CollectiveKind.GATHER, CollectiveKind.REDUCE) and position != self.root:
            return self.windows.input, 0
        gathering = self.kind in (CollectiveKind.ALL_GATHER, CollectiveKind.GATHER)
        return self.windows.output, self.starts[position][position] if gathering else 0

    def _output_window(self, position: int) -> tuple[Window, int]:
        whole = self.kind is CollectiveKind.REDUCE_SCATTER
        if self.place is Place.IN_PLACE and (
            whole or (self.kind is CollectiveKind.SCATTER and position == self.root)
        ):
            return self.windows.input, self.starts[position][position]
        return self.windows.output, 0


def layout_of(
    collective: Collective,
    /,
    *,
    ranks: Sequence[int] | None = None,
    root: int | None = None,
    split_nbytes: Sequence[int] | Sequence[Sequence[int]] | None = None,
    place: Place = Place.OUT_OF_PLACE,
    windows: Windows | None = None,
) -> Layout:
    """What this collective has to bring where, checked.

    ``ranks`` are the group's ranks in order (None: 0 and up), ``root`` is one of them (None: the first); in
    send and recv it is the sender. ``split_nbytes`` gives uneven blocks: bytes for each rank, or for
    all_to_all a row for each rank with its bytes for each other. Without it, blocks are equal where the ranks
    divide the elements, and as equal as elements allow where they do not.
    """
    group = tuple(range(collective.ranks)) if ranks is None else tuple(ranks)
    _check_group(collective, group)
    root = group[0] if root is None else root
    if root not in group:
        raise InputError(f"root {root} is not in the group; its ranks are {', '.join(map(str, group))}.")
    _check_elements(collective)
    sizes = _sizes(collective, len(group), split_nbytes)
    to_all = collective.kind is CollectiveKind.ALL_TO_ALL
    if (
        to_all
        and place is Place.IN_PLACE
        and any(row != column for row, column in zip(sizes, zip(*sizes, strict=True), strict=True))
    ):
        raise InputError(
            "an all_to_all in place needs as many bytes from each rank as it sends to it (a symmetric"
            " split_nbytes). Run it out of place."
        )
    arriving = tuple(zip(*sizes, strict=True)) if to_all else sizes
    return Layout(
        collective=collective,
        ranks=group,
        root=group.index(root),
        place=place,
        windows=windows or Windows(),
        sizes=sizes,
        starts=tuple((0, *accumulate(row)) for row in sizes),
        arrivals=tuple((0, *accumulate(row)) for row in arriving),
    )


def part_of(region: Region, start: int, nbytes: int, /) -> Region:
    """Bytes [start, start + nbytes) of a region."""
    return Region(rank=region.rank, buffer=region.buffer, offset=region.offset + start, nbytes=nbytes)


def divide(nbytes: int, pieces: int, unit: int, /) -> list[int]:
    """Where each of so many nearly equal pieces begins, and the end; pieces may be empty.

    Large pieces begin at multiples of `ALIGNMENT`, small ones at multiples of ``unit``.
    """
    return _bounds(nbytes, pieces, ALIGNMENT if nbytes >= pieces * 8 * ALIGNMENT else unit)


def _bounds(nbytes: int, pieces: int, grain: int) -> list[int]:
    grains = -(-nbytes // grain)
    return [min(nbytes, grains * k // pieces * grain) for k in range(pieces + 1)]


def _check_group(collective: Collective, group: tuple[int, ...]) -> None:
    if len(group) != collective.ranks:
        raise InputError(f"{len(group)} ranks were given for a collective among {collective.ranks}.")
    if len(set(group)) < len(group) or min(group) < 0:
        raise InputError(f"ranks {group}: each must be 0 or more and stand there once.")
    if collective.kind in _POINT_TO_POINT and len(group) > 2:
        raise InputError(f"{collective.kind} is between 2 ranks, not {len(group)}.")


def _check_elements(collective: Collective) -> None:
    if collective.kind not in REDUCING:
        return
    if collective.nbytes % collective.dtype.nbytes:
        raise InputError(
            f"{collective.kind} of {collective.nbytes} bytes is no whole number of {collective.dtype}"
            " elements. Give a multiple of their size."
        )
    if collective.dtype is DType.BOOL and collective.reduce_op is ReduceOp.AVG:
        raise InputError("booleans have no average. Use sum or max (or), product or min (and).")


def _sizes(
    collective: Collective, count: int, split: Sequence[int] | Sequence[Sequence[int]] | None
) -> tuple[tuple[int, ...], ...]:
    if collective.kind is CollectiveKind.BARRIER:
        return ((0,) * count,) * count
    unit = collective.dtype.nbytes if collective.nbytes % collective.dtype.nbytes == 0 else 1
    if split is None:
        # A block that a rank gets must be exactly its share; pieces of what all get are cut as suits memory.
        cut = divide if collective.kind in _WHOLE else _bounds
        bounds = cut(collective.nbytes, count, unit)
        even = tuple(stop - start for start, stop in pairwise(bounds))
        return (even,) * count
    rows = tuple(tuple(row) if isinstance(row, Sequence) else (row,) for row in split)
    if collective.kind is CollectiveKind.ALL_TO_ALL:
        return _checked(rows, count, count, 1)
    column = _checked(rows, count, 1, collective.dtype.nbytes if collective.kind in REDUCING else 1)
    even = tuple(row[0] for row in column)
    if sum(even) != collective.nbytes:
        raise InputError(f"split_nbytes sums to {sum(even)} bytes; the collective has {collective.nbytes}.")
    return (even,) * count


def _checked(
    rows: tuple[tuple[int, ...], ...], count: int, columns: int, unit: int
) -> tuple[tuple[int, ...], ...]:
    if len(rows) != count or any(len(row) != columns for row in rows):
        raise InputError(
            f"split_nbytes has {len(rows)} rows of {sorted({len(row) for row in rows})} entries;"
            f" it needs {count} of {columns}."
        )
    bad = [size for row in rows for size in row if size < 0 or size % unit]
    if bad:
        raise InputError(
            f"split_nbytes has a block of {bad[0]} bytes; each must be 0 or more, whole elements."
        )
    return rows
