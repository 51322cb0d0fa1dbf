"""Element types by the names that profilers write."""

from __future__ import annotations

from typing import Any

from conccl.core.kinds import DType

# Names as c10 and Kineto write them (c10/core/ScalarType.h).
_DTYPES = {
    "bfloat16": DType.BF16,
    "c10::bfloat16": DType.BF16,
    "half": DType.FP16,
    "c10::half": DType.FP16,
    "float": DType.FP32,
    "double": DType.FP64,
    "float8_e4m3fn": DType.FP8_E4M3,
    "float8_e4m3fnuz": DType.FP8_E4M3,
    "c10::float8_e4m3fn": DType.FP8_E4M3,
    "float8_e5m2": DType.FP8_E5M2,
    "float8_e5m2fnuz": DType.FP8_E5M2,
    "c10::float8_e5m2": DType.FP8_E5M2,
    "char": DType.INT8,
    "signed char": DType.INT8,
    "byte": DType.UINT8,
    "unsigned char": DType.UINT8,
    "short": DType.INT16,
    "int": DType.INT32,
    "long": DType.INT64,
    "long int": DType.INT64,
    "bool": DType.BOOL,
}


def dtype_named(value: Any, /) -> DType | None:
    """The element type that c10 calls so; None where there is none."""
    return _DTYPES.get(value.lower()) if isinstance(value, str) else None
