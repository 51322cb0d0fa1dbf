"""An analysis as a trace for Perfetto: the rows that were drawn, with overlap lanes and steps above them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from conccl.advise.analysis import Analysis, Drawing, RankAnalysis
from conccl.core.timeline import Clock, Lane, Timeline
from conccl.traces.chrome import Track, state_tracks, step_track, write_chrome


def write_perfetto(analysis: Analysis, /, *, path: str | Path) -> None:
    """Write every rank's drawn window (.json, or .json.gz compressed); ranks stand on their common clock.

    Raises `OutputError` where the path cannot be written.
    """
    drawn = [(rank, rank.drawing) for rank in analysis.ranks if rank.drawing is not None]
    starts = {rank.rank: drawing.origin_ns - _offset(analysis, rank) for rank, drawing in drawn}
    tracks = [track for rank, drawing in drawn for track in _tracks(rank, drawing, starts[rank.rank])]
    write_chrome(_timeline(drawn, starts), path=path, tracks=tracks)


def _offset(analysis: Analysis, rank: RankAnalysis) -> int:
    return 0 if analysis.clock is None else analysis.clock.offsets_ns.get(rank.rank, 0)


def _tracks(rank: RankAnalysis, drawing: Drawing, start_ns: int) -> Iterator[Track]:
    yield from state_tracks(
        rank=rank.rank,
        state=drawing.state,
        start_ns=drawing.state_start_ns + start_ns,
        end_ns=drawing.state_end_ns + start_ns,
    )
    if drawing.marks:
        yield step_track(
            rank=rank.rank,
            names=[mark.name for mark in drawing.marks],
            start_ns=np.array([mark.start_ns for mark in drawing.marks], dtype=np.int64) + start_ns,
            end_ns=np.array([mark.end_ns for mark in drawing.marks], dtype=np.int64) + start_ns,
        )


def _timeline(drawn: list[tuple[RankAnalysis, Drawing]], starts: dict[int, int]) -> Timeline:
    """The drawn rows of all ranks as one timeline."""
    names: dict[str, int] = {}
    lanes: dict[Lane, int] = {}
    columns: dict[str, list[np.ndarray[tuple[int], np.dtype[np.int64]]]] = {
        key: [np.zeros(0, dtype=np.int64)] for key in ("start", "end", "name", "lane", "activity")
    }
    for rank, drawing in drawn:
        name_ids = [names.setdefault(name, len(names)) for name in drawing.names]
        lane_ids = [
            lanes.setdefault(
                Lane(rank=rank.rank, device=_device(rank), stream=label.removeprefix("stream ")), len(lanes)
            )
            for label in drawing.lanes
        ]
        columns["start"].append(drawing.start_ns + starts[rank.rank])
        columns["end"].append(drawing.end_ns + starts[rank.rank])
        columns["name"].append(np.array(name_ids, dtype=np.int64)[drawing.name_id])
        columns["lane"].append(np.array(lane_ids, dtype=np.int64)[drawing.lane_id])
        columns["activity"].append(drawing.activity.astype(np.int64))
    joined = {key: np.concatenate(parts) for key, parts in columns.items()}
    return Timeline(
        clock=Clock.TRACE,
        start_ns=joined["start"],
        end_ns=joined["end"],
        name_id=joined["name"].astype(np.int32),
        lane_id=joined["lane"].astype(np.int32),
        activity=joined["activity"].astype(np.int8),
        names=tuple(names),
        lanes=tuple(lanes),
    ).sorted()


def _device(rank: RankAnalysis) -> str:
    return rank.device_name or "GPU"
