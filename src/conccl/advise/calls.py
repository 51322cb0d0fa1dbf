"""The communication kernels of a rank as matching over ranks needs them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from conccl.advise.view import View
from conccl.core.timeline import Activity
from conccl.traces.matching import CallLabel, RankCalls
from conccl.traces.trace import Trace


def call_rows(view: View, /) -> npt.NDArray[np.intp]:
    """The communication kernels that are looked at."""
    timeline = view.timeline
    kernels = (timeline.activity == Activity.COMMUNICATION) & (timeline.columns["nbytes"] == 0)
    return np.flatnonzero(view.rows & kernels)


def calls_of(view: View, chosen: npt.NDArray[np.intp], /) -> RankCalls:
    """All that matching needs of these rows; ``step`` holds places in the view's windows."""
    trace, timeline, windows = view.trace, view.timeline, view.windows
    collective = timeline.columns["collective"][chosen]
    pairs = list(zip(timeline.name_id[chosen].tolist(), collective.tolist(), strict=True))
    labels: dict[CallLabel, int] = {}
    known: dict[tuple[int, int], int] = {}
    for pair in pairs:
        if pair not in known:
            known[pair] = labels.setdefault(_label(trace, *pair), len(labels))
    sequence = np.array(
        [-1 if call.sequence is None else call.sequence for call in trace.collectives] + [-1], dtype=np.int64
    )
    place = np.full(len(trace.steps) + 1, -1, dtype=np.int32)
    place[[window.step for window in windows]] = np.arange(len(windows))
    return RankCalls(
        rank=trace.rank,
        start_ns=timeline.start_ns[chosen],
        end_ns=timeline.end_ns[chosen],
        label=np.array([known[pair] for pair in pairs], dtype=np.int32),
        labels=tuple(labels),
        sequence=sequence[collective],
        ctas=timeline.columns["ctas"][chosen],
        step=place[timeline.columns["step"][chosen]],
    )


def _label(trace: Trace, name: int, collective: int, /) -> CallLabel:
    text = trace.timeline.names[name]
    if collective < 0:
        return CallLabel(name=text, kind=None, group=None, group_ranks=None, group_size=None, nbytes=None)
    call = trace.collectives[collective]
    return CallLabel(
        name=text,
        kind=call.kind,
        group=call.group,
        group_ranks=call.group_ranks,
        group_size=call.group_size,
        nbytes=call.nbytes,
    )
