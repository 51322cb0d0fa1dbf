"""The log of a training run's iterations: length and time of each, for two lines of a user's code.

::

    recorder = conccl.IterationRecorder("run.csv")
    for batch in recorder.batches(loader):
        train(batch)
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

import torch

from conccl.core.errors import InputError, OutputError
from conccl.integrations.iterations.lengths import ONLY, LengthOf, lengths_of, sequences_of
from conccl.integrations.iterations.loop import Batches
from conccl.integrations.iterations.stopwatch import Stopwatch, stopwatch_for
from conccl.integrations.iterations.table_file import TableFile

T = TypeVar("T")


class IterationRecorder:
    """Writes ``iteration,length,time_ms,sequences`` of every iteration to a CSV file.

    Where a batch has sequences of several lengths (source and target), there is a ``length_NAME`` column of
    each from the first batch on in which they differ. Times are taken by events on a GPU, which is never
    waited for, and by the clock otherwise; loading a batch does not count.

    A run that goes on in the same file is numbered on from its last row, or from ``first`` (the step of a
    checkpoint): rows from there on are dropped, since these iterations come again.
    """

    def __init__(
        self,
        path: str | Path,
        /,
        *,
        length: LengthOf | None = None,
        device: str | torch.device | None = None,
        first: int | None = None,
    ) -> None:
        self._length = length
        self._device = device
        self._log = _Log(TableFile(path), first=first)
        self._watch: Stopwatch | None = None
        self._open: dict[str, float] | None = None
        self._loaded: Any = None
        self._iteration = self._log.next_iteration
        self._has_warned = False

    @property
    def iteration(self) -> int:
        """The number of the iteration that runs, or that comes next."""
        return self._iteration

    def batches(self, loader: Iterable[T], /) -> Batches[T]:
        """The loader's batches; the body of the loop over them is the iteration."""
        return Batches(loader, self._recorded)

    @contextlib.contextmanager
    def step(self, batch: Any = None, /) -> Iterator[None]:
        """What is timed, where that is less than the loop's body, or where there is no loop over a loader.

        Without a batch that of the loop counts. A step that raises is not logged.
        """
        given = self._loaded if batch is None else batch
        if given is None:
            raise InputError("a step without a batch. Give it one, or loop over batches(loader).")
        self._start(given)
        yield
        self._stop()

    def close(self) -> None:
        """Wait for the times that are not known yet, write them and let go of the file."""
        self._write(wait=True)
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _recorded(self, loader: Iterable[T]) -> Iterator[T]:
        try:
            for batch in loader:
                self._loaded = batch
                before = self._iteration
                self._start(batch)
                yield batch
                if self._iteration == before:  # else the body has a step of its own
                    self._stop()
        finally:
            self._loaded = None
            self._write(wait=True)

    def _start(self, batch: Any, /) -> None:
        if self._watch is None:
            self._watch = stopwatch_for(self._device)
        self._open = self._described(batch)
        self._watch.start()

    def _stop(self) -> None:
        assert self._watch is not None, "stopped only after a start"
        if self._open is not None:
            self._watch.stop({"iteration": self._iteration, **self._open})
        self._iteration += 1
        self._write(wait=False)

    def _described(self, batch: Any, /) -> dict[str, float] | None:
        """Lengths and sequences of a batch; once a run goes on, one that has none is left out and told."""
        try:
            found: dict[str, float] = dict(lengths_of(batch, self._length))
            self._log.require_dimensions(found)
        except InputError as error:
            if not self._log.is_begun:
                raise
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(f"iteration {self._iteration} is not logged: {error}", stacklevel=4)
            return None
        self._log.is_begun = True
        return {**found, "sequences": sequences_of(batch) or 0}

    def _write(self, *, wait: bool) -> None:
        if self._watch is not None:
            for row, time_ms in self._watch.done(wait=wait):
                self._log.append(row, time_ms=time_ms)


class _Log:
    """Rows under ``length`` while all lengths of each batch are equal, under their names from then on."""

    def __init__(self, file: TableFile, /, *, first: int | None) -> None:
        self._file = file
        kept = [row for row in file.rows if first is None or row.get("iteration", -1) < first]
        if file.columns and (file.columns[0] != "iteration" or "time_ms" not in file.columns):
            raise OutputError(f"{file.path} is there and is no log of iterations. Give another path.")
        if len(kept) < len(file.rows):
            file.replace(kept)
        self.next_iteration = int(kept[-1]["iteration"]) + 1 if kept else first or 0
        self._lengths = tuple(name for name in file.columns if name.startswith(ONLY))
        self._names: tuple[str, ...] = self._lengths if len(self._lengths) > 1 else ()
        self.is_begun = False
        file.rows.clear()

    def require_dimensions(self, found: Row, /) -> None:
        """All batches of a run have the same lengths by name."""
        names = tuple(found)
        if not self._names:
            self._names = names
        elif names != self._names:
            raise InputError(
                f"a batch has {', '.join(names)}, the log {', '.join(self._names)}."
                " All batches have the same lengths by name."
            )

    def append(self, row: Row, /, *, time_ms: float) -> None:
        """One iteration."""
        lengths = {name: row[name] for name in self._names}
        if not self._lengths:
            self._lengths = (ONLY,) if len(set(lengths.values())) == 1 else self._names
        elif self._lengths == (ONLY,) and len(set(lengths.values())) > 1:
            self._widen()
        shown = lengths if self._lengths != (ONLY,) else {ONLY: next(iter(lengths.values()))}
        self._file.append(
            {"iteration": row["iteration"], **shown, "time_ms": time_ms, "sequences": row["sequences"]}
        )

    def close(self) -> None:
        """Let others write the file."""
        self._file.close()

    def _widen(self) -> None:
        """Until now all lengths were equal: every one gets the column that they shared."""
        path = self._file.path
        self._file.close()
        self._file = TableFile(path)
        rows, self._file.rows = self._file.rows, []
        self._lengths = self._names
        self._file.replace(
            [
                {
                    "iteration": row["iteration"],
                    **dict.fromkeys(self._names, row[ONLY]),
                    "time_ms": row["time_ms"],
                    "sequences": row["sequences"],
                }
                for row in rows
            ]
        )


Row = dict[str, float]
