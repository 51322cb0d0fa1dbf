"""What the kernels of a trace are that no rule knows, and which of them may well communicate."""

from __future__ import annotations

import re

import numpy as np

from conccl.advise.view import View
from conccl.core.timeline import Activity, Mask, Timeline
from conccl.traces.breakdown import communicates
from conccl.traces.findings import Unclassified

UNCLASSIFIED_KEPT = 50
CANDIDATES_KEPT = 5


def is_kernel(timeline: Timeline, /) -> Mask:
    """Rows that are kernels: they have threads, or (old traces) neither bytes nor a copy's class."""
    threads, nbytes = timeline.columns["threads"], timeline.columns["nbytes"]
    kernels: Mask = (threads > 0) | ((timeline.activity != Activity.COPY) & (nbytes == 0))
    return kernels


def unclassified(timeline: Timeline, kernels: Mask, /) -> tuple[Unclassified, ...]:
    """Kernels that no rule knows, those with most time first."""
    unknown = kernels & (timeline.columns["rule"] < 0)
    total = int(timeline.duration_ns[kernels].sum())
    summed = np.bincount(timeline.name_id[unknown], weights=timeline.duration_ns[unknown])
    counts = np.bincount(timeline.name_id[unknown])
    most = np.lexsort((counts == 0, -summed))[: min(UNCLASSIFIED_KEPT, np.count_nonzero(counts))]
    return tuple(
        Unclassified(
            name=timeline.names[name],
            count=int(counts[name]),
            duration_ns=int(summed[name]),
            share=float(summed[name] / total) if total else 0.0,
        )
        for name in most
    )


_LIKE_COMMUNICATION = re.compile(
    r"comm|peer|p2p|gather|scatter|allreduce|all_reduce|reduce.?scatter|a2a|all.?to.?all|dispatch|combine"
    r"|shmem|symm|signal|barrier|ring|nvl|rdma|ibgda|broadcast|send|recv|exchange",
    re.IGNORECASE,
)
_MADE_BY_PYTORCH = re.compile(r"at::native|cub::|thrust::|cutlass|cublas|gemm|embedding|index", re.IGNORECASE)


def candidates(timeline: Timeline, kernels: Mask, /) -> tuple[str, ...]:
    """Where nothing communicates, the kernels most likely to: by name, then unknown ones, then by time."""
    if communicates(timeline.activity).any():
        return ()
    summed = np.bincount(
        timeline.name_id[kernels], weights=timeline.duration_ns[kernels], minlength=len(timeline.names)
    )
    unknown = np.zeros(len(timeline.names), dtype=np.bool_)
    unknown[timeline.name_id[kernels & (timeline.columns["rule"] < 0)]] = True

    def likelihood(name: int) -> tuple[bool, bool, float]:
        text = timeline.names[name]
        like = bool(_LIKE_COMMUNICATION.search(text)) and not _MADE_BY_PYTORCH.search(text)
        return like, bool(unknown[name]), float(summed[name])

    ranked = sorted(np.flatnonzero(summed > 0).tolist(), key=likelihood, reverse=True)
    return tuple(timeline.names[name] for name in ranked[:CANDIDATES_KEPT])


def shared_stream_ns(view: View, /) -> int:
    """Exposed communication on streams that also run compute kernels."""
    timeline = view.timeline
    computing = np.unique(timeline.lane_id[timeline.activity == Activity.COMPUTE])
    chosen = view.rows & (timeline.activity == Activity.COMMUNICATION) & np.isin(timeline.lane_id, computing)
    start, end = timeline.start_ns[chosen], timeline.end_ns[chosen]
    return int((end - start - view.every.compute.coverage(start, end)).sum())
