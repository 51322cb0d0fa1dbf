"""GEMMs and attention: cuBLAS, and the fused attention kernels of cuDNN, FlashAttention and CUTLASS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from conccl.core.kinds import Layout, Pass
from conccl.core.ops import Attention, Elementwise, Gemm
from conccl.workloads.capture.kernels.call import AtenCall
from conccl.workloads.capture.tensors import dtype_of, touched_nbytes
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
        if not _readable(operand):
            yield call.elementwise(name="copy", reads=[operand], writes=[operand])
    m, k, n = int(a.shape[-2]), int(a.shape[-1]), int(b.shape[-1])
    batch = int(a.shape[0]) if a.dim() == 3 else 1
    op = Gemm(
        m=m,
        n=n,
        k=k,
        batch=batch,
        dtype=dtype_of(a),
        out_dtype=dtype_of(call.outputs[0]),
        layout=_layout(a, b),
    )
    yield Kernel(name=f"{call.name} {'' if batch == 1 else f'{batch}x'}[{m}, {n}, {k}]", op=op)


def _readable(operand: torch.Tensor) -> bool:
    """cuBLAS wants one of the last two dimensions contiguous."""
    return operand.stride(-1) == 1 or operand.stride(-2) == 1 or min(operand.shape[-2:]) == 1


def _mm(call: AtenCall) -> Iterator[Kernel]:
    yield from gemm(call, call.args[0], call.args[1])


def _addmm(call: AtenCall) -> Iterator[Kernel]:
    """A bias vector goes into the epilogue (cublasLt); a full addend is copied into the output first."""
    addend, a, b = call.args[:3]
    if addend.dim() > 1 and addend is not call.out:
        yield call.elementwise(name="copy", reads=[addend])
    yield from gemm(call, a, b)


def _matrix_vector(call: AtenCall) -> Iterator[Kernel]:
    tensors = [tensor for tensor in call.inputs if tensor.dim() == 2]
    vectors = [tensor for tensor in call.inputs if tensor.dim() == 1]
    yield from gemm(call, tensors[0], vectors[-1].unsqueeze(-1))


def _dot(call: AtenCall) -> Iterator[Kernel]:
    a, b = call.inputs[:2]
    yield from gemm(call, a.unsqueeze(0), b.unsqueeze(-1))


def _attention(*, query: int, direction: Pass) -> Callable[[AtenCall], Iterator[Kernel]]:
    def rule(call: AtenCall) -> Iterator[Kernel]:
        q, k = call.args[query], call.args[query + 1]
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
        )
        yield Kernel(name=call.name.removeprefix("_scaled_dot_product_"), op=op)
        if direction is Pass.BACKWARD:
            yield from _around_backward(call, q)

    return rule


def _around_backward(call: AtenCall, q: torch.Tensor) -> Iterator[Kernel]:
    """The kernel before (rows of dO x O) and the one after (dQ from its fp32 sum) the main kernel."""
    rows = q.numel() // int(q.shape[-1])
    nbytes = touched_nbytes(q)
    yield call.kernel(
        Elementwise(name="dot_do_o", read_nbytes=2 * nbytes, written_nbytes=4 * rows, numel=rows),
        name="dot_do_o",
    )
    if q.element_size() < 4:
        op = Elementwise(name="convert_dq", read_nbytes=4 * q.numel(), written_nbytes=nbytes, numel=q.numel())
        yield call.kernel(op, name="convert_dq")


def _scaled_mm(call: AtenCall) -> Iterator[Kernel]:
    yield from gemm(call, call.args[0], call.args[1])


RULES: dict[str, Any] = {
    "mm": _mm,
    "bmm": _mm,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "addbmm": _addmm,
    "_addmm_activation": _addmm,
    "mv": _matrix_vector,
    "addmv": _matrix_vector,
    "dot": _dot,
    "vdot": _dot,
    "_scaled_mm": _scaled_mm,
    "_scaled_dot_product_cudnn_attention": _attention(query=0, direction=Pass.FORWARD),
    "_scaled_dot_product_cudnn_attention_backward": _attention(query=1, direction=Pass.BACKWARD),
    "_scaled_dot_product_flash_attention": _attention(query=0, direction=Pass.FORWARD),
    "_scaled_dot_product_flash_attention_backward": _attention(query=1, direction=Pass.BACKWARD),
    "_scaled_dot_product_efficient_attention": _attention(query=0, direction=Pass.FORWARD),
    "_scaled_dot_product_efficient_attention_backward": _attention(query=1, direction=Pass.BACKWARD),
}
