"""Predicted isolated times of a trace's rows, and what it is to predict them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from conccl.core.timeline import Ids, Mask
from conccl.traces.integrals import Numbers
from conccl.traces.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Predictions:
    """Isolated times that rest on no measurement; parallel arrays, one entry a row."""

    alone_ns: Numbers
    """NaN: not predicted."""
    uncertainty: Numbers
    """Relative error to expect; NaN where nothing is predicted."""
    family: Ids
    """Index into ``families``: what errs alike; -1 where nothing is predicted."""
    families: tuple[str, ...]
    """Whose constants a kernel is priced by: gemm, contiguous, strided, a collective's kind, copy ..."""
    device: str | None
    """The catalogue's name of what the trace was recorded on; None: not known."""
    reason: str = ""
    """Why nothing could be predicted."""


Predict = Callable[[Trace, Mask], Predictions]
"""Predicts the marked rows of a trace. Must pickle."""
