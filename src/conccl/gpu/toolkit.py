"""The CUDA driver and NVRTC from Python: checked calls, kernels compiled when first needed, launches.

Works in PyTorch's context of the current device: `torch.cuda` must have been initialised before.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

from conccl.core.errors import ExecutionError, MissingExtraError

SOURCE = Path(__file__).with_name("kernels.cu")

SIGNATURES: dict[str, tuple[Any, ...]] = {
    "conccl_hold": (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p),
    "conccl_copy": (
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64),
        *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    ),
    "conccl_await": (ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p),
}
"""Kernel -> types of its arguments, as kernels.cu has them."""


def driver() -> Any:
    """The driver's bindings."""
    try:
        from cuda.bindings import driver as bindings  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(module="cuda-bindings", extra="gpu") from error
    return bindings


def checked(result: tuple[Any, ...], /) -> Any:
    """What a call of the bindings gave beside its code; an error where that is none of success."""
    code, *values = result
    if int(code) != 0:
        raise ExecutionError(f"the CUDA driver answered {getattr(code, 'name', code)} ({int(code)}).")
    return values[0] if len(values) == 1 else tuple(values)


def compiled(architecture: str, /) -> bytes:
    """kernels.cu as a cubin for an architecture ("sm_90"); needs no GPU."""
    try:
        from cuda.bindings import nvrtc  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(module="cuda-bindings", extra="gpu") from error
    program = checked(nvrtc.nvrtcCreateProgram(SOURCE.read_bytes(), b"kernels.cu", 0, [], []))
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(code) != 0:
        log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(program))
        checked(nvrtc.nvrtcGetProgramLog(program, log))
        raise ExecutionError(f"kernels.cu does not compile for {architecture}: {log.decode().strip()}")
    cubin: bytes = b" " * checked(nvrtc.nvrtcGetCUBINSize(program))
    checked(nvrtc.nvrtcGetCUBIN(program, cubin))
    return cubin


@functools.cache
def kernel(name: str, device: int = 0) -> Any:
    """A kernel of kernels.cu, of no context, so that it runs in green contexts' streams too."""
    cuda = driver()
    attribute = cuda.CUdevice_attribute
    major, minor = (
        checked(cuda.cuDeviceGetAttribute(one, device))
        for one in (
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    return checked(cuda.cuLibraryGetKernel(_library(f"sm_{major}{minor}"), name.encode()))


@functools.cache
def _library(architecture: str) -> Any:
    return checked(driver().cuLibraryLoadData(compiled(architecture), [], [], 0, [], [], 0))


def launch(
    name: str, /, *arguments: int, grid: int, block: int, stream: int, shared_nbytes: int = 0, device: int = 0
) -> None:
    """Put a kernel into a stream; pointers as integers."""
    cuda, function = driver(), kernel(name, device)
    if shared_nbytes:
        limit = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(cuda.cuKernelSetAttribute(limit, shared_nbytes, function, checked(cuda.cuDeviceGet(device))))
    parameters = (tuple(arguments), SIGNATURES[name])
    handle = cuda.CUfunction(int(function))
    checked(cuda.cuLaunchKernel(handle, grid, 1, 1, block, 1, 1, shared_nbytes, stream, parameters, 0))


@functools.cache
def split_streams(sms: int, /, *, device: int = 0, priorities: tuple[int, int] = (0, 0)) -> Any:
    """Streams on two disjoint groups of SMs from one split: (stream, SMs) of ``sms`` and of the rest.

    Made once in a process. Two contexts made apart can share SMs (pytorch #195378): only groups of one split
    are disjoint.
    """
    cuda = driver()
    gpu = checked(cuda.cuDeviceGet(device))
    kind = cuda.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    everything = checked(cuda.cuDeviceGetDevResource(gpu, kind))
    groups, _, rest = checked(cuda.cuDevSmResourceSplitByCount(1, everything, 0, sms))
    flags = cuda.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
    found = []
    for resource, priority in zip((groups[0], rest), priorities, strict=True):
        description = checked(cuda.cuDevResourceGenerateDesc([resource], 1))
        context = checked(cuda.cuGreenCtxCreate(description, gpu, flags))
        mode = cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
        stream = checked(cuda.cuGreenCtxStreamCreate(context, mode, priority))
        found.append((int(stream), int(resource.sm.smCount)))
    return tuple(found)
