from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conccl.core.errors import ConcclError
from conccl.core.ops import (
    Access,
    Attention,
    Convolution,
    ConvolutionPass,
    Copy,
    DType,
    Elementwise,
    ForEach,
    Fusion,
    Gather,
    Gemm,
    GroupedGemm,
    OptimizerKind,
    OptimizerStep,
    Order,
    OrderKind,
    Pass,
    Recurrent,
    RecurrentKind,
    Reduction,
    Rowwise,
    RowwiseKind,
)
from conccl.costs.catalogue import device_names, load_device
from conccl.costs.gemm import gemm_ns
from conccl.costs.kernel import executed_ns, whole
from conccl.costs.kernels import MODELS, kernels_of, register
from conccl.costs.streaming import Stream, streaming_kernel

DEVICES = device_names()
H200 = load_device("h200-sxm")

OPS = (
    Gemm(m=4096, n=4096, k=4096),
    Gemm(m=64, n=8192, k=8192, dtype=DType.FP16),
    Gemm(m=333, n=777, k=129),
    Gemm(m=1, n=4096, k=4096),
    Gemm(m=512, n=512, k=64, dtype=DType.FP32, batch=16),
    GroupedGemm(rows=(100, 0, 2000, 31), n=4096, k=2048),
    Elementwise(name="add", read_nbytes=1 << 22, written_nbytes=1 << 21, numel=1 << 20),
    Elementwise(name="copy", read_nbytes=1 << 22, written_nbytes=1 << 22, access=Access.STRIDED),
    Elementwise(name="dropout", read_nbytes=1 << 22, written_nbytes=1 << 22, numel=1 << 21),
    Rowwise(kind=RowwiseKind.SOFTMAX, rows=4096, cols=2048),
    Rowwise(kind=RowwiseKind.RMS_NORM, rows=4096, cols=4096),
    Rowwise(kind=RowwiseKind.LAYER_NORM, rows=4096, cols=4096, direction=Pass.BACKWARD),
    Reduction(outer=4096, reduced=4096),
    Gather(rows=4096, cols=1024, table_rows=50_000),
    Order(kind=OrderKind.SORT, rows=16, cols=4096),
    ForEach(name="add", numel=10_000_000, tensors=100, reads=2, writes=1),
    OptimizerStep(kind=OptimizerKind.ADAMW, numel=10_000_000, tensors=100, fusion=Fusion.FUSED),
    Copy(nbytes=1 << 20),
    Attention(batch=2, heads=32, kv_heads=8, queries=2048, keys=2048, head_dim=128, causal=True),
    Attention(batch=64, heads=32, kv_heads=8, queries=1, keys=2048, head_dim=128),
    Attention(
        batch=2,
        heads=16,
        kv_heads=16,
        queries=1000,
        keys=777,
        head_dim=64,
        direction=Pass.BACKWARD,
        dtype=DType.FP32,
    ),
    Recurrent(kind=RecurrentKind.LSTM, batch=32, steps=50, input_size=512, hidden_size=512, layers=2),
    *(
        Convolution(
            batch=32,
            in_channels=128,
            out_channels=256,
            in_size=(28, 28),
            kernel_size=(3, 3),
            stride=(2, 2),
            padding=(1, 1),
            dilation=(1, 1),
            direction=direction,
            channels_last=channels_last,
        )
        for direction in ConvolutionPass
        for channels_last in (False, True)
    ),
)


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("op", OPS, ids=lambda op: type(op).__name__)
def test_a_kernel_takes_what_its_ctas_take_in_waves(op, name):
    device = load_device(name)
    for kernel in kernels_of(op, device):
        ns = kernel.fixed_ns + executed_ns(kernel.groups, ctas_per_sm=kernel.ctas_per_sm, share=whole(device))
        assert kernel.isolated_ns == pytest.approx(ns, rel=0.01, abs=1)
        assert 0 < kernel.uncertainty < 1


def time_ns(op, device=H200):
    return sum(kernel.isolated_ns for kernel in kernels_of(op, device))


def test_many_gemms_at_once_take_what_they_take_one_by_one():
    ops = [op for op in OPS if isinstance(op, Gemm)]
    assert gemm_ns(ops, H200) == pytest.approx([time_ns(op) for op in ops], rel=0.01)


@pytest.mark.parametrize(
    ("op", "measured_us"),
    [
        (Gemm(m=4096, n=4096, k=4096), 175.6),
        (Gemm(m=8192, n=8192, k=8192), 1395),
        (Gemm(m=16, n=8192, k=8192), 33),
        (Elementwise(name="add", read_nbytes=512 << 20, written_nbytes=256 << 20, numel=128 << 20), 187),
    ],
    ids=str,
)
def test_times_measured_on_the_h200(op, measured_us):
    assert time_ns(op) / 1e3 == pytest.approx(measured_us, rel=0.15)


