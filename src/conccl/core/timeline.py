"""What happened: the common currency of simulated runs, measured runs and profiler traces.

A timeline is columnar: one numpy array a field, one row an event, so that a million events cost arrays and
not objects. A `Span` is a view of one row. Names and lanes are tables that the rows index.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from conccl.core.errors import InputError

Times = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
Column = npt.NDArray[Any]


class Clock(enum.StrEnum):
    """Whose clock the times come from."""

    SIMULATED = "sim"
    GPU = "gpu"
    TRACE = "trace"


class Activity(enum.IntEnum):
    """What a row's time counts as."""

    COMPUTE = 0
    COMMUNICATION = 1
    FUSED = 2
    """One kernel that computes and communicates; counts as both."""
    COPY = 3
    """A copy that is not communication, or a memset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Where rows run one after the other: a stream of a GPU of a rank."""

    rank: int
    device: str
    stream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One row of a timeline."""

    name: str
    lane: Lane
    activity: Activity
    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        """From start to end."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Rows sorted by start (ties by end), with the tables that they index."""

    clock: Clock
    start_ns: Times
    end_ns: Times
    name_id: Ids
    lane_id: Ids
    activity: npt.NDArray[np.int8]
    names: tuple[str, ...]
    lanes: tuple[Lane, ...]
    columns: Mapping[str, Column] = field(default_factory=dict)
    """Further arrays, one entry a row: what only some sources know (grid, correlation, step, ...)."""

    def __post_init__(self) -> None:
        lengths = {len(array) for array in (self.end_ns, self.name_id, self.lane_id, self.activity)}
        lengths.update(len(array) for array in self.columns.values())
        if lengths - {len(self.start_ns)}:
            raise InputError(f"columns of a timeline must be equally long; these are {sorted(lengths)} long.")
        if np.any(self.end_ns < self.start_ns):
            raise InputError("a timeline row ends before it starts.")

    def __len__(self) -> int:
        return len(self.start_ns)

    def __getitem__(self, row: int) -> Span:
        return Span(
            name=self.names[self.name_id[row]],
            lane=self.lanes[self.lane_id[row]],
            activity=Activity(int(self.activity[row])),
            start_ns=int(self.start_ns[row]),
            end_ns=int(self.end_ns[row]),
        )

    def __iter__(self) -> Iterator[Span]:
        return (self[row] for row in range(len(self)))

    @property
    def duration_ns(self) -> Times:
        """Each row's duration."""
        return self.end_ns - self.start_ns

    @property
    def span_ns(self) -> int:
        """From the first start to the last end; 0 where there are no rows."""
        return int(self.end_ns.max() - self.start_ns.min()) if len(self) else 0

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have rows, in order."""
        used = np.unique(self.lane_id)
        return tuple(sorted({self.lanes[lane].rank for lane in used}))

    def of_rank(self, rank: int, /) -> Timeline:
        """The rows of one rank."""
        ranks = np.array([lane.rank for lane in self.lanes], dtype=np.int64)
        return self.where(ranks[self.lane_id] == rank)

    def where(self, mask: Mask, /) -> Timeline:
        """The rows for which the mask holds, in the same order."""
        return self._taking(mask)

    def _taking(self, rows: Mask | npt.NDArray[np.intp]) -> Timeline:
        return Timeline(
            clock=self.clock,
            start_ns=self.start_ns[rows],
            end_ns=self.end_ns[rows],
            name_id=self.name_id[rows],
            lane_id=self.lane_id[rows],
            activity=self.activity[rows],
            names=self.names,
            lanes=self.lanes,
            columns={key: column[rows] for key, column in self.columns.items()},
        )

    def sorted(self) -> Timeline:
        """The same rows by start, then end; equal rows keep their order."""
        return self._taking(np.lexsort((self.end_ns, self.start_ns)))


def timeline_of(spans: Iterable[Span], /, *, clock: Clock) -> Timeline:
    """A sorted timeline from spans: for simulations and tests; readers fill the columns themselves."""
    rows: Sequence[Span] = list(spans)
    names = tuple(dict.fromkeys(span.name for span in rows))
    lanes = tuple(dict.fromkeys(span.lane for span in rows))
    name_ids = {name: index for index, name in enumerate(names)}
    lane_ids = {lane: index for index, lane in enumerate(lanes)}
    return Timeline(
        clock=clock,
        start_ns=np.array([span.start_ns for span in rows], dtype=np.int64),
        end_ns=np.array([span.end_ns for span in rows], dtype=np.int64),
        name_id=np.array([name_ids[span.name] for span in rows], dtype=np.int32),
        lane_id=np.array([lane_ids[span.lane] for span in rows], dtype=np.int32),
        activity=np.array([span.activity for span in rows], dtype=np.int8),
        names=names,
        lanes=lanes,
    ).sorted()
