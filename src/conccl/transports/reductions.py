"""Reductions of bytes in memory, element by element, at the speed of numpy's and PyTorch's kernels.

Operands are combined in the order given and rounded to the element type as PyTorch rounds. Types narrower
than 32 bits (bf16, fp16, fp8) are added in fp32 and rounded once for each reduction, however many operands it
has; an algorithm that reduces in several steps rounds once a step. fp32 and fp64 are added in themselves,
integers wrap, booleans combine as `conccl.collectives.elements` has them.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from conccl.core.errors import InputError, MissingExtraError

Array = npt.NDArray[Any]
Reduce = Callable[[int, Sequence[int], int, int | None], None]
"""(destination, sources, bytes, divisor): combine; addresses may be equal, but must not overlap otherwise."""

_CHUNK = 32_768
"""Elements reduced at a time in fp32: the chunk and its sum stay in a core's second-level cache, and PyTorch
starts no threads for so few (its grain is as large)."""

_NUMPY: dict[str, Any] = {
    "float32": np.float32,
    "float64": np.float64,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
    "bool": np.bool_,
    "complex64": np.complex64,
    "complex128": np.complex128,
}
_NARROW = {
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
}
_UFUNC: dict[str, np.ufunc] = {
    "sum": np.add,
    "avg": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
_BOOLEAN = {"sum": np.logical_or, "max": np.logical_or, "product": np.logical_and, "min": np.logical_and}


def element_nbytes(dtype: str, /) -> int | None:
    """Bytes of an element that can be reduced; None for other types."""
    if dtype in _NUMPY:
        return int(np.dtype(_NUMPY[dtype]).itemsize)
    return _NARROW.get(dtype)


def why_not(dtype: str, reduction: str, /) -> str | None:
    """Why elements of this type cannot be reduced so; None if they can."""
    if element_nbytes(dtype) is None:
        return f"elements of type {dtype} cannot be reduced; {', '.join((*_NUMPY, *_NARROW))} can"
    bitwise = reduction in ("band", "bor", "bxor")
    if bitwise and (dtype in _NARROW or dtype.startswith(("float", "complex"))):
        return f"{reduction} is for integers and booleans, not for {dtype}"
    if reduction == "avg" and dtype == "bool":
        return "booleans have no average; use sum or max (or), product or min (and)"
    if reduction in ("min", "max") and dtype.startswith("complex"):
        return f"complex numbers have no {reduction}"
    return None


@cache
def reducer(dtype: str, reduction: str, /) -> Reduce:
    """The function that reduces elements of this type so."""
    reason = why_not(dtype, reduction)
    if reason is not None:
        raise InputError(f"{reason}.")
    if dtype in _NARROW:
        return _narrow(dtype, reduction)
    return _native(np.dtype(_NUMPY[dtype]), reduction)


def view(address: int, nbytes: int, dtype: Any, /) -> Array:
    """Memory as an array; whoever owns it must keep it alive."""
    memory: Any = (ctypes.c_char * nbytes).from_address(address)
    array: Array = np.frombuffer(memory, dtype=dtype)
    return array


class _Scratch(threading.local):
    """Memory for partial sums that stays in the cache from one reduction to the next."""

    held: npt.NDArray[np.uint8] = np.empty(0, np.uint8)


_scratch = _Scratch()


def _partial(nbytes: int) -> npt.NDArray[np.uint8]:
    if _scratch.held.size < nbytes:
        _scratch.held = np.empty(nbytes, np.uint8)
    return _scratch.held[:nbytes]


def _native(dtype: np.dtype[Any], reduction: str) -> Reduce:
    ufunc = _BOOLEAN.get(reduction, _UFUNC[reduction]) if dtype == np.bool_ else _UFUNC[reduction]
    divide = _divide(dtype)

    def reduce(destination: int, sources: Sequence[int], nbytes: int, divisor: int | None) -> None:
        out = view(destination, nbytes, dtype)
        first, *others = (view(source, nbytes, dtype) for source in sources)
        if not others:
            np.copyto(out, first)
        # Sums of all but the last go elsewhere: the destination may be a source that is yet to be read.
        partial = _partial(nbytes).view(dtype) if len(others) > 1 else out
        with np.errstate(all="ignore"):
            for number, other in enumerate(others):
                to = out if number == len(others) - 1 else partial
                ufunc(first, other, out=to)
                first = to
            if divisor is not None:
                divide(out, divisor)

    return reduce


def _divide(dtype: np.dtype[Any]) -> Callable[[Array, int], None]:
    if dtype.kind in "fc":

        def exactly(out: Array, divisor: int) -> None:
            np.divide(out, dtype.type(divisor), out=out)

        return exactly

    def towards_zero(out: Array, divisor: int) -> None:  # as in C
        quotient = out // dtype.type(divisor)
        if dtype.kind == "i":
            quotient += ((out < 0) & (quotient * dtype.type(divisor) != out)).astype(dtype)
        out[...] = quotient

    return towards_zero


def _narrow(dtype: str, reduction: str) -> Reduce:
    try:
        import torch  # noqa: PLC0415 (only who reduces narrow types needs it)
    except ImportError as error:
        raise MissingExtraError(module="torch", extra="torch") from error
    kind, nbytes_each = getattr(torch, dtype), _NARROW[dtype]
    combine: Callable[[Any, Any], Any] = {
        "sum": torch.Tensor.add_,
        "avg": torch.Tensor.add_,
        "product": torch.Tensor.mul_,
        "min": lambda one, other: torch.minimum(one, other.float(), out=one),
        "max": lambda one, other: torch.maximum(one, other.float(), out=one),
    }[reduction]
    mixes = dtype in ("float16", "bfloat16")  # PyTorch adds these to fp32 in one pass

    def tensor(address: int, nbytes: int) -> Any:
        return torch.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype=kind)

    def reduce(destination: int, sources: Sequence[int], nbytes: int, divisor: int | None) -> None:
        step = _CHUNK * nbytes_each
        for start in range(0, nbytes, step):
            length = min(step, nbytes - start)
            operands = [tensor(source + start, length) for source in sources]
            out = tensor(destination + start, length)
            if mixes and len(operands) == 2 and divisor is None and reduction == "sum":
                torch.add(operands[0], operands[1], out=out)
                continue
            total = operands[0].float()
            for other in operands[1:]:
                combine(total, other if mixes else other.float())
            if divisor is not None:
                total.div_(divisor)
            out.copy_(total)

    return reduce
