"""Starts ranks as processes of this host and hears from them until all are done, or one is in trouble.

A rank that dies, fails or says nothing for too long ends the others; what had been told stays told.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from conccl.core.errors import ConcclError, ExecutionError

Work = Callable[[int, Any, str, Callable[[Any], None]], None]
"""(rank, request, path of a store, tell): what a rank does. Must be importable by name."""

_GRACE_S = 3.0
"""After one is in trouble the others may say what they saw of it: whoever was killed says nothing."""


@dataclass(slots=True)
class _Rank:
    process: Any
    connection: Connection
    told: list[Any] = field(default_factory=list)
    done: bool = False
    problem: str = ""
    """What it says went wrong."""


def started(
    work: Work, request: Any, /, *, count: int, silence_s: float, context: Any = None
) -> Iterator[tuple[Any, ...]]:
    """Run ``work`` as ``count`` processes; yields what all have told, in the order in which they told it.

    A ``None`` told is a sign of life and not passed on. Raises `ExecutionError` when a rank dies or fails, or
    when all are silent for longer than ``silence_s``.
    """
    context = context or multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="conccl-bench-") as folder:
        ranks = [_start(context, work, request, rank, str(Path(folder, "store"))) for rank in range(count)]
        try:
            yield from _heard(ranks, silence_s)
        finally:
            _end(ranks)


def _start(context: Any, work: Work, request: Any, rank: int, store: str) -> _Rank:
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(
        target=_carry_out, args=(theirs, work, request, rank, store), name=f"rank {rank}", daemon=True
    )
    process.start()
    theirs.close()
    return _Rank(process=process, connection=ours)


def _carry_out(connection: Connection, work: Work, request: Any, rank: int, store: str) -> None:
    """In the rank's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; whoever started us ends us
    try:
        work(rank, request, store, lambda told: connection.send(("told", told)))
        connection.send(("done", None))
    except Exception as error:
        with contextlib.suppress(OSError):
            kind = "" if isinstance(error, ConcclError) else f"{type(error).__name__}: "
            connection.send(("problem", f"{kind}{error}"))
        os._exit(1)  # a backend's threads may still wait for peers


def _heard(ranks: list[_Rank], silence_s: float) -> Iterator[tuple[Any, ...]]:
    given = 0
    heard = time.monotonic()
    while not all(one.done for one in ranks):
        if _listen(ranks, timeout_s=min(0.5, silence_s)):
            heard = time.monotonic()
        while all(len(one.told) > given for one in ranks):
            yield tuple(one.told[given] for one in ranks)
            given += 1
        if any(one.problem for one in ranks):
            _listen_for_more(ranks)
            raise ExecutionError(_troubles(ranks))
        if time.monotonic() - heard > silence_s:
            raise ExecutionError(f"no rank has said anything for {silence_s:g} s; {_behind(ranks)}.")


def _listen(ranks: list[_Rank], *, timeout_s: float) -> bool:
    """Take in what ranks say; whether any did."""
    open_ = {one.connection: one for one in ranks if not one.done and not one.problem}
    ready = wait(list(open_), timeout=timeout_s)
    for connection in ready:
        assert isinstance(connection, Connection)
        one = open_[connection]
        try:
            word, told = connection.recv()
        except (EOFError, OSError):
            one.problem = _death(one.process)
            continue
        if word == "told" and told is not None:
            one.told.append(told)
        elif word == "done":
            one.done = True
        elif word == "problem":
            one.problem = str(told)
    return bool(ready)


def _listen_for_more(ranks: list[_Rank]) -> None:
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline and any(not one.done and not one.problem for one in ranks):
        _listen(ranks, timeout_s=0.2)


def _death(process: Any) -> str:
    process.join(5)
    code = process.exitcode
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
        return f"killed by signal {-code}"
    return f"ended without a word, exit code {code}"


def _troubles(ranks: list[_Rank]) -> str:
    """Deaths first: what the others say follows from them."""
    troubles = [(rank, one.problem) for rank, one in enumerate(ranks) if one.problem]
    troubles.sort(key=lambda pair: not pair[1].startswith(("killed", "ended")))
    said: dict[str, list[int]] = {}
    for rank, text in troubles:
        said.setdefault(text, []).append(rank)
    return "; ".join(
        f"rank{'s' if len(whose) > 1 else ''} {', '.join(map(str, whose))}: {text}"
        for text, whose in said.items()
    )


def _behind(ranks: list[_Rank]) -> str:
    least = min(len(one.told) for one in ranks)
    late = [str(rank) for rank, one in enumerate(ranks) if len(one.told) == least and not one.done]
    return f"rank{'s' if len(late) > 1 else ''} {', '.join(late)} least of all"


def _end(ranks: list[_Rank]) -> None:
    for one in ranks:
        if one.process.is_alive() and not one.done:
            one.process.kill()
    for one in ranks:
        one.process.join(10)
        if one.process.is_alive():
            one.process.kill()
            one.process.join()
        one.connection.close()
