"""Operators that launched kernels: which are kept, what their inputs were, what is no operator's input."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.kinds import DType
from conccl.traces.operators import HostOperator, host_operator
from made_kineto import Event, host_row, kernel, launch, read_one

LINEAR = {
    "Input Dims": [[512], [1024, 1705], [1705, 512], [], []],
    "Input type": ["float", "float", "float", "Scalar", "Scalar"],
    "Input Strides": [[1], [1705, 1], [1, 1705], [], []],
}
ADDMM = HostOperator(
    name="addmm",
    shapes=((512,), (1024, 1705), (1705, 512), (), ()),
    dtypes=(DType.FP32, DType.FP32, DType.FP32, None, None),
    strides=((1,), (1705, 1), (1, 1705), (), ()),
    lists=((),) * 5,
    values=(),
)


def launched(correlation: int, at: int, /, *around: Event) -> list[Event]:
    """A kernel at this time, launched 10 us before within these operators."""
    return [*around, launch(at - 10, correlation), kernel("some_kernel", at, 5, correlation=correlation)]


def test_the_innermost_operator_counts_and_only_kept_ones_are_kept(tmp_path: Path) -> None:
    trace = read_one(
        tmp_path / "a.json",
        [
            *launched(
                1,
                100,
                host_row("cpu_op", "aten::linear", 80, 30, **LINEAR),
                host_row("cpu_op", "aten::addmm", 85, 20, **LINEAR),
            ),
            *launched(2, 200, host_row("cpu_op", "aten::addmm", 180, 30, **LINEAR)),
            *launched(
                3,
                300,
                host_row("cpu_op", "aten::addmm", 280, 30, **LINEAR),
                host_row("cpu_op", "my::op", 285, 20, **LINEAR),
            ),
            *launched(4, 400),
        ],
    )
    assert trace.operators == (ADDMM,)
    assert trace.timeline.columns["operator"].tolist() == [0, 0, -1, -1]


def test_without_types_and_strides_the_shapes_are_known(tmp_path: Path) -> None:
    inputs = {"Input Dims": [[4, 8], [8, 2]]}
    trace = read_one(tmp_path / "a.json", launched(1, 100, host_row("cpu_op", "aten::mm", 80, 30, **inputs)))
    assert trace.operators == (
        HostOperator(
            name="mm",
            shapes=((4, 8), (8, 2)),
            lists=((), ()),
            dtypes=(None, None),
            strides=None,
            values=(),
        ),
    )


def test_an_operator_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    odd = {"Input Dims": {"not": "a list"}, "Input type": 7}
    trace = read_one(
        tmp_path / "a.json",
        [
            *launched(1, 100, host_row("cpu_op", "aten::mm", 80, 30, **odd)),
            *launched(2, 200, host_row("cpu_op", "aten::addmm", 180, 30, **LINEAR)),
        ],
    )
    assert trace.operators == (ADDMM,)
    assert trace.timeline.columns["operator"].tolist() == [-1, 0]


@pytest.mark.parametrize("dims", [b"", b"null", b"7", b"[[", b'"[[2]]"', b"[" * 5000])
def test_what_is_no_list_of_shapes_is_no_operator(dims: bytes) -> None:
    assert host_operator("aten::mm", dims=dims, types=b"") is None


@pytest.mark.parametrize("entry", ["[2.5]", "[-1]", '["2"]', "[true]", "null", "[[2, 3], 4]", "[1e40]"])
def test_an_input_that_is_no_tensor_has_no_shape(entry: str) -> None:
    found = host_operator("aten::mm", dims=f"[[2, 3], {entry}]".encode(), types=b"")
    assert found is not None
    assert found.shapes == ((2, 3), ())


def test_lists_of_tensors_and_values_are_told() -> None:
    found = host_operator(
        "aten::cat", dims=b"[[[2, 3], [4]], []]", types=b'["TensorList", "Scalar"]', values=b'["", "1"]'
    )
    assert found is not None
    assert found.lists == (((2, 3), (4,)), ())
    assert found.shapes == ((), ())
    assert found.values == ("", "1")


@given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=60))
def test_no_text_breaks_it(dims: bytes, types: bytes, strides: bytes, values: bytes) -> None:
    found = host_operator("aten::mm", dims=dims, types=types, strides=strides, values=values)
    assert found is None or len(found.dtypes) == len(found.shapes)
