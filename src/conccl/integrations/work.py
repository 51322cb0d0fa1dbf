"""Work objects: what torch.distributed's asynchronous calls return."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from conccl.core.errors import WaitTimeoutError
from conccl.transports.courier import Courier
from conccl.transports.mail import Receiving, Sending

Tensors = list[torch.Tensor]


class Finished(dist.Work):
    """A call that was carried out before it returned."""

    def __init__(self, result: Tensors, /) -> None:
        super().__init__()
        self._result = result

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Nothing is left to wait for."""
        del timeout
        return True

    def is_completed(self) -> bool:
        """It is."""
        return True

    def is_success(self) -> bool:
        """It is; a call that fails raises instead."""
        return True

    def exception(self) -> BaseException | None:
        """None."""
        return None

    def result(self) -> Tensors:
        """The output tensors."""
        return self._result

    def synchronize(self) -> None:
        """Nothing is left to wait for."""

    def get_future(self) -> Any:
        """A future that is done."""
        future: Any = torch.futures.Future()
        future.set_result(self._result)
        return future


class Queued(dist.Work):
    """A call that the group's thread carries out, in the order in which calls were issued."""

    def __init__(self, run: Callable[[], None], result: Tensors, /) -> None:
        super().__init__()
        self._run: Callable[[], None] | None = run
        self._result = result
        self._error: BaseException | None = None
        self._gate = threading.Lock()
        self._gate.acquire()
        self._open = False
        self._future: Any = None
        self._making = threading.Lock()

    def carry_out(self) -> None:
        """Run it; whoever waits goes on, with its error if it has one."""
        assert self._run is not None
        try:
            self._run()
        except BaseException as error:  # it belongs to whoever waits
            self._error = error
        self._run = None  # drops what was kept alive for it
        with self._making:
            self._open = True
            future = self._future
        self._gate.release()
        if future is not None:
            self._settle(future)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until it is carried out; raises its error."""
        seconds = timeout.total_seconds() if timeout else -1
        if not self._open:
            if not self._gate.acquire(timeout=seconds if seconds > 0 else -1):
                raise WaitTimeoutError(f"the call was not complete after {seconds:g} s; it goes on.")
            self._gate.release()
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Whether it has been carried out, well or not."""
        return self._open

    def is_success(self) -> bool:
        """Whether it has been carried out well."""
        return self._open and self._error is None

    def exception(self) -> BaseException | None:
        """Its error, if it has one."""
        return self._error

    def result(self) -> Tensors:
        """The output tensors."""
        self.wait()
        return self._result

    def synchronize(self) -> None:
        """Until it is carried out."""
        self.wait()

    def get_future(self) -> Any:
        """A future of the output tensors."""
        with self._making:
            if self._future is None:
                self._future = torch.futures.Future()
                settle_now = self._open
            else:
                settle_now = False
        if settle_now:
            self._settle(self._future)
        return self._future

    def _settle(self, future: Any) -> None:
        if self._error is None:
            future.set_result(self._result)
        else:
            error = self._error
            future.set_exception(error if isinstance(error, Exception) else RuntimeError(str(error)))


class Mailed(dist.Work):
    """A send or a receive."""

    def __init__(
        self,
        one: Sending | Receiving,
        courier: Courier,
        result: Tensors,
        finish: Callable[[], None] | None,
        /,
    ) -> None:
        super().__init__()
        self._one = one
        self._courier = courier
        self._result = result
        self._finish = finish
        self._finishing = threading.Lock()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until the message is through; raises what ends the group."""
        seconds = timeout.total_seconds() if timeout else 0
        self._courier.wait(self._one, timeout_s=seconds or None)
        with self._finishing:
            if self._finish is not None:
                self._finish()
                self._finish = None
        return True

    def is_completed(self) -> bool:
        """Whether the message is through."""
        if self._one.done and self._finish is not None:
            self.wait()
        return self._one.done

    def is_success(self) -> bool:
        """Whether the message is through."""
        return self.is_completed()

    def exception(self) -> BaseException | None:
        """None: waiting raises."""
        return None

    def result(self) -> Tensors:
        """The tensor that was received."""
        self.wait()
        return self._result

    def synchronize(self) -> None:
        """Until the message is through."""
        self.wait()

    def source_rank(self) -> int:
        """Who sent it."""
        return self._one.rank

    def _source_rank(self) -> int:
        return self._one.rank

    def get_future(self) -> Any:
        """A future of the tensor; waits for the message."""
        self.wait()
        future: Any = torch.futures.Future()
        future.set_result(self._result)
        return future


class CallQueue:
    """Carries out calls one after the other in a thread, started by the first."""

    def __init__(self, name: str, /) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Queued | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._waiting = 0
        self._counting = threading.Lock()

    @property
    def is_idle(self) -> bool:
        """Whether all that was put in has been carried out."""
        return self._waiting == 0

    def put(self, run: Callable[[], None], result: Tensors, /) -> Queued:
        """Carry this out after all that was put in before."""
        work = Queued(run, result)
        with self._counting:
            self._waiting += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
        self._calls.put(work)
        return work

    def close(self) -> None:
        """Carry out what is left and end the thread."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._calls.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (work := self._calls.get()) is not None:
            work.carry_out()
            with self._counting:
                self._waiting -= 1
