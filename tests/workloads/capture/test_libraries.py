"""Counts of what library calls launch, beside the kernels that an H200 was seen to run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from conccl.core.kinds import ConvolutionPass, DType  # noqa: E402
from conccl.core.ops import Convolution, Gemm, Pass, Reduction  # noqa: E402
from conccl.costs.rows import ops_of_row  # noqa: E402
from conccl.workloads.capture.kernels import libraries  # noqa: E402
from conccl.workloads.capture.kernels.reductions import reduction_launches  # noqa: E402

pytestmark = pytest.mark.torch

DATA = Path(__file__).parents[3] / "benchmarks" / "data" / "h200-sxm" / "2026-11-30"


def rows(name, *ops):
    data = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    count = data["header"]["kernel_fields"].index("count")
    for row in data["rows"]:
        if not ops or row.get("op") in ops:
            yield row, sum(kernel[count] for kernel in row["kernels"])


def test_reductions_share_results_exactly_where_pytorch_does():
    checked = 0
    for row, kernels in rows("ops", "sum", "mean", "amax", "max", "argmax", "var", "norm"):
        (op,) = ops_of_row(row)
        assert isinstance(op, Reduction)
        assert reduction_launches(op) == kernels, row
        checked += 1
    assert checked > 150


def test_products_count_tiles_where_cublas_does():
    right = checked = 0
    for row, _ in rows("gemm"):
        if row["dtype"] in ("bf16", "fp16") and any(k[0].startswith("nvjet") for k in row["kernels"]):
            (op,) = ops_of_row(row)
            assert isinstance(op, Gemm)
            right += libraries.counts_tiles(op) == any("Memset" in kernel[0] for kernel in row["kernels"])
            checked += 1
    assert right / checked > 0.95


def test_convolutions_launch_about_as_many_kernels_as_cudnn():
    passes = {
        "forward": ConvolutionPass.FORWARD,
        "dgrad": ConvolutionPass.INPUT_GRADIENT,
        "wgrad": ConvolutionPass.WEIGHT_GRADIENT,
    }
    totals = {}
    for row, kernels in rows("ops", "conv2d"):
        op = Convolution(
            batch=row["n"],
            in_channels=row["c"],
            out_channels=row["out"],
            in_size=(row["h"], row["w"]),
            kernel_size=(row["kernel"],) * 2,
            stride=(row["stride"],) * 2,
            padding=(row["padding"],) * 2,
            dilation=(1, 1),
            groups=row["groups"],
            direction=passes[row["direction"]],
            dtype=DType(row["dtype"]),
            channels_last=row["channels_last"],
        )
        total = totals.setdefault((row["dtype"], row["channels_last"]), [0, 0])
        total[0] += kernels
        total[1] += libraries.convolution_launches(op)
    for key, (measured, counted) in totals.items():
        assert counted == pytest.approx(measured, rel=0.15), key


def test_recurrent_networks_launch_about_as_many_kernels_as_cudnn():
    for row, kernels in rows("ops", "lstm", "gru"):
        ops = ops_of_row(row)
        counted = sum(libraries.recurrent_launches(op) for op in ops)
        assert counted == pytest.approx(kernels, rel=0.3, abs=12), row
    assert {op.direction for op in ops} <= set(Pass)
