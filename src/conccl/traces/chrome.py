"""Writes timelines as Chrome trace JSON, which Perfetto opens: ranks, streams, and lanes of overlap.

GPU rows stand under Kineto's categories with their streams, so that what reads profiler traces reads these.
The overlap lanes say of every moment whether it is compute only, communication only, both, copy only or idle;
they and other tracks have a category that no reader counts as work. Times are microseconds with three
decimals, so every nanosecond survives.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from conccl.core.errors import TraceError
from conccl.core.files import write_file
from conccl.core.timeline import Activity, Timeline, Times
from conccl.traces.breakdown import sides_of
from conccl.traces.metadata import PRODUCER
from conccl.traces.states import STATE_LABELS, states_of
from conccl.traces.unpacking import open_bytes

_OVERLAP = "overlap"
_STEP = "gpu_user_annotation"
_FIRST_STREAM = 100
"""Thread ids below it are tracks, which stand above the streams."""
_ROWS_A_CHUNK = 4096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Track:
    """A row of named stretches above the streams of a rank."""

    rank: int
    label: str
    names: Sequence[str]
    """One a stretch."""
    start_ns: Times
    end_ns: Times
    category: str = _OVERLAP


def write_chrome(timeline: Timeline, /, *, path: str | Path, tracks: Iterable[Track] | None = None) -> None:
    """Write all rows, and the tracks given (None: the overlap lanes of every rank); .json.gz is compressed.

    Raises `OutputError` where the path cannot be written.
    """
    tracks = overlap_tracks(timeline) if tracks is None else tuple(tracks)
    write_file(path, _document(timeline, tracks))


def overlap_tracks(timeline: Timeline, /) -> tuple[Track, ...]:
    """For every rank five lanes: compute only, communication only, both, copy only, idle."""
    return tuple(track for rank in timeline.ranks for track in _overlap_of(timeline.of_rank(rank), rank))


def state_tracks(
    *, rank: int, state: Sequence[int] | np.ndarray[Any, Any], start_ns: Times, end_ns: Times
) -> Iterator[Track]:
    """A lane for each state, from stretches that follow each other."""
    state = np.asarray(state)
    for number, label in enumerate(STATE_LABELS):
        mine = state == number
        yield Track(
            rank=rank,
            label=label,
            names=[label] * int(mine.sum()),
            start_ns=start_ns[mine],
            end_ns=end_ns[mine],
        )


def step_track(*, rank: int, names: Sequence[str], start_ns: Times, end_ns: Times) -> Track:
    """A lane of steps, which readers of profiler traces know as the steps' windows on the GPU."""
    return Track(rank=rank, label="steps", names=names, start_ns=start_ns, end_ns=end_ns, category=_STEP)


def is_other_s(path: Path, /) -> bool:
    """Whether a file with content stands there that `write_chrome` did not write."""
    try:
        if not path.is_file() or not path.stat().st_size:
            return False
        with open_bytes(str(path)) as stream:
            return not stream.read(len(PRODUCER)).startswith(PRODUCER)
    except (OSError, TraceError):
        return True


def _overlap_of(timeline: Timeline, rank: int) -> Iterator[Track]:
    states = states_of(
        sides_of(timeline), start_ns=int(timeline.start_ns.min()), end_ns=int(timeline.end_ns.max())
    )
    yield from state_tracks(rank=rank, state=states.state, start_ns=states.start_ns, end_ns=states.end_ns)


def _document(timeline: Timeline, tracks: Sequence[Track]) -> Iterator[bytes]:
    head = {"schemaVersion": 1, "displayTimeUnit": "ns", **_distributed(timeline)}
    yield PRODUCER + b"," + json.dumps(head)[1:-1].encode() + b',"traceEvents":[\n'
    threads = _track_threads(tracks)
    yield ",\n".join(_metadata(timeline, tracks, threads)).encode()
    for track, thread in zip(tracks, threads, strict=True):
        yield from _chunks(_track_rows(track, thread))
    yield from _chunks(_rows(timeline))
    yield b"\n]}\n"


def _chunks(events: Iterator[str]) -> Iterator[bytes]:
    """Events joined by the thousand, each after a comma."""
    chunk: list[str] = []
    for event in events:
        chunk.append(event)
        if len(chunk) == _ROWS_A_CHUNK:
            yield (",\n" + ",\n".join(chunk)).encode()
            chunk.clear()
    if chunk:
        yield (",\n" + ",\n".join(chunk)).encode()


def _distributed(timeline: Timeline) -> dict[str, Any]:
    """Which rank this is, as PyTorch writes it; several ranks in one file have no such entry."""
    ranks = timeline.ranks
    return {"distributedInfo": {"rank": ranks[0]}} if len(ranks) == 1 else {}


