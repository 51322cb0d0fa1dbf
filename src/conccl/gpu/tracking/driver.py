"""What conccl asks of the CUDA driver beside PyTorch: stream memory operations and events, as a seam.

`CudaDriver` is the real one; tests put a driver in its place that keeps what it was told and carries it out
when told to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from conccl.core.errors import ExecutionError, MissingExtraError


class Driver(Protocol):
    """Operations on streams. A stream is what `torch.cuda.Stream.cuda_stream` is: a handle as a number."""

    def wait_until(self, stream: int, address: int, value: int, /) -> None:
        """Let what comes next on the stream wait until the word at this device address is at least this."""
        ...

    def write(self, stream: int, address: int, value: int, /) -> None:
        """Set the word at this device address, in the stream's turn."""
        ...

    def read(self, stream: int, address: int, count: int, /) -> tuple[int, ...]:
        """So many words from this device address on, in the stream's turn; waits for that stream alone."""
        ...

    def record(self, stream: int, /) -> Callable[[], bool]:
        """Whether the stream has come to this point, asked by a call; raises what the GPU failed with."""
        ...


class CudaDriver:
    """The driver, by cuda-bindings."""

    def __init__(self) -> None:
        try:
            from cuda.bindings import driver  # noqa: PLC0415 (an extra)
        except ImportError as error:
            raise MissingExtraError(module="cuda-bindings", extra="gpu") from error
        self._driver: Any = driver

    def wait_until(self, stream: int, address: int, value: int, /) -> None:
        """By cuStreamWaitValue32, whose comparison goes round at 2^31: counts stay far below that."""
        flag = self._driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        self._done(self._driver.cuStreamWaitValue32(stream, address, value, flag))

    def write(self, stream: int, address: int, value: int, /) -> None:
        """By cuStreamWriteValue32."""
        flag = self._driver.CUstreamWriteValue_flags.CU_STREAM_WRITE_VALUE_DEFAULT
        self._done(self._driver.cuStreamWriteValue32(stream, address, value, flag))

    def read(self, stream: int, address: int, count: int, /) -> tuple[int, ...]:
        """By a copy to the host on that stream."""
        words = bytearray(4 * count)
        self._done(self._driver.cuMemcpyDtoHAsync(words, address, len(words), stream))
        self._done(self._driver.cuStreamSynchronize(stream))
        return tuple(int.from_bytes(words[4 * i : 4 * i + 4], "little") for i in range(count))

    def record(self, stream: int, /) -> Callable[[], bool]:
        """By an event without timing."""
        event = self._done(self._driver.cuEventCreate(self._driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
        self._done(self._driver.cuEventRecord(event, stream))

        def is_done() -> bool:
            code = self._driver.cuEventQuery(event)[0]
            if code == self._driver.CUresult.CUDA_ERROR_NOT_READY:
                return False
            self._done((code,))
            return True

        return is_done

    def _done(self, result: tuple[Any, ...]) -> Any:
        """What a call returned; an error by its name where it failed."""
        code, *values = result
        if code != self._driver.CUresult.CUDA_SUCCESS:
            raise ExecutionError(f"the CUDA driver failed with {code.name}.")
        return values[0] if values else None
