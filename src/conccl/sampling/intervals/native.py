"""A native run under the counting agent, cut into slices of equal length."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from conccl.core.errors import InputError
from conccl.sampling.intervals.agent import COUNT, READY, RING_WORDS, SharedFile, agent_run, require_ready
from conccl.sampling.intervals.counters import EVENTS, Backend, slice_period
from conccl.sampling.intervals.markers import Site, SiteKind
from conccl.sampling.intervals.program import Ended, Program

SITES = 1 << 16
"""Counters at most: more of them, read once a slice, slow a large program down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """What a native run did, slice by slice (n slices, s sites that executed)."""

    backend: Backend
    sites: tuple[Site, ...]
    increases: sparse.csr_array
    """[n, s] executions of each site in each slice."""
    pcs: NDArray[np.uint64]
    """[n] where the program was when the slice ended."""
    lengths: NDArray[np.int64]
    """[n] of the backend's first event: instructions or nanoseconds."""
    extras: NDArray[np.int64]
    """[n, e] of its other events."""
    forks: int
    ended: Ended

    @property
    def count(self) -> int:
        """How many slices there are."""
        return len(self.lengths)


def run_natively(program: Program, /, *, instructions: int, backend: Backend) -> Slices:
    """Run the program once, natively, and note its counters at the end of each slice."""
    shared = SharedFile(mode=COUNT, capacity=SITES)
    events = EVENTS[backend]
    shared.header.events = len(events)
    for i, event in enumerate(events):
        shared.header.event[i].type, shared.header.event[i].config = event.type, event.config
    shared.header.period = slice_period(instructions, backend=backend)
    records: list[NDArray[np.uint64]] = []
    try:
        with agent_run(program, shared) as child:
            ended = child.wait(_reader(shared, records, child.process.pid, program))
        _drain(shared, records)
        require_ready(shared, program)
        return _slices(shared, records, backend=backend, ended=ended)
    finally:
        shared.close()


def _reader(
    shared: SharedFile, records: list[NDArray[np.uint64]], pid: int, program: Program
) -> Callable[[], None]:
    def poll() -> None:
        _drain(shared, records)
        if shared.header.state == READY:
            _require_same_executable(pid, program)

    return poll


def _require_same_executable(pid: int, program: Program) -> None:
    with contextlib.suppress(OSError):  # it has ended
        now = os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115 (Path resolves no deleted file)
        if now != str(program.executable):
            raise InputError(
                f"{program.executable.name} replaced itself by {now}. Sample that command instead."
            )


def _drain(shared: SharedFile, records: list[NDArray[np.uint64]]) -> None:
    head, tail = shared.header.head, shared.header.tail
    while tail < head:
        at = tail % RING_WORDS
        words = int(shared.ring[at])
        index = np.arange(at, at + words) % RING_WORDS
        records.append(shared.ring[index])
        tail += words
        shared.header.tail = tail


def _slices(
    shared: SharedFile, records: list[NDArray[np.uint64]], *, backend: Backend, ended: Ended
) -> Slices:
    events = len(EVENTS[backend])
    totals = shared.counters[: shared.header.sites].astype(np.int64)
    active = np.flatnonzero(totals)
    column = np.full(len(totals), -1, np.int64)
    column[active] = np.arange(len(active))
    increases = _increases([record[2 + events :] for record in records], column, totals[active])
    values = np.array([record[2 : 2 + events] for record in records], np.int64).reshape(-1, events)
    differences = np.diff(values, axis=0, prepend=0)
    last = _last_slice(differences, ended=ended, backend=backend)
    differences = np.vstack([differences, last])
    paths = shared.module_paths()
    return Slices(
        backend=backend,
        sites=tuple(
            Site(path=paths[row["module"]], pc=int(row["pc"]), kind=SiteKind.of(int(row["kind"])))
            for row in shared.sites[active]
        ),
        increases=increases,
        pcs=np.array([*(record[1] for record in records), 0], np.uint64),
        lengths=differences[:, 0],
        extras=differences[:, 1:],
        forks=shared.header.forks,
        ended=ended,
    )


def _increases(
    records: list[NDArray[np.uint64]], column: NDArray[np.int64], totals: NDArray[np.int64]
) -> sparse.csr_array:
    """Rows from the words of the records; the last row is what no record has."""
    words = np.concatenate([np.empty(0, np.uint64), *records])
    rows = np.repeat(np.arange(len(records)), [len(record) for record in records])
    columns = column[(words >> np.uint64(32)).astype(np.int64)]
    data = (words & np.uint64(0xFFFFFFFF)).astype(np.int64)
    shape = (len(records) + 1, len(totals))
    noted = sparse.csr_array((data, (rows, columns)), shape=shape)
    rest = totals - np.asarray(noted.sum(axis=0)).ravel()
    left = np.flatnonzero(rest)
    last = sparse.csr_array((rest[left], (np.full(len(left), len(records)), left)), shape=shape)
    return sparse.csr_array(noted + last)


def _last_slice(differences: NDArray[np.int64], *, ended: Ended, backend: Backend) -> NDArray[np.int64]:
    """Nobody counted from the last slice to the end: on the clock, the rest of the time; else a half."""
    if not len(differences):
        return np.array([[ended.cpu_ns, *[0] * (differences.shape[1] - 1)]], np.int64)
    typical: NDArray[np.int64] = np.median(differences, axis=0).astype(np.int64)
    if backend is Backend.CLOCK:
        typical[0] = min(max(ended.cpu_ns - int(differences[:, 0].sum()), 1), typical[0])
    else:
        typical //= 2
    return typical[None, :]


def save_slices(slices: Slices, path: Path, /) -> None:
    """Keep a profile while the rest of the work may still be interrupted."""
    with path.open("wb") as file:
        np.savez(
            file,
            backend=slices.backend.value,
            paths=np.array([site.path for site in slices.sites]),
            sites=np.array([(site.pc, site.kind.number) for site in slices.sites], np.int64).reshape(-1, 2),
            data=slices.increases.data,
            indices=slices.increases.indices,
            indptr=slices.increases.indptr,
            pcs=slices.pcs,
            lengths=slices.lengths,
            extras=slices.extras,
            rest=np.array([slices.forks, slices.ended.wall_ns, slices.ended.cpu_ns]),
        )


def load_slices(path: Path, /) -> Slices:
    """What `save_slices` kept."""
    with np.load(path, allow_pickle=False) as kept:
        forks, wall_ns, cpu_ns = (int(value) for value in kept["rest"])
        shape = (len(kept["lengths"]), len(kept["paths"]))
        return Slices(
            backend=Backend(str(kept["backend"])),
            sites=tuple(
                Site(path=str(path), pc=int(pc), kind=SiteKind.of(int(kind)))
                for path, (pc, kind) in zip(kept["paths"], kept["sites"], strict=True)
            ),
            increases=sparse.csr_array((kept["data"], kept["indices"], kept["indptr"]), shape=shape),
            pcs=kept["pcs"],
            lengths=kept["lengths"],
            extras=kept["extras"],
            forks=forks,
            ended=Ended(wall_ns=wall_ns, cpu_ns=cpu_ns),
        )
