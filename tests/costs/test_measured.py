"""Times measured on one H200 on 2026-11-30, and reference rows that no fit has seen."""

import json

import pytest

from conccl.core.errors import InputError
from conccl.core.ops import (
    Attention,
    Convolution,
    DType,
    Elementwise,
    ForEach,
    Gemm,
    Pass,
    Rowwise,
    RowwiseKind,
)
from conccl.costs.catalogue import load_device
from conccl.costs.kernels import kernels_of
from conccl.costs.rows import ops_of_row
from shared_data import shared

H200 = load_device("h200-sxm")
LLAMA = {"batch": 1, "heads": 32, "kv_heads": 8, "queries": 4096, "keys": 4096, "head_dim": 128}


def us(*ops, device=H200):
    kernels = [kernel for op in ops for kernel in kernels_of(op, device)]
    return sum(kernel.isolated_ns + device.kernel_launch_ns for kernel in kernels) / 1e3


@pytest.mark.parametrize(
    ("op", "measured_us"),
    [
        (Attention(**LLAMA), 408.8),
        (Attention(**LLAMA, causal=True), 257.4),
        (Attention(**LLAMA, direction=Pass.BACKWARD), 1229.2),
        (Attention(**(LLAMA | {"batch": 64, "queries": 1, "keys": 2048})), 126.6),
        (Rowwise(kind=RowwiseKind.RMS_NORM, rows=4096, cols=4096), 23.8),
        (Rowwise(kind=RowwiseKind.SOFTMAX, rows=8192, cols=1024), 18.2),
        (ForEach(name="foreach_add", numel=33_570_816, tensors=16, reads=2, writes=1), 104.8),
        (
            Convolution(
                batch=128,
                in_channels=256,
                out_channels=256,
                in_size=(14, 14),
                kernel_size=(3, 3),
                stride=(1, 1),
                padding=(1, 1),
                dilation=(1, 1),
                channels_last=True,
            ),
            51.1,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_known_times(op, measured_us):
    assert us(op) == pytest.approx(measured_us, rel=0.15)


def test_causal_attention_takes_less_and_longer_sequences_more():
    assert us(Attention(**LLAMA, causal=True)) < us(Attention(**LLAMA))
    lengths = [us(Attention(**(LLAMA | {"queries": n, "keys": n}))) for n in (512, 1024, 2048, 4096)]
    assert lengths == sorted(lengths)


def test_channels_first_pays_for_its_conversions():
    sizes = {
        "batch": 16,
        "in_channels": 128,
        "out_channels": 128,
        "in_size": (64, 64),
        "kernel_size": (3, 3),
        "stride": (1, 1),
        "padding": (1, 1),
        "dilation": (1, 1),
    }
    assert us(Convolution(**sizes)) > us(Convolution(**sizes, channels_last=True))


def test_a_device_with_own_constants_and_one_with_borrowed_ones_say_how_sure_they_are():
    op = Gemm(m=4096, n=4096, k=4096, dtype=DType.FP16)
    own, borrowed = (kernels_of(op, load_device(name))[0] for name in ("h200-sxm", "b200-sxm"))
    assert own.uncertainty < borrowed.uncertainty


@pytest.mark.parametrize("numel", [0, -1])
def test_sizes_that_no_op_has_are_named(numel):
    with pytest.raises(InputError, match="numel"):
        Elementwise(name="add", read_nbytes=4, written_nbytes=2, numel=numel - 1)


@pytest.mark.parametrize(("name", "most"), [("gemm", 0.09), ("ops", 0.10)])
def test_reference_rows(name, most):
    rows = json.loads(shared(f"h200/{name}.json").read_text())
    errors = [abs(us(*ops_of_row(row)) / row["us"] - 1) for row in rows]
    assert sum(errors) / len(errors) < most
