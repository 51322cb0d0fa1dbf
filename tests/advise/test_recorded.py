"""Recorded operators, calls and copies as ops."""

from __future__ import annotations

import dataclasses

import pytest

from conccl.advise.recorded import collective_op, compute_ops, copy_op, ranks_per_node
from conccl.core.kinds import (
    Access,
    AttentionBackend,
    CollectiveKind,
    DType,
    Layout,
    Memory,
    Pass,
    RowwiseKind,
)
from conccl.core.movement import Collective, Copy
from conccl.core.ops import Attention, Elementwise, Gemm, Rowwise
from conccl.traces.operators import HostOperator, Shape
from conccl.traces.trace import CollectiveCall

BF16, FP32 = DType.BF16, DType.FP32
NVJET = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_TNT"
VECTORIZED = "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl>(int)"


def operator(
    name: str,
    *shapes: Shape,
    dtype: DType | None = BF16,
    strides: tuple[Shape, ...] | None = None,
    lists: tuple[tuple[Shape, ...], ...] | None = None,
    values: tuple[str, ...] = (),
) -> HostOperator:
    return HostOperator(
        name=name,
        shapes=shapes,
        lists=lists or ((),) * len(shapes),
        dtypes=tuple(dtype if shape else None for shape in shapes),
        strides=strides,
        values=values,
    )


@pytest.mark.parametrize(
    ("called", "kernel", "op"),
    [
        (operator("mm", (64, 256), (256, 32)), NVJET, Gemm(m=64, n=32, k=256)),
        (operator("addmm", (32,), (64, 256), (256, 32), ()), NVJET, Gemm(m=64, n=32, k=256)),
        (operator("bmm", (8, 64, 256), (8, 256, 32)), NVJET, Gemm(m=64, n=32, k=256, batch=8)),
        (
            operator("mm", (64, 256), (256, 32)),
            "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_NNT",
            Gemm(m=64, n=32, k=256, layout=Layout.NN),
        ),
        (
            operator("mm", (64, 256), (256, 32), dtype=FP32),
            "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x4_nt_align4>(Params)",
            Gemm(m=64, n=32, k=256, dtype=DType.TF32, layout=Layout.TN),
        ),
        (
            operator("mm", (64, 256), (256, 32), dtype=FP32),
            "ampere_sgemm_128x64_tn",
            Gemm(m=64, n=32, k=256, dtype=FP32),
        ),
        (
            operator("mm", (64, 256), (256, 32), strides=((256, 1), (32, 1))),
            "Cijk_Ailk_Bljk_BBS_MT128x128x32",
            Gemm(m=64, n=32, k=256, layout=Layout.NN),
        ),
    ],
)
def test_gemms(called: HostOperator, kernel: str, op: Gemm) -> None:
    assert compute_ops(called, kernel) == (op,)


@pytest.mark.parametrize(
    ("called", "kernel"),
    [
        (operator("mm", (64, 256), (256, 32)), "void cublasLt::splitKreduce_kernel<32, 16, int, float>"),
        (operator("mm", (64, 256), (256, 32), dtype=None), NVJET),
        (operator("mm", (64, 256)), NVJET),
        (operator("mm", (64, 256), (128, 32)), NVJET),
        (operator("mm", (0, 256), (256, 32)), NVJET),
        (operator("add", (64,), (32,)), VECTORIZED),
        (operator("add", (64,), (64,)), "triton_poi_fused_add_0"),
        (operator("cat", (), lists=((),)), "CatArrayBatchedCopy<OpaqueType<2u>>"),
        (operator("_softmax", (8, 8)), "cunn_SpatialSoftMaxForward"),
        (operator("_flash_attention_forward", (64, 8, 128)), "flash_fwd_kernel"),
    ],
)
def test_what_is_not_known_is_no_op(called: HostOperator, kernel: str) -> None:
    assert compute_ops(called, kernel) == ()


def test_elementwise_counts_each_tensor_once_and_broadcasts() -> None:
    (gelu,) = compute_ops(operator("gelu", (4, 1024)), VECTORIZED)
    assert gelu == Elementwise(name="gelu", read_nbytes=8192, written_nbytes=8192, numel=4096)
    (added,) = compute_ops(
        operator("add", (4, 1024), (1024,), ()), "void at::native::elementwise_kernel<128, 4, add>(int)"
    )
    assert isinstance(added, Elementwise)
    assert (added.read_nbytes, added.written_nbytes) == (8192 + 2048, 8192)
    assert added.access is Access.STRIDED
    (copied,) = compute_ops(operator("copy_", (4, 1024), (4, 1024)), VECTORIZED)
    assert isinstance(copied, Elementwise)
    assert (copied.name, copied.read_nbytes, copied.written_nbytes) == ("copy", 8192, 8192)
    (filled,) = compute_ops(operator("fill_", (4, 1024), ()), VECTORIZED)
    assert isinstance(filled, Elementwise)
    assert (filled.read_nbytes, filled.written_nbytes) == (0, 8192)


