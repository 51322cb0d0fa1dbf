import numpy as np
import pytest

from conccl.collectives.elements import EPSILON, combine, decode, encode
from conccl.core.ops import DType, ReduceOp

TORCH = {
    DType.BF16: "bfloat16",
    DType.FP16: "float16",
    DType.FP8_E4M3: "float8_e4m3fn",
    DType.FP8_E5M2: "float8_e5m2",
}


def patterns(dtype: DType) -> np.ndarray:
    """Every bit pattern of a one- or two-byte type, as bytes."""
    count, kind = (256, np.uint8) if dtype.nbytes == 1 else (65536, np.uint16)
    return np.arange(count, dtype=kind).view(np.uint8)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", TORCH)
def test_values_are_those_of_pytorch(dtype: DType):
    torch = pytest.importorskip("torch")
    right = torch.from_numpy(patterns(dtype).copy()).view(getattr(torch, TORCH[dtype])).float().numpy()
    np.testing.assert_array_equal(decode(patterns(dtype), dtype), right)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", TORCH)
def test_rounding_is_that_of_pytorch(dtype: DType):
    torch = pytest.importorskip("torch")
    known = decode(patterns(dtype), dtype)
    known = np.sort(known[np.isfinite(known)]).astype(np.float64)
    ties = (known[:-1] + known[1:]) / 2
    source = np.random.default_rng(0)
    spread = source.normal(size=50_000) * np.exp(source.uniform(-14, 5, 50_000))
    values = np.concatenate([known, ties, spread]).astype(np.float32)
    values = values[np.abs(values) <= known[-1]]  # beyond, PyTorch's releases differ
    right = torch.from_numpy(values).to(getattr(torch, TORCH[dtype])).float().numpy()
    np.testing.assert_array_equal(decode(encode(values, dtype), dtype), right)


@pytest.mark.parametrize("dtype", list(DType))
def test_every_pattern_survives(dtype: DType):
    data = patterns(dtype) if dtype.nbytes <= 2 else np.arange(1 << 12, dtype=np.uint8)
    if dtype is DType.BOOL:
        data = data[:2]
    values = decode(data, dtype)
    usable = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(values.shape, dtype=bool)
    again = decode(encode(values, dtype), dtype)
    np.testing.assert_array_equal(values[usable], again[usable])
    assert np.isnan(again[~usable]).all()


def test_what_overflows():
    big = np.array([1e30, -1e30, np.inf, np.nan], dtype=np.float32)
    np.testing.assert_array_equal(
        decode(encode(big, DType.FP8_E4M3), DType.FP8_E4M3), [448, -448, 448, np.nan]
    )
    np.testing.assert_array_equal(
        decode(encode(big, DType.FP8_E5M2), DType.FP8_E5M2), [np.inf, -np.inf, np.inf, np.nan]
    )
    np.testing.assert_array_equal(decode(encode(big[2:], DType.BF16), DType.BF16), [np.inf, np.nan])


@pytest.mark.parametrize("dtype", list(EPSILON))
def test_one_rounding_is_within_epsilon(dtype: DType):
    values = np.random.default_rng(1).uniform(1, 2, 1000)
    error = np.abs(decode(encode(values, dtype), dtype).astype(np.float64) - values) / values
    assert error.max() <= EPSILON[dtype]
    if dtype.nbytes < 4:
        assert error.max() > EPSILON[dtype] / 2


def combined(reduce_op: ReduceOp, dtype: DType, *rows: list, divisor: int = 0) -> list:
    sources = [encode(np.array(row), dtype) for row in rows]
    result = combine(sources, dtype=dtype, reduce_op=reduce_op, divisor=divisor or len(rows))
    return decode(result, dtype).tolist()


@pytest.mark.parametrize(
    ("reduce_op", "expected"),
    [
        (ReduceOp.SUM, [3, -1, 12]),
        (ReduceOp.AVG, [1.5, -0.5, 6]),
        (ReduceOp.PRODUCT, [2, -6, 32]),
        (ReduceOp.MIN, [1, -3, 4]),
        (ReduceOp.MAX, [2, 2, 8]),
    ],
)
@pytest.mark.parametrize("dtype", [DType.BF16, DType.FP32, DType.FP8_E4M3, DType.FP64])
def test_operations(reduce_op: ReduceOp, expected: list, dtype: DType):
    assert combined(reduce_op, dtype, [1, 2, 4], [2, -3, 8]) == expected


def test_integers_wrap_and_are_divided_towards_zero():
    assert combined(ReduceOp.SUM, DType.INT8, [127], [1]) == [-128]
    assert combined(ReduceOp.SUM, DType.UINT8, [255], [3]) == [2]
    assert combined(ReduceOp.AVG, DType.INT32, [-3, 3], [-4, 4]) == [-3, 3]
    assert combined(ReduceOp.AVG, DType.INT64, [9], divisor=4) == [2]


def test_booleans_are_or_and_and():
    rows = [False, True, False, True], [False, False, True, True]
    assert combined(ReduceOp.SUM, DType.BOOL, *rows) == [False, True, True, True]
    assert combined(ReduceOp.MAX, DType.BOOL, *rows) == [False, True, True, True]
    assert combined(ReduceOp.PRODUCT, DType.BOOL, *rows) == [False, False, False, True]
    assert combined(ReduceOp.MIN, DType.BOOL, *rows) == [False, False, False, True]


def test_low_precision_is_summed_in_fp32_and_rounded_once():
    assert combined(ReduceOp.SUM, DType.BF16, [256.0], [1.0], [1.0]) == [258]  # bf16 steps: 256, 258


def test_nan_is_not_lost():
    for reduce_op in ReduceOp:
        assert np.isnan(combined(reduce_op, DType.FP32, [1.0], [np.nan])[0])
