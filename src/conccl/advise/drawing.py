"""Cuts out of a rank what a page can draw: a representative step, or everything where that is little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.advise.analysis import Drawing, Mark
from conccl.core.timeline import Timeline
from conccl.traces.breakdown import Sides, StepWindow
from conccl.traces.states import states_of
from conccl.traces.trace import Step

ROWS_DRAWN = 8_000
"""Rows of a rank that are drawn at most: a page of eight ranks stays at a few MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    text: str
    start_ns: int
    end_ns: int


def draw(
    timeline: Timeline,
    /,
    *,
    every: Sides,
    windows: Sequence[StepWindow],
    steps: Sequence[Step],
    chosen: StepWindow | None,
    keep: int = ROWS_DRAWN,
) -> Drawing | None:
    """The window that was chosen, else everything, else the step of median length.

    None without rows, or where none may be drawn.
    """
    if not len(timeline) or keep < 1:
        return None
    window = _window(timeline, windows=windows, steps=steps, chosen=chosen, keep=keep)
    drawn = _inside(timeline, window)
    names, name_id = _used(timeline.name_id[drawn])
    lanes, lane_id = _used(timeline.lane_id[drawn])
    states = states_of(every, start_ns=window.start_ns, end_ns=window.end_ns)
    return Drawing(
        window=window.text,
        origin_ns=window.start_ns,
        span_ns=window.end_ns - window.start_ns,
        names=tuple(timeline.names[name] for name in names),
        lanes=tuple(f"stream {timeline.lanes[lane].stream}" for lane in lanes),
        start_ns=np.maximum(timeline.start_ns[drawn], window.start_ns) - window.start_ns,
        end_ns=np.minimum(timeline.end_ns[drawn], window.end_ns) - window.start_ns,
        name_id=name_id.astype(np.int32),
        lane_id=lane_id.astype(np.int32),
        activity=timeline.activity[drawn],
        state_start_ns=states.start_ns - window.start_ns,
        state_end_ns=states.end_ns - window.start_ns,
        state=states.state,
        marks=_marks(windows, steps=steps, window=window),
        left_out=0,
    )


def _window(
    timeline: Timeline,
    /,
    *,
    windows: Sequence[StepWindow],
    steps: Sequence[Step],
    chosen: StepWindow | None,
    keep: int,
) -> _Window:
    everything = _Window(
        text="the whole trace", start_ns=int(timeline.start_ns.min()), end_ns=int(timeline.end_ns.max())
    )
    if chosen is None and len(timeline) <= keep:
        return everything
    if chosen is None and not windows:
        return _shortened(timeline, everything, keep=keep)
    if chosen is not None:
        step, why = chosen, ""
    else:
        by_length = sorted(windows, key=lambda window: window.split.span_ns)
        step, why = by_length[len(by_length) // 2], ", the step of median length"
    text = f"{steps[step.step].name}{why}"
    return _shortened(timeline, _Window(text=text, start_ns=step.start_ns, end_ns=step.end_ns), keep=keep)


def _shortened(timeline: Timeline, window: _Window, /, *, keep: int) -> _Window:
    """The window, or its middle where it holds more rows than may be kept."""
    rows = _inside(timeline, window)
    if len(rows) <= keep:
        return window
    first = len(rows) // 2 - keep // 2
    middle = rows[first : first + keep]
    start_ns, end_ns = int(timeline.start_ns[middle[0]]), int(timeline.start_ns[middle[-1]])
    # Rows that began earlier and are still running belong to it too; of those there are as many as streams.
    return _Window(text=f"the middle of {window.text}", start_ns=start_ns, end_ns=max(end_ns, start_ns + 1))


def _inside(timeline: Timeline, window: _Window, /) -> npt.NDArray[np.intp]:
    return np.flatnonzero((timeline.end_ns > window.start_ns) & (timeline.start_ns < window.end_ns))


def _used(ids: npt.NDArray[np.int32], /) -> tuple[list[int], npt.NDArray[np.intp]]:
    """The ids that occur, and each entry as a place among them."""
    used, places = np.unique(ids, return_inverse=True)
    return used.tolist(), places


def _marks(windows: Sequence[StepWindow], /, *, steps: Sequence[Step], window: _Window) -> tuple[Mark, ...]:
    """The steps' windows, as far as they are drawn."""
    return tuple(
        Mark(
            name=steps[step.step].name,
            start_ns=max(step.start_ns, window.start_ns) - window.start_ns,
            end_ns=min(step.end_ns, window.end_ns) - window.start_ns,
        )
        for step in windows
        if step.end_ns > window.start_ns and step.start_ns < window.end_ns
    )
