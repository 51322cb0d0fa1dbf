"""Puts together what was read from a file: one `Trace` a GPU, classified, linked to launches, checked."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from conccl.core.errors import TraceError
from conccl.core.timeline import Clock, Ids, Lane, Mask, Timeline, Times
from conccl.core.units import SECOND
from conccl.traces.classify import HostCopies
from conccl.traces.columns import renumbered
from conccl.traces.gpu_rows import GpuRows
from conccl.traces.host_rows import HostRows
from conccl.traces.labels import annotations_of, steps_at, steps_of
from conccl.traces.metadata import Metadata
from conccl.traces.operators import HostOperator, host_operator
from conccl.traces.rows import Rows, linked_rows
from conccl.traces.rules import Rules
from conccl.traces.serial import SerialRows, make_serial
from conccl.traces.trace import Annotations, Health, RankSource, Step, Trace

SUSPICIOUS_NS = 60 * SECOND
"""No kernel of a step lasts a minute."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """Everything that was read from one file."""

    path: str
    rank: int
    rank_source: RankSource
    world_size: int | None
    metadata: Metadata
    gpu: GpuRows
    host: HostRows
    sync_rows: int = 0
    begun_rows: int = 0
    """Given as a begin and an end, and so not among ``gpu``."""
    odd_events: int = 0
    first_odd_place: str = ""
    truncated: str = ""


def assemble(source: Source, /, *, rules: Rules, host_copies: HostCopies) -> tuple[Trace, ...]:
    """One trace a GPU with rows: the busiest first, or by number where nothing says the file's rank."""
    rows = linked_rows(
        source.gpu, source.host, groups=source.metadata.groups, rules=rules, host_copies=host_copies
    )
    if not len(rows.start_ns):
        raise _nothing(source, rows)
    annotations = annotations_of(source.host)
    parts = _Parts(source=source, rows=rows, annotations=annotations, steps=steps_of(annotations))
    device_of_lane = np.array([device for device, _ in rows.streams])
    devices, numbers = np.unique(device_of_lane, return_inverse=True)
    number = numbers[rows.lane]
    counts = np.bincount(number, minlength=len(devices))
    used = [index for index in np.argsort(-counts, kind="stable") if counts[index]]
    if source.metadata.rank is None and source.rank_source is RankSource.ORDER:
        used.sort(key=lambda index: _natural(str(devices[index])))
    return tuple(
        _trace_of_device(parts, str(devices[index]), number == index, alone=len(used) == 1) for index in used
    )


def _natural(text: str, /) -> list[tuple[int, str]]:
    """A key by which 2 comes before 10, as people number GPUs."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d{1,18})", text)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Parts:
    """What the GPUs of a file share."""

    source: Source
    rows: Rows
    annotations: Annotations
    steps: tuple[Step, ...]


def _nothing(source: Source, rows: Rows) -> TraceError:
    dropped = rows.bad_time_rows + rows.negative_rows
    remedy = "Record with ProfilerActivity.CUDA while the GPU works."
    if source.truncated:
        return TraceError(
            path=source.path, problem=f"no GPU events before {source.truncated}", remedy="Copy it again."
        )
    if source.begun_rows:
        problem = f"no GPU event has a duration; {source.begun_rows} are begin and end (phases B and E)"
        remedy = "Write them as complete events (phase X), as torch.profiler does."
        return TraceError(path=source.path, problem=problem, remedy=remedy)
    if dropped:
        problem = f"no GPU event has usable times ({dropped} have none)"
        return TraceError(path=source.path, problem=problem, remedy="Record it again.")
    return TraceError(path=source.path, problem="no GPU events", remedy=remedy)


def _trace_of_device(parts: _Parts, device: str, mask: Mask, *, alone: bool) -> Trace:
    source, rows = parts.source, parts.rows
    rank, rank_source = source.rank, source.rank_source
    if source.metadata.rank is not None and rank_source is not RankSource.GIVEN:
        rank, rank_source = source.metadata.rank, RankSource.DISTRIBUTED_INFO
    serial = make_serial(
        start_ns=rows.start_ns[mask],
        end_ns=rows.end_ns[mask],
        lane=rows.lane[mask],
        in_graph=rows.in_graph[mask],
    )
    calls, collective = renumbered(rows.verdict.collective[mask])
    operators, operator = _operators(source.host, rows.variants.operator[mask])
    timeline = _timeline(
        parts, mask, serial.end_ns, collective=collective, operator=operator, rank=rank, device=device
    )
    properties = source.metadata.devices.get(device)
    health = _health(parts, timeline, serial)
    return Trace(
        path=source.path,
        rank=rank,
        rank_source=rank_source,
        world_size=source.metadata.world_size or source.world_size,
        device=device,
        device_name=properties.name if properties else None,
        sm_count=properties.sm_count if properties else None,
        timeline=timeline,
        steps=parts.steps,
        collectives=tuple(rows.verdict.calls[call] for call in calls),
        annotations=parts.annotations,
        rules=rows.verdict.rules,
        health=health,
        operators=operators,
        warnings=_warnings(source, health, alone=alone),
    )


def _operators(host: HostRows, numbers: Ids) -> tuple[tuple[HostOperator, ...], Ids]:
    """The operators that these rows refer to, and each row's place among them; -1: none that can be read."""
    used, places = renumbered(numbers)
    texts, shapes = (list(host.operators), list(host.shapes)) if used else ([], [])
    parsed = [
        host_operator(name, dims=shapes[shape], types=types, strides=strides, values=values)
        for name, shape, types, strides, values in (texts[number] for number in used)
    ]
    kept = np.cumsum([operator is not None for operator in parsed], dtype=np.int32) - 1
    readable = np.array([operator is not None for operator in parsed] + [False])
    place = np.where(readable, np.append(kept, -1), -1).astype(np.int32)
    return tuple(operator for operator in parsed if operator is not None), place[places]


