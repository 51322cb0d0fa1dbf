"""Traces made by hand for tests: a row a line, everything that is not said left unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conccl.core.timeline import Activity, Clock, Lane, Timeline
from conccl.traces.trace import CollectiveCall, Health, Step, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    name: str
    start: int
    end: int
    stream: str = "7"
    activity: Activity = Activity.COMPUTE
    step: int = -1
    launch: int = -1
    ctas: int = 1
    nbytes: int = 0
    collective: int = -1
    rule: int = 0


def made_timeline(rows: Sequence[Row], /, *, rank: int = 0) -> Timeline:
    rows = sorted(rows, key=lambda row: (row.start, row.end))
    names = tuple(dict.fromkeys(row.name for row in rows))
    streams = tuple(dict.fromkeys(row.stream for row in rows))

    def column(values: Sequence[int], kind: type[np.generic]) -> np.ndarray:
        return np.array(values, dtype=kind)

    name_id = column([names.index(row.name) for row in rows], np.int32)
    return Timeline(
        clock=Clock.TRACE,
        start_ns=column([row.start for row in rows], np.int64),
        end_ns=column([row.end for row in rows], np.int64),
        name_id=name_id,
        lane_id=column([streams.index(row.stream) for row in rows], np.int32),
        activity=column([row.activity for row in rows], np.int8),
        names=names,
        lanes=tuple(Lane(rank=rank, device="0", stream=stream) for stream in streams),
        columns={
            "step": column([row.step for row in rows], np.int32),
            "correlation": column(list(range(len(rows))), np.int64),
            "launch_ns": column([row.launch for row in rows], np.int64),
            "ctas": column([row.ctas for row in rows], np.int64),
            "threads": column([128] * len(rows), np.int32),
            "variant": name_id,
            "collective": column([row.collective for row in rows], np.int32),
            "nbytes": column([row.nbytes for row in rows], np.int64),
            "in_graph": np.zeros(len(rows), dtype=np.bool_),
            "rule": column([row.rule for row in rows], np.int16),
        },
    )


def made_trace(
    rows: Sequence[Row],
    /,
    *,
    rank: int = 0,
    world_size: int | None = None,
    steps: tuple[Step, ...] = (),
    collectives: tuple[CollectiveCall, ...] = (),
    path: str = "made.json",
) -> Trace:
    return Trace(
        path=path,
        rank=rank,
        rank_source="given",
        world_size=world_size,
        device_name=None,
        sm_count=None,
        timeline=made_timeline(rows, rank=rank),
        steps=steps,
        collectives=collectives,
        health=Health(rows=len(rows)),
    )
