"""A process that answers requests and may die of one: the next request gets a fresh process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from conccl.core.errors import ConcclError, ExecutionError, WaitTimeoutError

Answer = Callable[[Any], Any]

START_S = 120.0
"""What a fresh process may take to be ready: loading PyTorch and making a CUDA context."""


class WorkerDiedError(ExecutionError):
    """The process ended while it worked on a request."""


class Worker:
    """Runs ``start()`` in a process of its own, then calls what it returned on every request.

    Both are pickled: ``start`` is a function of a module. Exceptions come back and are raised here.
    """

    def __init__(self, start: Callable[[], Answer], /) -> None:
        self._start = start
        self._process: Any = None
        self._pipe: Any = None

    def ask(self, request: Any, /, *, seconds: float) -> Any:
        """The answer; `WaitTimeoutError` where there is none in time, `WorkerDiedError` where it died."""
        fresh = self._process is None
        if fresh:
            self._begin()
        try:
            self._pipe.send(request)
            if not self._pipe.poll(seconds + (START_S if fresh else 0.0)):
                self.close()
                raise WaitTimeoutError(f"no answer within {seconds:.0f} s; the process was stopped.")
            kind, value = self._pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            self._process.join(timeout=5.0)
            code = self._process.exitcode
            self.close()
            ending = f"signal {-code}" if code is not None and code < 0 else f"code {code}"
            raise WorkerDiedError(f"the process that ran it ended with {ending}.") from error
        if kind == "error":
            raise value
        return value

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            self._pipe.close()
            process.join(timeout=1.0)
            if process.is_alive():
                process.kill()
                process.join()

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._start, theirs), daemon=True)
        self._process.start()
        theirs.close()


def _serve(start: Callable[[], Answer], pipe: Any) -> None:
    try:
        answer = start()
    except Exception as error:
        pipe.recv()
        pipe.send(("error", _sendable(error)))
        return
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        try:
            reply = ("answer", answer(request))
        except Exception as error:
            reply = ("error", _sendable(error))
        pipe.send(reply)


def _sendable(error: Exception) -> Exception:
    """One of ours as it is; of others what they say, since reading them back may take their library."""
    if isinstance(error, ConcclError):
        return error
    return ExecutionError(f"{type(error).__name__}: {error}")
