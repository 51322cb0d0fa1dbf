"""Labels that people and PyTorch put on stretches of time: steps and annotations."""

from __future__ import annotations

import re

import numpy as np

from conccl.core.timeline import Ids, Mask, Times
from conccl.traces.host_rows import HostRows
from conccl.traces.trace import Annotations, Step

_STEP = re.compile(r"ProfilerStep\s*[#*]?\s*(\d{1,18})")
MOST_ANNOTATIONS = 1_000_000
"""More are not kept: memory stays bounded, and nobody looks at them one by one."""


def annotations_of(host: HostRows, /) -> Annotations:
    """All labels with usable times, by start."""
    columns = host.labels
    good = columns.array("good", dtype=np.bool_)
    start = columns.array("start_ns", dtype=np.int64)
    end = start + columns.array("duration_ns", dtype=np.int64)
    order = np.argsort(start, kind="stable")
    order = order[(good & (end >= start))[order]][:MOST_ANNOTATIONS]
    return Annotations(
        names=tuple(host.names.values),
        name_id=columns.array("name", dtype=np.int32)[order],
        start_ns=start[order],
        end_ns=end[order],
        on_gpu=columns.array("on_gpu", dtype=np.bool_)[order],
    )


def steps_of(annotations: Annotations, /) -> tuple[Step, ...]:
    """The profiler's steps on the host, by start; where there are none, their windows on the GPU."""
    numbers = {
        index: int(match[1]) for index, name in enumerate(annotations.names) if (match := _STEP.match(name))
    }
    for on_gpu in (False, True):
        found: dict[int, Step] = {}
        for row in np.flatnonzero(
            np.isin(annotations.name_id, list(numbers)) & (annotations.on_gpu == on_gpu)
        ):
            name = int(annotations.name_id[row])
            step = Step(
                number=numbers[name],
                name=annotations.names[name],
                start_ns=int(annotations.start_ns[row]),
                end_ns=int(annotations.end_ns[row]),
            )
            found.setdefault(step.number, step)
        if found:
            return tuple(found.values())
    return ()


def steps_at(times: Times, known: Mask, steps: tuple[Step, ...], /) -> Ids:
    """For each time the index of the step that holds it; -1 where the time is not known or in none."""
    result = np.full(len(times), -1, dtype=np.int32)
    if steps:
        starts = np.array([step.start_ns for step in steps], dtype=np.int64)
        ends = np.array([step.end_ns for step in steps], dtype=np.int64)
        index = np.searchsorted(starts, times, side="right") - 1
        inside = known & (index >= 0) & (times <= ends[index])
        result[inside] = index[inside]
    return result
