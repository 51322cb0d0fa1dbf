"""Which rows and which time of a trace an analysis is about: all of it, or one step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conccl.core.errors import TraceError
from conccl.core.timeline import Mask, Timeline
from conccl.traces.breakdown import Sides, StepWindow, sides_of, split_own, step_windows
from conccl.traces.findings import TimeSplit
from conccl.traces.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class View:
    """A trace, and what of it is looked at."""

    trace: Trace
    every: Sides
    """When each kind of work of the whole trace runs."""
    chosen: StepWindow | None
    """The one step; None: the whole trace."""
    windows: tuple[StepWindow, ...]
    """All steps that are looked at."""
    rows: Mask
    """Which rows are looked at."""
    start_ns: int
    end_ns: int
    split: TimeSplit
    """Where the time goes."""

    @property
    def timeline(self) -> Timeline:
        """The trace's rows, all of them."""
        return self.trace.timeline

    @property
    def text(self) -> str:
        """Which rows and which time, for a reader."""
        if self.chosen is None:
            return "all GPU rows of the trace, from the first start to the last end"
        name = self.trace.steps[self.chosen.step].name
        return f"the GPU rows that {name} launched, from their first start to their last end"


def view_of(trace: Trace, /, *, step: int | None) -> View:
    """The whole trace, or the step of this number; `TraceError` where that launched nothing."""
    timeline = trace.timeline
    every = sides_of(timeline)
    windows = step_windows(timeline, every=every)
    if step is None:
        return View(
            trace=trace,
            every=every,
            chosen=None,
            windows=windows,
            rows=np.ones(len(timeline), dtype=np.bool_),
            start_ns=int(timeline.start_ns.min()) if len(timeline) else 0,
            end_ns=int(timeline.end_ns.max()) if len(timeline) else 0,
            split=split_own(every, span_ns=timeline.span_ns),
        )
    chosen = _chosen(trace, windows, step=step)
    return View(
        trace=trace,
        every=every,
        chosen=chosen,
        windows=(chosen,),
        rows=timeline.columns["step"] == chosen.step,
        start_ns=chosen.start_ns,
        end_ns=chosen.end_ns,
        split=chosen.split,
    )


def _chosen(trace: Trace, windows: tuple[StepWindow, ...], /, *, step: int) -> StepWindow:
    for window in windows:
        if trace.steps[window.step].number == step:
            return window
    numbers = ", ".join(str(trace.steps[window.step].number) for window in windows) or "none"
    raise TraceError(
        path=trace.path,
        problem=f"has no GPU work of step {step}",
        remedy=f"Its steps with GPU work are: {numbers}.",
    )
