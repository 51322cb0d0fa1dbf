"""Only the chosen iterations of a run, each measured and profiled: hours of training become minutes.

::

    chosen = conccl.ChosenIterations("chosen.json", folder="profiles")
    for batch in chosen.batches(loader):
        train(batch)
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from conccl.core.errors import InputError, OutputError
from conccl.integrations.iterations.lengths import ONLY, LengthOf, lengths_of
from conccl.integrations.iterations.loop import Batches
from conccl.integrations.iterations.stopwatch import is_gpu, stopwatch_for
from conccl.integrations.iterations.table_file import TableFile
from conccl.sampling.chosen import read_seqpoints
from conccl.sampling.seqpoint import Length
from conccl.traces.kernel_rows import kernel_rows

T = TypeVar("T")

REPEATS = 3
"""Timed runs of a chosen batch, of which the median counts."""

ATTEMPTS = 2
"""Runs of a chosen batch before it is timed: plans, allocations and compilation of its shapes."""


class ChosenIterations:
    """Runs the loop's body on the first batch of each chosen length alone, times it and profiles it.

    ``choice`` is what ``conccl sample iterations --format json`` printed. The body sees such a batch several
    times (to warm up, to be timed, once more under the profiler), others never. ``folder`` receives a trace
    of each length, and ``statistics.csv`` with ``length,time_ms`` (on a GPU ``kernels,kernel_ms`` too): what
    `conccl.sampling.seqpoint.project` and ``--stat`` take. Lengths that stand there are not run again, so an
    interrupted run goes on; the loop ends with the last of them.
    """

    def __init__(
        self,
        choice: str | Path,
        /,
        *,
        folder: str | Path,
        length: LengthOf | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        self._length = length
        self._device = device
        self._folder = Path(folder)
        self._seqpoints = read_seqpoints(Path(choice))
        self._names: tuple[str, ...] = ()
        self._done = set(self._measured())

    @property
    def missing(self) -> tuple[Length, ...]:
        """The chosen lengths that are not measured yet."""
        return tuple(point.length for point in self._seqpoints if point.length not in self._done)

    def batches(self, loader: Iterable[T], /) -> Batches[T]:
        """The batches to run."""
        return Batches(loader, self._chosen)

    def _chosen(self, loader: Iterable[T]) -> Iterator[T]:
        if not self.missing:
            return
        file = TableFile(self._folder / "statistics.csv")
        try:
            for batch in loader:
                length = self._key(lengths_of(batch, self._length))
                if length in self.missing:
                    yield from self._measure(batch, length, file)
                    self._done.add(length)
                if not self.missing:
                    return
        finally:
            file.close()
        shown = ", ".join("x".join(map(str, length)) for length in self.missing[:5])
        warnings.warn(
            f"no batch had {len(self.missing)} of the chosen lengths ({shown}). Loop over more batches.",
            stacklevel=2,
        )

    def _measure(self, batch: T, length: Length, file: TableFile, /) -> Iterator[T]:
        for _ in range(ATTEMPTS):
            yield copy.copy(batch)
        watch = stopwatch_for(self._device)
        for repeat in range(REPEATS):
            watch.start()
            yield copy.copy(batch)
            watch.stop(repeat)
        times = sorted(time_ms for _, time_ms in watch.done(wait=True))
        trace = self._folder / f"length-{'x'.join(map(str, length))}.pt.trace.json.gz"
        on_gpu = is_gpu(self._device)
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        with profile(activities=activities, record_shapes=True) as profiler:
            yield copy.copy(batch)
            if on_gpu:
                torch.cuda.synchronize()
        _export(profiler, trace)
        names = self._names if len(length) > 1 else (ONLY,)
        row: dict[str, float] = dict(zip(names, length, strict=True))
        row["time_ms"] = times[len(times) // 2]
        if on_gpu:
            kernels = kernel_rows([trace])
            row["kernels"] = len(kernels.names)
            row["kernel_ms"] = float(kernels.durations_ns.sum()) / 1e6
        file.append(row)

    def _key(self, found: dict[str, int], /) -> Length:
        """A batch's lengths as the choice has them: one, where all are equal in the whole run."""
        dimensions = len(self._seqpoints[0].length)
        values = tuple(found.values())
        if len(values) == dimensions:
            self._names = tuple(found)
            return values
        if dimensions == 1:
            return (values[0],) if len(set(values)) == 1 else ()
        raise InputError(
            f"a batch has {', '.join(found)}; the choice is of {dimensions} lengths."
            " Give the length function that the log was recorded with."
        )

    def _measured(self) -> list[Length]:
        path = self._folder / "statistics.csv"
        if not path.exists():
            return []
        file = TableFile(path)
        file.close()
        names = [name for name in file.columns if name.startswith(ONLY)]
        return [tuple(int(row[name]) for name in names) for row in file.rows]


def _export(profiler: Any, path: Path, /) -> None:
    """A trace is there in whole or not at all."""
    part = path.with_name("part." + path.name)
    try:
        profiler.export_chrome_trace(str(part))
        part.replace(path)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror}. Give a folder that you may write to."
        ) from error
