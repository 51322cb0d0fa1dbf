"""Advice: what to do about what was found, the most costly first."""

from __future__ import annotations

from conccl.report.blocks import Note, Notes, Section
from conccl.report.runs import Run
from conccl.report.texts import time_text

MOST_NOTES = 20


def advice(runs: tuple[Run, ...], /) -> Section:
    """What to do, with what it costs not to."""
    notes = [
        Note(
            level="advice",
            title=entry.title,
            text=entry.detail,
            cost="" if entry.cost_ns is None else f"costs {time_text(entry.cost_ns)}",
            run=run.label,
        )
        for run in runs
        for entry in run.analysis.advice
    ]
    if not notes:
        notes = [Note(level="info", title="Nothing was found that is worth changing.")]
    return Section(
        id="advice",
        title="What to do",
        lead="For each run, by what a finding costs." if len(runs) > 1 else "By what each finding costs.",
        blocks=(Notes(notes=tuple(notes[:MOST_NOTES])),),
    )
