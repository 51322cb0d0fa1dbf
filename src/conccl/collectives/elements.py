"""Element types in numpy, bf16 and fp8 included, and how elements combine.

Buffers are arrays of bytes. Floating-point values are combined in fp32 (fp64 in fp64) and rounded once, to
nearest even, when they are written: what reduction kernels do. Integers wrap. Booleans combine as PyTorch's
process groups have it: sum and max are or, product and min are and.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from conccl.core.ops import DType, ReduceOp

Bytes = npt.NDArray[np.uint8]
Values = npt.NDArray[Any]

_NATIVE: dict[DType, Any] = {
    DType.FP16: np.float16,
    DType.FP32: np.float32,
    DType.TF32: np.float32,  # an fp32 in memory
    DType.FP64: np.float64,
    DType.INT8: np.int8,
    DType.UINT8: np.uint8,
    DType.INT16: np.int16,
    DType.INT32: np.int32,
    DType.INT64: np.int64,
    DType.BOOL: np.bool_,
}

EPSILON = {
    DType.BF16: 2.0**-8,
    DType.FP16: 2.0**-11,
    DType.FP32: 2.0**-24,
    DType.TF32: 2.0**-24,
    DType.FP64: 2.0**-53,
    DType.FP8_E4M3: 2.0**-4,
    DType.FP8_E5M2: 2.0**-3,
}
"""The largest relative error of one rounding to nearest, for normal numbers."""


def decode(data: Bytes, dtype: DType, /) -> Values:
    """The values of elements: fp64 or integers as they are, every other floating-point type as fp32."""
    if dtype is DType.BF16:
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype in _FP8:
        return _fp8_values(dtype)[data]
    values: Values = data.view(_NATIVE[dtype])
    return values.astype(np.float32) if dtype is DType.FP16 else values


def encode(values: Values, dtype: DType, /) -> Bytes:
    """The bytes of values, rounded to nearest even."""
    if dtype is DType.BF16:
        return _to_bf16(np.ascontiguousarray(values, dtype=np.float32)).view(np.uint8)
    if dtype in _FP8:
        return _to_fp8(np.asarray(values, dtype=np.float32), dtype)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype=_NATIVE[dtype]).view(np.uint8)


def combine(sources: Sequence[Bytes], /, *, dtype: DType, reduce_op: ReduceOp, divisor: int) -> Bytes:
    """What a reduction writes: the sources in the order given, for avg divided by ``divisor``."""
    values = [decode(source, dtype) for source in sources]
    if dtype is DType.BOOL:
        either = reduce_op in (ReduceOp.SUM, ReduceOp.MAX)
        ufunc = np.logical_or if either else np.logical_and
        return encode(ufunc.reduce(values), dtype)
    total = values[0].copy()
    with np.errstate(over="ignore", invalid="ignore"):
        for one in values[1:]:
            _UFUNC[reduce_op](total, one, out=total)
        if reduce_op is ReduceOp.AVG:
            total = _divided(total, divisor)
        return encode(total, dtype)


_UFUNC = {
    ReduceOp.SUM: np.add,
    ReduceOp.AVG: np.add,
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
}


def _divided(total: Values, divisor: int) -> Values:
    if total.dtype.kind == "f":
        quotient: Values = total / total.dtype.type(divisor)
        return quotient
    magnitude = np.abs(total.astype(np.int64)) // divisor  # integers as in C: towards zero
    return np.asarray(np.sign(total) * magnitude, dtype=total.dtype)


def _to_bf16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    bits = values.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    nan = np.uint16(0x7FC0)
    return np.where(np.isnan(values), nan, rounded)


_FP8 = {DType.FP8_E4M3: (4, 3, 7), DType.FP8_E5M2: (5, 2, 15)}
"""Exponent bits, mantissa bits, exponent bias (OCP 8-bit floating point)."""


@cache
def _fp8_values(dtype: DType) -> npt.NDArray[np.float32]:
    """The value of each of the 256 patterns. e4m3 has no infinity; e5m2 is IEEE-like."""
    exponent_bits, mantissa_bits, bias = _FP8[dtype]
    pattern = np.arange(128)
    exponent, mantissa = pattern >> mantissa_bits, pattern & ((1 << mantissa_bits) - 1)
    fraction = mantissa / (1 << mantissa_bits)
    values = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    if dtype is DType.FP8_E4M3:
        values[127] = np.nan
    else:
        highest = exponent == (1 << exponent_bits) - 1
        values[highest] = np.where(mantissa[highest] == 0, np.inf, np.nan)
    both: npt.NDArray[np.float32] = np.concatenate([values, -values]).astype(np.float32)
    return both


@cache
def _fp8_bounds(dtype: DType) -> npt.NDArray[np.float32]:
    """Half-way points between neighbouring finite magnitudes, and the one beyond which a value overflows."""
    finite = _fp8_values(dtype)[:128]
    finite = finite[np.isfinite(finite)]
    beyond = 2 * finite[-1] - finite[-2]
    magnitudes = np.append(finite, beyond)
    return np.asarray((magnitudes[:-1] + magnitudes[1:]) / 2, dtype=np.float32)


def _to_fp8(values: npt.NDArray[np.float32], dtype: DType) -> Bytes:
    """What overflows becomes the largest value in e4m3, which has no infinity, and infinite in e5m2.

    So do PyTorch 2.13 and, for e4m3, CUDA's default conversion (saturate to finite).
    """
    bounds = _fp8_bounds(dtype)
    magnitude = np.abs(values)
    below = np.searchsorted(bounds, magnitude, side="left")  # a half-way point goes down
    odd_tie = (magnitude == bounds[np.minimum(below, len(bounds) - 1)]) & (below % 2 == 1)
    infinity = len(bounds) - (dtype is DType.FP8_E4M3)
    pattern = np.minimum(below + odd_tie, infinity)
    pattern = np.where(np.isnan(values), 127, pattern)
    return np.asarray(pattern | (np.signbit(values) << 7), dtype=np.uint8)
