"""Rows to measure, and a file that keeps each as soon as it is measured, so that a crash loses one row."""

from __future__ import annotations

import contextlib
import json
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from graphs import Call, Clock
from launches import Launches, counted, median_of
from pool import Pool
from torch.profiler import ProfilerActivity, profile, record_function

ROTATED_NBYTES = 256 << 20
"""Sets of operands cover this many bytes or more: four times the L2 cache of an H200 (60 MB)."""
SETS_AT_MOST = 48
PROFILED_TOGETHER = 240
PROFILING_SHARE = 0.33
"""The part of a section's time that is kept for profiling its rows."""
BROKEN = 3
"""Exit code of a worker whose CUDA context is lost: start it again, and it goes on with the next row."""

BYTES_PER_US = 4.0e6
"""About what an H200 moves; with the rates below it only sets how many calls a graph holds."""
FLOPS_PER_US = {"fp8_e4m3": 1.2e9, "bf16": 6e8, "fp16": 6e8, "tf32": 3e8, "fp32": 4.5e7}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing to measure."""

    key: dict[str, object]
    """What is written with the result, and tells rows apart."""
    make: Callable[[Pool], Call] = field(repr=False)
    """Takes operands and returns the call on them."""
    nbytes: int
    flops: int = 0
    profiled_runs: int = 2

    @property
    def id(self) -> str:
        """The key as text."""
        return json.dumps(self.key, sort_keys=True)

    @property
    def floor_us(self) -> float:
        """About the least that it can take."""
        rate = FLOPS_PER_US.get(str(self.key.get("dtype")), 4.5e7)
        return max(2.0, self.nbytes / BYTES_PER_US, self.flops / rate)

    @property
    def sets(self) -> int:
        """Sets of operands to rotate."""
        fewest = 2 if self.nbytes < (1 << 30) else 1
        return min(max(-(-ROTATED_NBYTES // max(self.nbytes, 1)), fewest), SETS_AT_MOST)


class RowFile:
    """JSON lines, one for each row done; knows which row was under way when a worker died."""

    def __init__(self, path: Path, /) -> None:
        self.path = path
        self._under_way = path.with_suffix(".current")
        self.done = {r["id"] for r in self._read()}
        if self._under_way.exists():
            self.append({"id": self._under_way.read_text(), "error": "the process died in this row"})

    def begin(self, id_: str, /) -> None:
        """Note what is under way."""
        self._under_way.write_text(id_)

    def append(self, record: dict[str, object], /) -> None:
        """Keep a result."""
        with self.path.open("a") as file:
            file.write(json.dumps(record, separators=(",", ":")) + "\n")
        self.done.add(str(record["id"]))
        self._under_way.unlink(missing_ok=True)

    def _read(self) -> list[dict[str, object]]:
        if not self.path.exists():
            return []
        lines = self.path.read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]  # the last may be cut short


def measure_rows(
    rows: Sequence[Row], /, *, file: RowFile, device: str, seconds: float, pool_nbytes: int
) -> None:
    """Time rows in random order, then profile those that were timed, until the time is up."""
    end = time.monotonic() + seconds
    stop_timing = time.monotonic() + seconds * (1 - PROFILING_SHARE)
    pool, clock = Pool(device=device, nbytes=pool_nbytes), Clock(device=device)
    order = list({row.id: row for row in rows}.values())
    random.Random(7).shuffle(order)
    timed = []
    for row in order:
        if time.monotonic() > stop_timing:
            break
        if row.id in file.done or _time(row, file=file, clock=clock, pool=pool):
            timed.append(row)
    print(f"{len(timed)} of {len(order)} rows timed, {end - time.monotonic():.0f} s left", flush=True)
    timed = [row for row in timed if f"kernels {row.id}" not in file.done]
    for first in range(0, len(timed), PROFILED_TOGETHER):
        if f"profile {timed[first].id}" in file.done:
            continue  # a process died in this one
        if time.monotonic() > end:
            print(f"rows from {first} on were not profiled", flush=True)
            break
        _profile(timed[first : first + PROFILED_TOGETHER], file=file, clock=clock, pool=pool)


def _time(row: Row, *, file: RowFile, clock: Clock, pool: Pool) -> bool:
    file.begin(row.id)
    try:
        result = clock.measure(lambda: row.make(pool), sets=row.sets, floor_us=row.floor_us)
    except Exception as error:
        file.append({"id": row.id, "key": row.key, "error": f"{type(error).__name__}: {error}"[:300]})
        leave_if_broken(clock.device)
        return False
    file.append({"id": row.id, "key": row.key, **result})
    return True


def _profile(rows: Sequence[Row], *, file: RowFile, clock: Clock, pool: Pool) -> None:
    """Append the kernels that each row launches, as records with ``kernels`` and the row's id."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if clock.device == "cuda" else [])
    raw = Path(tempfile.mkdtemp()) / "raw.json"
    failed = set()
    file.begin(f"profile {rows[0].id}")
    stream = torch.cuda.stream(clock.stream) if clock.device == "cuda" else contextlib.nullcontext()
    with profile(activities=activities) as profiler, stream:
        for i, row in enumerate(rows):
            calls: list[Call] = []
            try:
                calls = [row.make(pool) for _ in range(row.profiled_runs)]
                for run, call in enumerate(calls):
                    with record_function(f"row {i} {run}"):
                        call()
            except Exception:
                traceback.print_exc(limit=1)
                failed.add(i)
                leave_if_broken(clock.device)
            del calls
        if clock.device == "cuda":
            torch.cuda.synchronize()
    profiler.export_chrome_trace(str(raw))
    ran = Launches(raw).by_annotation(operators=False)
    raw.unlink()
    for i, row in enumerate(rows):
        if i not in failed:
            runs = [ran.get(f"row {i} {run}", []) for run in range(rows[i].profiled_runs)]
            file.append({"id": f"kernels {row.id}", "row": row.id, "kernels": counted(median_of(runs))})
    file.append({"id": f"profile {rows[0].id}"})


def leave_if_broken(device: str) -> None:
    """End the process, to be started again, where the CUDA context no longer works."""
    if device != "cuda":
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        sys.exit(BROKEN)
