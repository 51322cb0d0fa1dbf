"""Reductions of memory: every type and operation, addresses that coincide, one rounding."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conccl.core.errors import InputError
from conccl.transports.reductions import element_nbytes, reducer, why_not

WIDE = ["float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool", "complex64"]
NARROW = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
OPS = ["sum", "avg", "product", "min", "max", "band", "bor", "bxor"]


def tensors(dtype: str, count: int, numel: int, seed: int) -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(seed)
    kind = getattr(torch, dtype)
    values = [torch.randint(-4, 5, (numel,), generator=source) for _ in range(count)]
    if dtype == "bool":
        values = [one > 0 for one in values]
    elif dtype.startswith("uint"):
        values = [one.abs() for one in values]
    return [one.to(kind) for one in values]


def definition(dtype: str, op: str, values: list[torch.Tensor]) -> torch.Tensor:
    """Exact: in integers or fp64 (small whole numbers), rounded once."""
    if dtype == "bool":
        combined = torch.stack(values)
        if op == "bxor":
            return combined.sum(0) % 2 == 1
        return combined.any(0) if op in ("sum", "max", "bor") else combined.all(0)
    exact = torch.complex128 if dtype.startswith("complex") else torch.float64
    wide = torch.stack(
        [one.to(torch.int64) if op in ("band", "bor", "bxor") else one.to(exact) for one in values]
    )
    total = wide[0]
    for one in wide[1:]:
        total = {
            "sum": torch.add,
            "avg": torch.add,
            "product": torch.mul,
            "min": torch.minimum,
            "max": torch.maximum,
            "band": torch.bitwise_and,
            "bor": torch.bitwise_or,
            "bxor": torch.bitwise_xor,
        }[op](total, one)
    if op == "avg":
        total = total / len(values)
        if not dtype.startswith(("float", "bfloat", "complex")):
            total = total.trunc()
    return (
        total.to(torch.int64).to(getattr(torch, dtype)) if "int" in dtype else total.to(getattr(torch, dtype))
    )


def reduce(dtype: str, op: str, values: list[torch.Tensor], out: torch.Tensor) -> None:
    divisor = len(values) if op == "avg" else None
    reducer(dtype, op)(out.data_ptr(), [one.data_ptr() for one in values], out.nbytes, divisor)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", WIDE + NARROW)
def test_every_type_and_operation(dtype, op, count):
    reason = why_not(dtype, op)
    if reason is not None:
        with pytest.raises(InputError, match=r"for|have no"):
            reducer(dtype, op)
        return
    for numel in (1, 1003):
        values = tensors(dtype, count, numel, seed=count)
        want = definition(dtype, op, values)
        out = torch.zeros(numel, dtype=getattr(torch, dtype))
        reduce(dtype, op, values, out)
        if op == "avg" and dtype not in ("float64", "bool"):
            torch.testing.assert_close(
                out.to(torch.complex128), want.to(torch.complex128), rtol=1e-3, atol=1e-2
            )
        else:
            assert torch.equal(out.view(torch.uint8), want.view(torch.uint8))


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from(["float32", "bfloat16", "int32", "float8_e4m3fn"]),
    count=st.integers(1, 5),
    place=st.integers(0, 4),
    numel=st.integers(1, 70_000),
)
def test_the_result_may_lie_where_a_source_lies(dtype, count, place, numel):
    values = tensors(dtype, count, numel, seed=numel)
    want = definition(dtype, "sum", values)
    reduce(dtype, "sum", values, values[place % count])
    assert torch.equal(values[place % count].float(), want.float())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_types_are_rounded_once_however_many_are_added(dtype):
    kind = getattr(torch, dtype)
    values = [torch.randn(5000).to(kind) for _ in range(8)]
    out = torch.empty(5000, dtype=kind)
    reduce(dtype, "sum", values, out)
    total = values[0].float()
    for one in values[1:]:
        total = total + one.float()
    assert torch.equal(out, total.to(kind))


def test_two_of_a_narrow_type_add_as_pytorch_adds():
    one, other = torch.randn(40_000).bfloat16(), torch.randn(40_000).bfloat16()
    out = torch.empty_like(one)
    reduce("bfloat16", "sum", [one, other], out)
    assert torch.equal(out, one + other)


def test_overflow_and_not_a_number_are_values_and_not_warnings():
    big = torch.full((3,), 3e38)
    out = torch.empty(3)
    reduce("float32", "sum", [big, big], out)
    assert torch.isinf(out).all()
    nan = torch.tensor([float("nan"), 1.0, float("inf")])
    reduce("float32", "max", [nan, big], out)
    assert torch.isnan(out[0])
    assert out[2] == float("inf")
    ints = torch.full((2,), 2**31 - 1, dtype=torch.int32)
    whole = torch.empty(2, dtype=torch.int32)
    reduce("int32", "sum", [ints, ints], whole)
    assert whole.tolist() == [-2, -2]  # they wrap


def test_averages_of_whole_numbers_go_towards_zero():
    out = torch.empty(4, dtype=torch.int64)
    values = [torch.tensor([-3, 3, -4, 7]), torch.tensor([0, 0, 0, 0])]
    reduce("int64", "avg", values, out)
    assert out.tolist() == [-1, 1, -2, 3]


def test_memory_need_not_be_aligned():
    raw = np.zeros(4 * 10 + 1, np.uint8)
    raw[1:].view(np.uint8)[:] = np.arange(10, dtype=np.float32).view(np.uint8)
    out = np.zeros(10, np.float32)
    address = raw.ctypes.data + 1
    reducer("float32", "sum")(out.ctypes.data, [address, address], 40, None)
    assert out.tolist() == [2.0 * one for one in range(10)]


def test_unknown_types_are_refused():
    assert element_nbytes("bits8") is None
    with pytest.raises(InputError, match="elements of type qint8 cannot be reduced"):
        reducer("qint8", "sum")
