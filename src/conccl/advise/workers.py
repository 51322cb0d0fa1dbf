"""Spreads tasks over processes: this one, and children that run nothing but this module.

The children are plain subprocesses that talk over pipes. Unlike the pools of multiprocessing they never run
the caller's main module again (so that `analyze` may stand unguarded in a script), and one that dies, for
instance for want of memory, costs its task and no other.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, Generic, TypeVar, cast

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """In place of a result: the child that worked on the task died."""

    exit_code: int
    """As the system gives it: negative, killed by that signal."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """What a child sends where the function raised."""

    error: BaseException


_GIVEN_BACK = object()


def spread(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    /,
    *,
    processes: int,
    done: Callable[[], None] = lambda: None,
) -> list[Result | Died]:
    """The function of every task, in the tasks' order, over this many processes, this one included.

    The function must be importable by name; ``done`` is called after each task. An exception ends all.
    """
    crew = _Crew(function=function, tasks=tasks, done=done)
    children: list[_Child] = []
    try:
        with contextlib.suppress(RuntimeError):  # no more threads: then it goes with fewer
            for _ in range(min(processes, len(tasks)) - 1):
                child = _Child(crew)
                child.start()
                children.append(child)
        crew.work(function)
        for child in children:
            child.join()
        crew.work(function)  # what children gave back
    finally:
        crew.waiting.clear()
        for child in children:
            child.stop()
    if crew.error is not None:
        raise crew.error
    return crew.results


_ahead: list[subprocess.Popen[bytes]] = []
"""Children that began before there was work for them."""


@contextlib.contextmanager
def children_ahead(count: int, /, *, module: str) -> Iterator[None]:
    """Begin this many children now; they import the module while this process does its own imports.

    `spread` takes them where it needs children; what it does not take ends with the context.
    """
    with contextlib.suppress(*_CANNOT_BEGIN):
        _ahead.extend(_begin(module) for _ in range(count))
    try:
        yield
    finally:
        while _ahead:
            _end(_ahead.pop())


def cpus() -> int:
    """CPUs that this process may run on."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Crew(Generic[Task, Result]):
    """The tasks that wait, and the results so far."""

    def __init__(
        self, *, function: Callable[[Task], Result], tasks: Sequence[Task], done: Callable[[], None]
    ) -> None:
        self.function = function
        self.waiting = deque(enumerate(tasks))
        self.results: list[Result | Died] = [Died(exit_code=0)] * len(tasks)
        self.error: BaseException | None = None
        self._done = done
        self._lock = threading.Lock()

    def work(self, function: Callable[[Task], object], /) -> None:
        """Take tasks until none waits or one failed."""
        while self.error is None:
            try:
                index, task = self.waiting.popleft()
            except IndexError:
                return
            result = function(task)
            if result is _GIVEN_BACK:
                self.waiting.appendleft((index, task))
                return
            with self._lock:
                self.results[index] = cast("Result | Died", result)
                self._done()


class _Child(threading.Thread):
    """Feeds one child process; begins a new one where it dies."""

    def __init__(self, crew: _Crew[Any, Any], /) -> None:
        super().__init__(daemon=True)
        self._crew = crew
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        try:
            self._crew.work(self._ask)
        except BaseException as error:
            self._crew.error = self._crew.error or error

    def stop(self) -> None:
        """End the process, at work or not."""
        process, self._process = self._process, None  # the thread itself may stop it too
        if process is not None:
            _end(process)

    def _ask(self, task: Any, /) -> Any:
        try:
            process = self._process = self._process or _next()
        except _CANNOT_BEGIN:
            return _GIVEN_BACK
        try:
            _send(cast("IO[bytes]", process.stdin), (self._crew.function, task))
            answer = pickle.load(cast("IO[bytes]", process.stdout))
        except (EOFError, OSError, pickle.UnpicklingError):
            if self._crew.error is not None:
                raise
            exit_code = process.wait()
            self.stop()
            # A child that ends by itself could not begin (no conccl to import, say): do its work here.
            return _GIVEN_BACK if exit_code >= 0 else Died(exit_code=exit_code)
        if isinstance(answer, _Failed):
            raise answer.error
        return answer


_CANNOT_BEGIN = (OSError, TypeError)
"""Too many processes, or (where Python is embedded in another program) no interpreter to run."""


def _next() -> subprocess.Popen[bytes]:
    try:
        return _ahead.pop()
    except IndexError:
        return _begin()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()


_DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
"""A terminal interrupts children too, whatever they are at; this process ends them."""


def _begin(module: str = "") -> subprocess.Popen[bytes]:
    # One thread each: the children share the cores, and numpy's thread pool costs start-up time.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", f"{_DEAF}; from conccl.advise.workers import serve; serve({module!r})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )


def _send(pipe: IO[bytes], value: Any, /) -> None:
    pickle.dump(value, pipe, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def serve(module: str = "") -> None:
    """A child's life: answer tasks until the pipe closes. What is printed goes to standard error.

    A module that is named is imported before the first task comes.
    """
    keep_freed_memory()
    collect_garbage_seldom()
    if module:
        importlib.import_module(module)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            function, task = pickle.load(sys.stdin.buffer)
            try:
                result = function(task)
            except Exception as error:
                result = _Failed(error)
            _send(answers, result)


_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
"""Of mallopt(3)."""


def collect_garbage_seldom() -> None:
    """Look for cycles of garbage a hundredth as often: reading makes millions of objects and no cycles."""
    gc.set_threshold(70_000)


def keep_freed_memory() -> None:
    """Ask glibc not to give freed memory back to the system: for processes that only read traces.

    Chunks of text come and go a thousand times; giving each back costs a page fault for every 4 KiB of the
    next, a third of the whole time on a busy machine. Other C libraries are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 1 << 28)
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)
        mallopt(_M_TOP_PAD, 1 << 25)