@given(
    m=st.integers(1, 9000),
    n=st.integers(1, 9000),
    k=st.integers(1, 9000),
    more=st.sampled_from(["m", "n", "k", "batch"]),
)
@settings(max_examples=60, deadline=None)
def test_twice_the_work_of_the_same_alignment_is_not_faster(m, n, k, more):
    sizes = {"m": 8 * m, "n": 8 * n, "k": 8 * k, "batch": 1}
    doubled = {**sizes, more: 2 * sizes[more]}
    assert time_ns(Gemm(**doubled)) > 0.97 * time_ns(Gemm(**sizes))


@given(numel=st.integers(1, 1 << 30), factor=st.integers(2, 50))
@settings(max_examples=60, deadline=None)
def test_more_elements_take_no_less(numel, factor):
    times = [
        time_ns(Elementwise(name="add", read_nbytes=4 * count, written_nbytes=2 * count, numel=count))
        for count in (numel, factor * numel)
    ]
    assert times[1] >= times[0]


def test_odd_sizes_fall_off_the_fast_kernels():
    fast = time_ns(Gemm(m=4096, n=4096, k=4096))
    assert time_ns(Gemm(m=4096, n=4096, k=4095)) > 4 * fast
    assert time_ns(Gemm(m=4096, n=4095, k=4096)) > 4 * fast


def test_a_faster_number_format_is_faster_and_an_unknown_one_is_named():
    times = [
        time_ns(Gemm(m=8192, n=8192, k=8192, dtype=dtype))
        for dtype in (DType.FP8_E4M3, DType.BF16, DType.TF32, DType.FP32)
    ]
    assert times == sorted(times)
    with pytest.raises(ConcclError, match="a100-sxm multiplies no fp8_e4m3"):
        kernels_of(Gemm(m=64, n=64, k=64, dtype=DType.FP8_E4M3), load_device("a100-sxm"))


def test_nothing_to_do_needs_no_kernel():
    assert kernels_of(Elementwise(name="add", read_nbytes=0, written_nbytes=0), H200) == ()
    assert kernels_of(GroupedGemm(rows=(0, 0), n=64, k=64), H200) == ()


def test_an_op_of_ones_own_has_a_model_in_a_few_lines():
    @dataclass(frozen=True)
    class Scan:
        numel: int

    def scan(op, device):
        stream = Stream(
            read_nbytes=4 * op.numel, written_nbytes=4 * op.numel, ctas=-(-op.numel // 1024), threads=256
        )
        return (streaming_kernel("contiguous", stream, device, name="scan"),)

    with pytest.raises(ConcclError, match="Scan"):
        kernels_of(Scan(1000), H200)
    register(Scan, scan)
    try:
        assert kernels_of(Scan(1000), H200)[0].name == "scan"
    finally:
        del MODELS[Scan]
        kernels_of.cache_clear()


def test_a_grouped_gemm_reads_the_matrix_of_every_group():
    one = kernels_of(Gemm(m=16, n=4096, k=4096), H200)[0]
    eight = kernels_of(GroupedGemm(rows=(16,) * 8, n=4096, k=4096), H200)[0]
    assert eight.hbm_nbytes >= 8 * 4096 * 4096 * 2
    assert 5 * one.isolated_ns < eight.isolated_ns < 8 * one.isolated_ns


def test_group_norms_of_small_images_take_a_cta_for_each_channel():
    """What an H200 launched for 64 images of 64 channels of 56 x 56 in 32 groups (2026-11-30)."""
    op = Rowwise(
        kind=RowwiseKind.GROUP_NORM, rows=64 * 32, cols=2 * 3136, direction=Pass.BACKWARD, together=3136
    )
    sums = next(k for k in kernels_of(op, load_device("h200-sxm")) if k.name == "group_reduce")
    assert (sums.ctas, sums.footprint.threads) == (64 * 64, 512)


def test_a_batch_norm_of_tiny_images_is_bound_by_its_ctas():
    """Bf16, 64 x 2048 channels: 7 x 7 takes longer than 28 x 28 of a quarter of the channels (H200)."""
    device = load_device("h200-sxm")
    tiny, larger = (
        sum(
            kernel.isolated_ns
            for kernel in kernels_of(
                Rowwise(kind=RowwiseKind.BATCH_NORM, rows=rows, cols=64 * size, together=size), device
            )
        )
        for rows, size in ((2048, 49), (128, 784))
    )
    assert tiny > 1.4 * larger
