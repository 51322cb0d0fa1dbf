"""What workers of the tests run: it must be importable in a fresh process."""

import os
import signal
import time

from conccl.core.errors import InputError, WaitTimeoutError
from conccl.gpu.executor import GpuExecutor
from conccl.gpu.measuring import measured
from conccl.gpu.sampling import Stopping
from gpu.fake_driver import FakeDriver


def start():
    """What answers in the worker: the fake driver, and requests that end badly."""
    executor = GpuExecutor(driver=FakeDriver(ns={"t": 700}))

    def answer(plan):
        match plan.label:
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(3)
            case "hang":
                time.sleep(60)
            case "memory":
                raise MemoryError("CUDA out of memory. Tried to allocate 8 GiB")
            case "fault":
                raise RuntimeError("an illegal memory access was encountered")
            case "wait":
                raise WaitTimeoutError("rank 0 waits")
            case "unsupported":
                raise InputError("cannot do that. Do this.")
        return measured(plan, executor=executor, stopping=Stopping(fewest=3))

    return answer


def failing_start():
    raise RuntimeError("no kernel image")