def _metadata(timeline: Timeline, tracks: Sequence[Track], threads: Sequence[int]) -> Iterator[str]:
    """What processes (ranks) and threads (tracks, streams) are called, and in which order they stand."""
    ranks = sorted({*timeline.ranks, *(track.rank for track in tracks)})
    yield _named("trace_name", 0, 0, "conccl")
    for rank in ranks:
        yield _named("process_name", rank, 0, f"rank {rank}")
        yield _meta("process_sort_index", rank, 0, {"sort_index": rank})
    for track, thread in zip(tracks, threads, strict=True):
        yield from _thread(track.rank, thread, track.label)
    for lane in sorted(set(timeline.lane_id.tolist())):
        one = timeline.lanes[lane]
        label = (
            f"stream {one.stream}" if _one_device(timeline, one.rank) else f"{one.device} stream {one.stream}"
        )
        yield from _thread(one.rank, _FIRST_STREAM + lane, label)


def _one_device(timeline: Timeline, rank: int) -> bool:
    return len({lane.device for lane in timeline.lanes if lane.rank == rank}) <= 1


def _thread(rank: int, thread: int, label: str) -> Iterator[str]:
    yield _named("thread_name", rank, thread, label)
    yield _meta("thread_sort_index", rank, thread, {"sort_index": thread})


def _named(kind: str, process: int, thread: int, name: str) -> str:
    return _meta(kind, process, thread, {"name": _printable(name)})


def _meta(kind: str, process: int, thread: int, arguments: dict[str, Any]) -> str:
    return json.dumps({"ph": "M", "name": kind, "pid": process, "tid": thread, "args": arguments})


def _track_threads(tracks: Sequence[Track]) -> list[int]:
    """For each track its place among the tracks of its rank, from 1."""
    counts: Counter[int] = Counter()
    threads = []
    for track in tracks:
        counts[track.rank] += 1
        threads.append(counts[track.rank])
    return threads


def _track_rows(track: Track, thread: int) -> Iterator[str]:
    where = f'"cat":"{track.category}","pid":{track.rank},"tid":{thread}'
    times = zip(track.names, track.start_ns.tolist(), track.end_ns.tolist(), strict=True)
    for name, start, end in times:
        yield f'{{"ph":"X",{where},"name":{_text(name)},{_times(start, end)}}}'


def _rows(timeline: Timeline) -> Iterator[str]:
    names = [_text(name) for name in timeline.names]
    categories = [_categories(name) for name in timeline.names]
    lanes = [_lane(timeline, lane) for lane in range(len(timeline.lanes))]
    arguments = _arguments(timeline)
    for row, (name, lane, activity, start, end) in enumerate(
        zip(
            timeline.name_id.tolist(),
            timeline.lane_id.tolist(),
            timeline.activity.tolist(),
            timeline.start_ns.tolist(),
            timeline.end_ns.tolist(),
            strict=True,
        )
    ):
        where, place = lanes[lane]
        yield (
            f'{{"ph":"X","cat":"{categories[name][activity == Activity.COPY]}",{where},"name":{names[name]},'
            f'{_times(start, end)},"args":{{{place},"activity":"{_ACTIVITIES[activity]}"'
            f"{''.join(column[row] for column in arguments)}}}}}"
        )


_ACTIVITIES = tuple(Activity(number).name.lower() for number in range(len(Activity)))


def _categories(name: str) -> tuple[str, str]:
    """Kineto's category of a row of this name, where it is no copy and where it is one."""
    lowered = name.lower()
    if lowered.startswith("memset"):
        return "gpu_memset", "gpu_memset"
    return ("gpu_memcpy" if lowered.startswith("memcpy") else "kernel"), "gpu_memcpy"


def _lane(timeline: Timeline, lane: int) -> tuple[str, str]:
    """Where a row is drawn, and what its arguments say of its place."""
    one = timeline.lanes[lane]
    device = one.device if len(timeline.ranks) <= 1 else f"rank {one.rank} {one.device}"
    return (
        f'"pid":{one.rank},"tid":{_FIRST_STREAM + lane}',
        f'"device":{_text(device)},"stream":{_text(one.stream)}',
    )


def _arguments(timeline: Timeline) -> list[list[str]]:
    """For each column that says something beyond names and times, what it adds to each row."""
    rows = []
    for column, text, least in (
        ("correlation", ',"correlation":{}', 0),
        ("nbytes", ',"bytes":{}', 1),
        ("ctas", ',"grid":[{},1,1]', 1),
        ("threads", ',"block":[{},1,1]', 1),
    ):
        if column in timeline.columns:
            values = timeline.columns[column].tolist()
            rows.append([text.format(value) if value >= least else "" for value in values])
    return rows


def _times(start_ns: int, end_ns: int) -> str:
    return f'"ts":{_microseconds(start_ns)},"dur":{_microseconds(end_ns - start_ns)}'


def _microseconds(time_ns: int) -> str:
    sign, size = ("-", -time_ns) if time_ns < 0 else ("", time_ns)
    return f"{sign}{size // 1000}.{size % 1000:03d}"


def _text(name: str) -> str:
    return json.dumps(_printable(name))


def _printable(text: str) -> str:
    """The text without lone surrogates, which strict readers refuse."""
    return text.encode("utf-8", "replace").decode()