def test_concatenations_by_the_size_in_the_kernel_s_name() -> None:
    lists: tuple[tuple[Shape, ...], ...] = (((2, 100), (3, 100)), ())
    (cat,) = compute_ops(
        operator("cat", (), (), lists=lists),
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<OpaqueType<4u>, 1>",
    )
    assert cat == Elementwise(name="cat", read_nbytes=2000, written_nbytes=2000, numel=500)


def test_norms_and_softmax() -> None:
    (norm,) = compute_ops(operator("native_layer_norm", (12, 512, 2560), (), (2560,), (2560,), ()), "any")
    assert norm == Rowwise(kind=RowwiseKind.LAYER_NORM, rows=12 * 512, cols=2560)
    (gradient,) = compute_ops(
        operator("_log_softmax_backward_data", (96, 50), (96, 50)), "softmax_warp_backward"
    )
    assert gradient == Rowwise(kind=RowwiseKind.LOG_SOFTMAX, rows=96, cols=50, direction=Pass.BACKWARD)


def test_attention_is_both_where_the_trace_does_not_say_whether_it_is_causal() -> None:
    shapes = [(2, 8, 512, 64)] * 3
    both = compute_ops(operator("_cudnn_attention_forward", *shapes, *((),) * 10), "cudnn_sdpa")
    causal = Attention(
        batch=2,
        heads=8,
        kv_heads=8,
        queries=512,
        keys=512,
        head_dim=64,
        causal=True,
        backend=AttentionBackend.CUDNN,
    )
    assert both == (causal, dataclasses.replace(causal, causal=False))
    values = ("",) * 8 + ("True",) + ("",) * 4
    (told,) = compute_ops(
        operator("_flash_attention_forward", *[(2, 512, 8, 64)] * 3, *((),) * 10, values=values), "flash"
    )
    assert told == dataclasses.replace(causal, backend=AttentionBackend.FLASH)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("Memcpy HtoD (Pinned -> Device)", Copy(nbytes=64, source=Memory.HOST)),
        ("Memcpy DtoH (Device -> Pinned)", Copy(nbytes=64, destination=Memory.HOST)),
        ("Memcpy PtoP (Device -> Device)", Copy(nbytes=64, destination=Memory.PEER)),
        ("Memcpy HtoD (Pageable -> Device)", None),
        ("Memcpy DtoD (Device -> Device)", None),
    ],
)
def test_copies(name: str, op: Copy | None) -> None:
    assert copy_op(name, 64) == op
    assert copy_op(name, 0) is None


CALL = CollectiveCall(
    kind=CollectiveKind.ALL_GATHER,
    group="0",
    group_ranks=None,
    group_size=8,
    sequence=1,
    dtype=BF16,
    in_elements=100,
    out_elements=800,
)


def test_collectives_and_their_groups() -> None:
    gather = Collective(kind=CollectiveKind.ALL_GATHER, nbytes=1600, ranks=8)
    assert collective_op(CALL, world_size=16) == gather
    unsaid = dataclasses.replace(CALL, group_size=None)
    assert collective_op(unsaid, world_size=16) == dataclasses.replace(gather, ranks=16)
    assert collective_op(unsaid, world_size=None) is None
    assert collective_op(dataclasses.replace(CALL, dtype=None), world_size=16) is None
    assert collective_op(dataclasses.replace(CALL, kind=None), world_size=16) is None
    assert collective_op(dataclasses.replace(CALL, group_size=1), world_size=16) is None


def test_ranks_of_a_node() -> None:
    assert ranks_per_node(CALL, gpus_per_node=8) is None
    spread = dataclasses.replace(CALL, group_ranks=(0, 8, 16, 24))
    assert ranks_per_node(spread, gpus_per_node=8) == 1
    packed = dataclasses.replace(CALL, group_ranks=tuple(range(4, 12)))
    assert ranks_per_node(packed, gpus_per_node=8) == 4
