"""The timeline: every rank's streams and the state of every moment, ready for the page's script."""

from __future__ import annotations

from typing import Any

import numpy as np

from conccl.advise.analysis import Analysis, Drawing, RankAnalysis
from conccl.core.timeline import Activity, Ids, Times
from conccl.report.blocks import Block, Note, Notes, Section, TimelineChart
from conccl.report.names import shown
from conccl.report.runs import Run
from conccl.report.texts import headline_ranks

MOST_RANKS = 16
"""Ranks drawn for one run; the others are counted."""

LEGEND = (
    ("compute", "compute only"),
    ("communication", "communication only"),
    ("both", "both"),
    ("copy", "copy only"),
    ("idle", "idle"),
)

_LANES = (
    (Activity.COMPUTE, "compute"),
    (Activity.FUSED, "fused"),
    (Activity.COMMUNICATION, "communication"),
    (Activity.COPY, "copy"),
)
"""From top to bottom, with the kind that colours them."""

_RULE = (
    "The strip of each rank shows what every moment is; below it stand the rank's streams, split by what"
    " runs on them. A column of pixels shows the exact share of its time."
)


def timeline(runs: tuple[Run, ...], /) -> Section:
    """All runs under each other on one scale."""
    drawn = [run for run in runs if any(rank.drawing is not None for rank in run.analysis.ranks)]
    blocks: tuple[Block, ...] = (_chart(tuple(drawn)),) if drawn else (_nothing(),)
    return Section(
        id="timeline",
        title="Timeline",
        lead="What ran when, and what ran beside it.",
        blocks=blocks,
    )


def _nothing() -> Notes:
    return Notes(notes=(Note(level="info", title="No rank has GPU rows that could be drawn."),))


def _chart(runs: tuple[Run, ...]) -> TimelineChart:
    names = _Names()
    charts = [
        {"label": run.label, "ranks": [_rank(rank, shift, names) for rank, shift in _placed(run.analysis)]}
        for run in runs
    ]
    scale = " Both axes have the same scale and move together." if len(runs) > 1 else ""
    return TimelineChart(
        title="GPU streams",
        rule=_RULE + scale,
        legend=LEGEND,
        charts=tuple(run.label for run in runs),
        notes=_notes(runs),
        data={"names": names.texts, "charts": charts},
    )


class _Names:
    """The names of all ranks, each once."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        return list(self._ids)

    def ids(self, names: tuple[str, ...], used: Ids) -> list[int]:
        """For each row the place of its name among all names."""
        mine = np.zeros(len(names), dtype=np.int64)
        for name in np.unique(used):
            mine[name] = self._ids.setdefault(shown(names[name]), len(self._ids))
        return [int(place) for place in mine[used]]


def _placed(analysis: Analysis) -> list[tuple[RankAnalysis, int]]:
    """The ranks to draw, each with how far right it stands: by the shared clock, or from 0 without one."""
    ranks = [rank for rank in headline_ranks(analysis, most=MOST_RANKS) if rank.drawing is not None]
    if not _one_clock(analysis):
        return [(rank, 0) for rank in ranks]
    starts = [_start_ns(analysis, rank) for rank in ranks]
    return [(rank, start - min(starts)) for rank, start in zip(ranks, starts, strict=True)]


def _one_clock(analysis: Analysis) -> bool:
    """Whether collectives show the ranks' clocks to agree, or by how much they differ."""
    return analysis.clock is not None


def _start_ns(analysis: Analysis, rank: RankAnalysis) -> int:
    offset = analysis.clock.offsets_ns.get(rank.rank, 0) if analysis.clock else 0
    return (rank.drawing.origin_ns if rank.drawing else 0) - offset


def _notes(runs: tuple[Run, ...]) -> tuple[str, ...]:
    """What is drawn of each run; said once where it is the same of all."""
    notes = [_note(run) for run in runs]
    if len(set(notes)) == 1:
        return (notes[0],)
    return tuple(f"{run.label}: {note}" for run, note in zip(runs, notes, strict=True))


def _note(run: Run) -> str:
    analysis = run.analysis
    placed = _placed(analysis)
    windows = dict.fromkeys(shown(rank.drawing.window) for rank, _ in placed if rank.drawing)
    sentences = [f"Drawn: {'; '.join(windows)}."]
    left_out = sum(rank.drawing.left_out for rank, _ in placed if rank.drawing)
    if left_out:
        sentences.append(f"The {left_out:,} shortest rows are not drawn; the strips count them.")
    undrawn = len(analysis.ranks) - len(placed)
    if undrawn:
        sentences.append(f"{undrawn} ranks with less exposed communication are not drawn.")
    if len(placed) > 1:
        aligned = "by a shared clock" if _one_clock(analysis) else "at their starts: no clock is shared"
        sentences.append(f"Ranks are aligned {aligned}.")
    return " ".join(sentences)


def _rank(rank: RankAnalysis, shift_ns: int, names: _Names) -> dict[str, Any]:
    drawing = rank.drawing
    assert drawing is not None
    lengths = drawing.state_end_ns - drawing.state_start_ns
    return {
        "label": f"rank {rank.rank}",
        "shift": shift_ns,
        "span": drawing.span_ns,
        "lanes": _lanes(drawing, names),
        "states": {
            "lengths": [int(length) for length in lengths],
            "kinds": "".join(str(int(state)) for state in drawing.state),
        },
        "steps": [[shown(mark.name), mark.start_ns, mark.end_ns] for mark in drawing.marks],
    }


def _lanes(drawing: Drawing, names: _Names) -> list[dict[str, Any]]:
    lanes = []
    for activity, kind in _LANES:
        of_kind = drawing.activity == activity
        for lane in np.unique(drawing.lane_id[of_kind]):
            rows = np.flatnonzero(of_kind & (drawing.lane_id == lane))
            rows = rows[np.argsort(drawing.start_ns[rows], kind="stable")]
            lanes.append(
                {
                    "label": f"{kind} · {shown(drawing.lanes[lane]).removeprefix('stream ')}",
                    "kind": kind,
                    "steps": _deltas(drawing.start_ns[rows]),
                    "durations": [int(ns) for ns in drawing.end_ns[rows] - drawing.start_ns[rows]],
                    "names": names.ids(drawing.names, drawing.name_id[rows]),
                }
            )
    return lanes


def _deltas(times_ns: Times) -> list[int]:
    return [int(step) for step in np.diff(times_ns, prepend=0)]