def _timeline(
    parts: _Parts, mask: Mask, end_ns: Times, *, collective: Ids, operator: Ids, rank: int, device: str
) -> Timeline:
    rows = parts.rows
    lanes, lane_id = renumbered(rows.lane[mask])
    return Timeline(
        clock=Clock.TRACE,
        start_ns=rows.start_ns[mask],
        end_ns=end_ns,
        name_id=rows.name[mask],
        lane_id=lane_id,
        activity=rows.verdict.activity[mask],
        names=tuple(text for text, _ in parts.source.gpu.all_names),
        lanes=tuple(Lane(rank=rank, device=device, stream=rows.streams[lane][1]) for lane in lanes),
        columns={
            "step": _steps(parts)[mask],
            "correlation": rows.correlation[mask],
            "launch_ns": rows.links.launch_ns[mask],
            "ctas": rows.variants.ctas[mask],
            "threads": rows.variants.threads[mask],
            "variant": rows.variants.variant[mask],
            "collective": collective,
            "operator": operator,
            "nbytes": rows.nbytes[mask],
            "in_graph": rows.in_graph[mask],
            "rule": rows.verdict.rule[mask],
        },
    ).sorted()


def _steps(parts: _Parts) -> Ids:
    """The step of each row: by its launch; where the trace has no launches at all, by its own start."""
    links = parts.rows.links
    if links.known.any():
        return steps_at(links.launch_ns, links.known, parts.steps)
    return steps_at(parts.rows.start_ns, ~links.known, parts.steps)


def _health(parts: _Parts, timeline: Timeline, serial: SerialRows) -> Health:
    source, rows = parts.source, parts.rows
    return Health(
        rows=len(timeline),
        overlapping_rows=serial.overlapping_rows,
        clipped_ns=serial.clipped_ns,
        zero_rows=int((timeline.duration_ns == 0).sum()),
        longest_ns=int(timeline.duration_ns.max()),
        negative_rows=rows.negative_rows,
        bad_time_rows=rows.bad_time_rows,
        unlinked_rows=int((timeline.columns["launch_ns"] < 0).sum()),
        graph_rows=int(timeline.columns["in_graph"].sum()),
        sync_rows=source.sync_rows,
        nanosecond_rows=rows.nanosecond_rows,
        odd_events=source.odd_events,
        truncated=bool(source.truncated),
    )


def _warnings(source: Source, health: Health, *, alone: bool) -> tuple[str, ...]:
    """What a reader of the report should know before believing it."""
    dropped = (
        f"{health.bad_time_rows} GPU rows have no usable times, {health.negative_rows} negative durations"
    )
    said = {
        f"{source.truncated}; what came before was read": bool(source.truncated),
        f"{source.odd_events} events are no JSON objects and were left out (the first at"
        f" {source.first_odd_place})": source.odd_events > 0,
        f"{source.begun_rows} GPU rows are given as begin and end (phases B and E) and were left out: only"
        " complete events (phase X) are read": source.begun_rows > 0,
        f"{dropped}: left out": health.bad_time_rows + health.negative_rows > 0,
        f"{health.nanosecond_rows} GPU rows have nanoseconds where microseconds are due: converted": (
            health.nanosecond_rows > 0
        ),
        f"{health.overlapping_rows} rows had not ended when the next on their stream began:"
        f" {health.clipped_ns} ns were cut off": health.clipped_ns > 0,
        f"the longest GPU row lasts {health.longest_ns / SECOND:.0f} s: its end may be garbage, and with it"
        " every share of the span": health.longest_ns > SUSPICIOUS_NS,
        "the file holds several GPUs: they are kept apart": not alone,
    }
    return tuple(text for text, holds in said.items() if holds)
