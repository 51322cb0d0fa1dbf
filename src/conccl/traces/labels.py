"""Labels that people and PyTorch put on stretches of time: steps and annotations."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from conccl.core.timeline import Ids, Mask, Timeline, Times
from conccl.traces.host_rows import HostRows
from conccl.traces.intervals import union
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
        names=tuple(host.names),
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelledWork:
    """The GPU work of labels, one entry an instance; ``name_id`` refers to the annotations' names."""

    name_id: Ids
    start_ns: Times
    end_ns: Times


def labelled_work(annotations: Annotations, timeline: Timeline, /) -> LabelledWork:
    """Start and end of the GPU work of every instance of every label that has any, by name.

    An instance's work is what the host launched under it, on all streams together: the profiler itself writes
    a window for each stream, which would count an instance several times. Where a label has no instance on
    the host, or no launch is known, the profiler's windows are joined where they overlap.
    """
    on_host = ~annotations.on_gpu
    if not (timeline.columns["launch_ns"] >= 0).any():
        on_host = np.zeros(len(annotations), dtype=np.bool_)
    name, start, end = _launched(annotations, timeline, on_host)
    names, starts, ends = [name], [start], [end]
    told = np.zeros(len(annotations.names), dtype=np.bool_)
    told[annotations.name_id[on_host]] = True
    others = annotations.on_gpu & ~told[annotations.name_id]
    for other in np.flatnonzero(np.bincount(annotations.name_id[others])):
        mine = others & (annotations.name_id == other)
        windows = union(annotations.start_ns[mine], annotations.end_ns[mine])
        names.append(np.full(len(windows), other, dtype=np.int32))
        starts.append(windows.start_ns)
        ends.append(windows.end_ns)
    name_id = np.concatenate(names)
    order = np.argsort(name_id, kind="stable")
    return LabelledWork(
        name_id=name_id[order],
        start_ns=np.concatenate(starts)[order],
        end_ns=np.concatenate(ends)[order],
    )


def _launched(annotations: Annotations, timeline: Timeline, chosen: Mask, /) -> tuple[Ids, Times, Times]:
    """Of the chosen labels that launched anything: name, and from first start to last end of that."""
    launch_ns = timeline.columns["launch_ns"]
    order = np.argsort(launch_ns, kind="stable")
    launched = launch_ns[order]
    first = np.searchsorted(launched, annotations.start_ns[chosen], side="left")
    beyond = np.searchsorted(launched, annotations.end_ns[chosen], side="right")
    any_launched = beyond > first
    name_id = annotations.name_id[chosen][any_launched]
    if not len(name_id):
        return name_id, timeline.start_ns[:0], timeline.end_ns[:0]
    # reduceat takes [first, beyond) at every other place; a last entry lets ``beyond`` be the end.
    pairs = np.stack((first, beyond), axis=1)[any_launched].ravel()
    start = np.append(timeline.start_ns[order], np.iinfo(np.int64).max)
    end = np.append(timeline.end_ns[order], np.iinfo(np.int64).min)
    return name_id, np.minimum.reduceat(start, pairs)[::2], np.maximum.reduceat(end, pairs)[::2]


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
