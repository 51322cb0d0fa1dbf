"""Runs a function as several real processes, the ranks of a group, and collects what they return.

Processes are forked from a server that has imported PyTorch and conccl once, so that starting some costs
milliseconds. A rank that hangs is killed and told of; one that dies is told of unless that is the point.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any

import pytest

_HERE = Path(__file__).parent
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["preloaded"])


def _start_server() -> None:
    """The server imports before it is told where from, so it is told by its environment."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_HERE.parent / "src"), str(_HERE), before or ""])
    try:
        ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@dataclass(frozen=True)
class Outcome:
    """What became of a rank."""

    value: Any = None
    error: str = ""
    """Its exception, type first."""
    trace: str = ""
    ended_by: int = 0
    """The signal that killed it, or its exit code where that is not 0."""
    seconds: float = 0.0


def outcomes(
    count: int, function: Callable[..., Any], /, *args: Any, timeout_s: float = 60.0
) -> list[Outcome]:
    """function(rank, count, *args) as ``count`` processes; what became of each."""
    _start_server()
    pairs = [_context.Pipe(duplex=False) for _ in range(count)]
    processes = [
        _context.Process(target=_child, args=(theirs, function, rank, count, args), daemon=True)
        for rank, (_, theirs) in enumerate(pairs)
    ]
    for process in processes:
        process.start()
    for _, theirs in pairs:
        theirs.close()
    deadline = time.monotonic() + timeout_s
    found = []
    try:
        for process, (mine, _) in zip(processes, pairs, strict=True):
            found.append(_collect(process, mine, deadline))
    finally:
        for process in processes:
            if process.is_alive():
                with contextlib.suppress(ProcessLookupError):  # it may end right now
                    os.kill(process.pid, signal.SIGKILL)
            process.join()
    return found


def run_ranks(count: int, function: Callable[..., Any], /, *args: Any, timeout_s: float = 60.0) -> list[Any]:
    """As `outcomes`, of ranks that must all succeed: what they returned."""
    found = outcomes(count, function, *args, timeout_s=timeout_s)
    for rank, one in enumerate(found):
        if one.error or one.ended_by:
            pytest.fail(
                f"rank {rank} of {count}: {one.error} {one.ended_by or ''}\n{one.trace}", pytrace=False
            )
    return [one.value for one in found]


def _collect(process: Any, connection: Connection, deadline: float) -> Outcome:
    if not connection.poll(max(0.0, deadline - time.monotonic())):
        return Outcome(error="Hang: it was not done in time")
    try:
        outcome: Outcome = connection.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        return Outcome(ended_by=-code if code < 0 else code)
    return outcome


def _child(connection: Connection, function: Callable[..., Any], rank: int, count: int, args: Any) -> None:
    began = time.monotonic()
    try:
        value = function(rank, count, *args)
        outcome = Outcome(value=value, seconds=time.monotonic() - began)
    except BaseException as error:
        outcome = Outcome(
            error=f"{type(error).__name__}: {error}",
            trace=traceback.format_exc(),
            seconds=time.monotonic() - began,
        )
    connection.send(outcome)
    connection.close()
