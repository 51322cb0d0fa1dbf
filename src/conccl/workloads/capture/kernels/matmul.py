"""GEMMs and attention: cuBLAS, and the fused attention kernels of cuDNN, FlashAttention and CUTLASS."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from conccl.core.kinds import AttentionBackend, DType, Layout, Pass
from conccl.core.ops import Attention, Gemm, GroupedGemm, Reduction
from conccl.workloads.capture.kernels.call import AtenCall, Rule
from conccl.workloads.capture.kernels.copies import cleared, copied
from conccl.workloads.capture.kernels.libraries import attention_launches, counts_tiles, gemm_launches
from conccl.workloads.capture.tensors import dtype_of
from conccl.workloads.captured import Kernel


def _layout(a: torch.Tensor, b: torch.Tensor) -> Layout:
    """The layout in the words of row-major ``a @ b``: whether a, and then b, is a transposed view."""
    transposed_a = a.stride(-1) != 1 and a.shape[-1] != 1
    transposed_b = b.stride(-1) != 1 or b.shape[-1] == 1
    return {
        (False, True): Layout.NT,
        (False, False): Layout.NN,
        (True, False): Layout.TN,
        (True, True): Layout.TT,
    }[transposed_a, transposed_b]


def gemm(call: AtenCall, a: torch.Tensor, b: torch.Tensor, /) -> Iterator[Kernel]:
    """The kernels of ``a[..., m, k] @ b[..., k, n]``; operands that cuBLAS cannot read are copied first."""
    if 0 in (*a.shape, *b.shape):
        return
    for operand in (a, b):
        if not _is_readable(operand):
            yield copied(operand, torch.empty(operand.shape, dtype=operand.dtype, device="meta"))
    op = Gemm(
        m=int(a.shape[-2]),
        n=int(b.shape[-1]),
        k=int(a.shape[-1]),
        batch=int(a.shape[0]) if a.dim() == 3 else 1,
        dtype=_multiplied(a),
        out_dtype=dtype_of(call.outputs[0]),
        layout=_layout(a, b),
    )
    if counts_tiles(op):
        yield cleared(4, name=call.name)
    yield call.kernel(op, launches=gemm_launches(op, call.device))


def _multiplied(tensor: torch.Tensor) -> DType:
    """The type in which products are made: tf32 where the program allows it."""
    dtype = dtype_of(tensor)
    allowed = torch.backends.cuda.matmul.allow_tf32
    return DType.TF32 if dtype is DType.FP32 and allowed else dtype


def _is_readable(operand: torch.Tensor) -> bool:
    """One of the last two dimensions must be contiguous, and rows must not overlap (cuBLAS)."""
    rows, columns = operand.shape[-2:]
    down, across = operand.stride()[-2:]
    return (
        (across == 1 and down >= max(1, columns))
        or (down == 1 and across >= max(1, rows))
        or 1 in (rows, columns)
    )


def _mm(call: AtenCall) -> Iterator[Kernel]:
    yield from gemm(call, call.args[0], call.args[1])


def _addmm(call: AtenCall) -> Iterator[Kernel]:
    """A bias vector goes into the epilogue (cublasLt); any other addend is copied into the output first."""
    addend, a, b = call.args[:3]
    fits = addend.dim() == 1 and addend.is_contiguous() and addend.shape[0] == b.shape[-1]
    epilogue = fits and a.dim() == 2 and min(b.shape) > 1
    if not epilogue and addend is not call.out:
        out = call.outputs[0]
        yield copied(addend.expand(out.shape), out)
    yield from gemm(call, a, b)


def _grouped(call: AtenCall) -> Iterator[Kernel]:
    """One kernel for all experts, taken to have equal rows, behind one that lists its problems."""
    a, b = call.args[:2]
    groups = int(b.shape[0]) if b.dim() == 3 else int(a.shape[0])
    if 0 in (*a.shape, *b.shape):
        return
    if a.dim() == 3:
        each, inner, outer = (
            int(a.shape[1]),
            int(a.shape[2]),
            int(b.shape[-1]) // (groups if b.dim() == 2 else 1),
        )
    elif b.dim() == 3:
        each, inner, outer = max(1, int(a.shape[0]) // groups), int(a.shape[1]), int(b.shape[-1])
    else:  # both are cut along the dimension that is summed: gradients of experts' weights
        groups = int(call.outputs[0].shape[0])
        each, inner, outer = int(a.shape[0]), max(1, int(a.shape[1]) // groups), int(b.shape[-1])
    op = GroupedGemm(rows=(each,) * groups, n=max(1, outer), k=inner, dtype=_multiplied(a))
    yield call.elementwise(kind="problems", reads=[], writes=[call.outputs[0][..., :1]])
    yield call.kernel(op)


def _matrix_vector(call: AtenCall) -> Iterator[Kernel]:
    matrix = next(tensor for tensor in call.inputs if tensor.dim() == 2)
    vector = [tensor for tensor in call.inputs if tensor.dim() == 1][-1]
    yield from gemm(call, matrix, vector.unsqueeze(-1))


def _dot(call: AtenCall) -> Iterator[Kernel]:
    """The parts of all CTAs, then their sum (cuBLAS)."""
    one = call.inputs[0]
    yield call.kernel(Reduction(outer=1, reduced=max(1, 2 * one.numel()), dtype=dtype_of(one)), launches=2)


def _outer(call: AtenCall) -> Iterator[Kernel]:
    yield call.elementwise()


def _attention(*, query: int, direction: Pass, backend: AttentionBackend) -> Rule:
    def rule(call: AtenCall) -> Iterator[Kernel]:
        q, k = call.args[query], call.args[query + 1]
        dropout = float(call.argument("dropout_p")) > 0
        op = Attention(
            batch=int(q.shape[0]),
            heads=int(q.shape[1]),
            kv_heads=int(k.shape[1]),
            queries=int(q.shape[2]),
            keys=int(k.shape[2]),
            head_dim=int(q.shape[3]),
            causal=bool(call.argument("is_causal")),
            direction=direction,
            dtype=dtype_of(q),
            backend=backend,
            dropout=dropout,
        )
        yield call.kernel(op, launches=attention_launches(op))

    return rule


_ADDMM = ("addmm", "addmm_", "baddbmm", "baddbmm_", "addbmm", "addbmm_", "_addmm_activation")

_BACKENDS = {
    "cudnn": AttentionBackend.DEFAULT,
    "flash": AttentionBackend.FLASH,
    "efficient": AttentionBackend.EFFICIENT,
}

RULES: dict[str, Rule] = {
    **dict.fromkeys(("mm", "bmm", "_scaled_mm", "_int_mm"), _mm),
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), _grouped),
    **dict.fromkeys(_ADDMM, _addmm),
    **dict.fromkeys(("mv", "addmv", "addmv_"), _matrix_vector),
    **dict.fromkeys(("dot", "vdot"), _dot),
    **dict.fromkeys(("addr", "addr_", "ger"), _outer),
    **{
        f"_scaled_dot_product_{name}_attention": _attention(query=0, direction=Pass.FORWARD, backend=backend)
        for name, backend in _BACKENDS.items()
    },
    **{
        f"_scaled_dot_product_{name}_attention_backward": _attention(
            query=1, direction=Pass.BACKWARD, backend=backend
        )
        for name, backend in _BACKENDS.items()
    },
}
