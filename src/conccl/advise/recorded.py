"""What a trace records of its rows' work, as ops: what an operator's GEMM multiplies, what a copy moves."""

from __future__ import annotations

import math
import re

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
from conccl.core.ops import Attention, Compute, Elementwise, Gemm, Rowwise
from conccl.traces.operators import ATTENTIONS, ELEMENTWISE, GEMMS, HostOperator, Shape
from conccl.traces.trace import CollectiveCall

_GEMM_KERNEL = re.compile(r"gemm|nvjet|cijk_|xmma|gemv", re.IGNORECASE)
"""cuBLAS, cuBLASLt, CUTLASS, hipBLASLt (Tensile) name their kernels so; splitKreduce_kernel is no GEMM."""

_TRANSPOSITIONS = re.compile(r"_([TN])([TN])[TN]$|_([tn])([tn])(?=$|[_<:])")
"""cuBLAS computes the transposed product of columns: its letters are ours in the other order."""

_PLAIN_FP32 = re.compile(r"sgemm|ffma|simt|gemv|f32f32_f32f32", re.IGNORECASE)
_TF32 = re.compile(r"tf32|s1688gemm", re.IGNORECASE)

_ACCESS = (
    (re.compile(r"\bvectorized_elementwise_kernel"), Access.CONTIGUOUS),
    (re.compile(r"\bunrolled_elementwise_kernel"), Access.CASTING),
    (re.compile(r"\belementwise_kernel"), Access.STRIDED),
)
"""PyTorch's kernels by how they go through memory."""

_HOST_COPIES = (
    (re.compile(r"HtoD \(Pinned|HostToDevice"), Memory.HOST, Memory.DEVICE),
    (re.compile(r"DtoH \(Device -> Pinned|DeviceToHost"), Memory.DEVICE, Memory.HOST),
    (re.compile(r"PtoP"), Memory.DEVICE, Memory.PEER),
)
"""Pageable memory is staged by the host, which no model of the link knows."""

_NORMS = {"native_layer_norm": RowwiseKind.LAYER_NORM, "_fused_rms_norm": RowwiseKind.RMS_NORM}
_SOFTMAXES = {"_softmax": RowwiseKind.SOFTMAX, "_log_softmax": RowwiseKind.LOG_SOFTMAX}
_SOFTMAX_OF_ROWS = re.compile(r"softmax_warp|cunn_SoftMax")
_CAUSAL = {
    "_cudnn_attention_forward": 10,
    "_cudnn_attention_backward": 14,
    "_flash_attention_forward": 8,
    "_flash_attention_backward": 11,
}
"""Which argument is ``is_causal`` (native_functions.yaml of PyTorch 2.13)."""
_OPAQUE = re.compile(r"OpaqueType<(\d+)")
_WRITES_ONLY = frozenset({"fill_"})
_COMPARISONS = frozenset({"eq", "ne", "gt", "lt", "ge", "le"})
_INSTRUCTIONS = {"clamp_min": "relu", "threshold_backward": "relu_backward", "copy_": "copy", "fill_": "fill"}
"""What the cost models call an operator, where that is not its name."""


def compute_ops(operator: HostOperator, kernel: str, /) -> tuple[Compute, ...]:
    """What the operator's kernel of this name computes: none if not known, several if left open."""
    op: Compute | None
    if operator.name in ATTENTIONS:
        return _attention(operator)
    if operator.name in GEMMS:
        op = _gemm(operator, kernel) if _GEMM_KERNEL.search(kernel) else None
    elif operator.name in ELEMENTWISE:
        op = _elementwise(operator, kernel)
    elif operator.name == "cat":
        op = _joined(operator, kernel)
    else:
        op = _rowwise(operator, kernel)
    return () if op is None else (op,)


def copy_op(name: str, nbytes: int, /) -> Copy | None:
    """What a copy moves, and between which memories; None for copies within a GPU and of pageable memory."""
    for pattern, source, destination in _HOST_COPIES:
        if pattern.search(name):
            return Copy(nbytes=nbytes, source=source, destination=destination) if nbytes > 0 else None
    return None


def collective_op(call: CollectiveCall, /, *, world_size: int | None) -> Collective | None:
    """The collective of a call; a group that is not recorded is taken to be the world."""
    ranks = ranks_of(call) or world_size
    if call.kind is None or call.nbytes is None or ranks is None or ranks < 2:
        return None
    if call.kind is not CollectiveKind.BARRIER and call.nbytes < 1:
        return None
    return Collective(kind=call.kind, nbytes=call.nbytes, ranks=ranks, dtype=call.dtype or DType.UINT8)


def ranks_of(call: CollectiveCall, /) -> int | None:
    """How many take part, as recorded."""
    return call.group_size or (len(call.group_ranks) if call.group_ranks else None)


def ranks_per_node(call: CollectiveCall, /, *, gpus_per_node: int) -> int | None:
    """Of a group whose ranks are recorded, the most in one node, nodes being filled in the ranks' order."""
    if not call.group_ranks:
        return None
    nodes = [rank // gpus_per_node for rank in call.group_ranks]
    return max(nodes.count(node) for node in set(nodes))


def _gemm(operator: HostOperator, kernel: str, /) -> Gemm | None:
    first = 0 if operator.name in ("mm", "bmm") else 1  # addmm's bias or addend comes before
    if len(operator.shapes) < first + 2:
        return None
    a, b = operator.shapes[first : first + 2]
    dtype = operator.dtypes[first]
    if len(a) not in (2, 3) or len(a) != len(b) or a[-1] != b[-2] or dtype is None or 0 in (*a, *b):
        return None
    if dtype is DType.FP32 and _TF32.search(kernel) and not _PLAIN_FP32.search(kernel):
        dtype = DType.TF32
    return Gemm(
        m=a[-2],
        n=b[-1],
        k=a[-1],
        batch=a[0] if len(a) == 3 else 1,
        dtype=dtype,
        layout=_layout(operator, kernel, first),
    )


def _layout(operator: HostOperator, kernel: str, first: int, /) -> Layout:
    """By the kernel's name, else by strides; else as in a linear layer."""
    named = _TRANSPOSITIONS.search(kernel)
    if named is not None:
        of_b, of_a = (letter.lower() for letter in named.groups() if letter is not None)
        return Layout(of_a + of_b)
    if operator.strides is not None:
        a, b = operator.strides[first : first + 2]
        if a and b:
            return Layout(("n" if a[-1] == 1 else "t") + ("n" if b[-1] == 1 else "t"))
    return Layout.NT


def _elementwise(operator: HostOperator, kernel: str, /) -> Elementwise | None:
    """Every input read and the output written once; inputs that are broadcast count as small as they are."""
    access = next((access for pattern, access in _ACCESS if pattern.search(kernel)), None)
    tensors = [
        (shape, dtype)
        for shape, dtype in zip(operator.shapes, operator.dtypes, strict=True)
        if dtype is not None
    ]
    if access is None or not tensors:
        return None
    inplace = operator.name.endswith("_")
    shape = tensors[0][0] if inplace else _broadcast([shape for shape, _ in tensors])
    written = tensors[0][1] if operator.name not in _COMPARISONS else DType.BOOL
    if shape is None or 0 in shape:
        return None
    reads = tensors[1:] if operator.name in ("copy_", *_WRITES_ONLY) else tensors
    numel = math.prod(shape)
    name = operator.name.removesuffix("_")
    return Elementwise(
        name=_INSTRUCTIONS.get(operator.name, name),
        read_nbytes=sum(math.prod(size) * dtype.nbytes for size, dtype in reads),
        written_nbytes=numel * written.nbytes,
        numel=numel,
        access=access,
    )


def _joined(operator: HostOperator, kernel: str, /) -> Elementwise | None:
    """A concatenation: the kernel's name has the elements' size, the list of tensors no type."""
    size = _OPAQUE.search(kernel)
    numel = sum(math.prod(shape) for shape in operator.lists[0]) if operator.lists else 0
    if size is None or numel < 1 or not kernel.count("CatArray"):
        return None
    nbytes = numel * int(size[1])
    contiguous = "contig" in kernel and "aligned16" in kernel
    return Elementwise(
        name="cat",
        read_nbytes=nbytes,
        written_nbytes=nbytes,
        numel=numel,
        access=Access.CONTIGUOUS if contiguous else Access.STRIDED,
    )


def _attention(operator: HostOperator, /) -> tuple[Attention, ...]:
    """Fused attention, causal or not: both where the trace does not say."""
    backward = operator.name.endswith("_backward")
    first = 1 if backward else 0  # the output's gradient comes before q, k and v
    if len(operator.shapes) < first + 3 or any(
        len(shape) != 4 or 0 in shape for shape in operator.shapes[first : first + 3]
    ):
        return ()
    heads, length = (1, 2) if "cudnn" in operator.name else (2, 1)
    q, k = operator.shapes[first : first + 2]
    dtype = operator.dtypes[first]
    if dtype is None or q[heads] % k[heads]:
        return ()
    return tuple(
        Attention(
            batch=q[0],
            heads=q[heads],
            kv_heads=k[heads],
            queries=q[length],
            keys=k[length],
            head_dim=q[3],
            causal=causal,
            direction=Pass.BACKWARD if backward else Pass.FORWARD,
            dtype=dtype,
            backend=AttentionBackend.CUDNN if "cudnn" in operator.name else AttentionBackend.FLASH,
        )
        for causal in _causal(operator)
    )


def _causal(operator: HostOperator, /) -> tuple[bool, ...]:
    place = _CAUSAL[operator.name]
    said = operator.values[place] if place < len(operator.values) else ""
    return {"True": (True,), "False": (False,)}.get(said, (True, False))


def _broadcast(shapes: list[Shape], /) -> Shape | None:
    """The shape that all of them are stretched to; None where they do not fit."""
    result: list[int] = []
    for place in range(1, max(map(len, shapes)) + 1):
        sizes = {shape[-place] for shape in shapes if len(shape) >= place} - {1}
        if len(sizes) > 1:
            return None
        result.insert(0, sizes.pop() if sizes else 1)
    return tuple(result)


def _rowwise(operator: HostOperator, kernel: str, /) -> Rowwise | None:
    """A norm over what its weight has, or a softmax over the last dimension."""
    backward = operator.name.endswith(("_backward", "_backward_data"))
    name = operator.name.removesuffix("_backward_data").removesuffix("_backward")
    kind = _NORMS.get(name) or _SOFTMAXES.get(name)
    shape, dtype = operator.shapes[0], operator.dtypes[0]
    if kind is None or dtype is None or not shape or 0 in shape:
        return None
    if name in _SOFTMAXES and not _SOFTMAX_OF_ROWS.search(kernel):
        return None
    weights = [size for size in operator.shapes[2:] if size and size == shape[-len(size) :]]
    cols = math.prod(weights[0]) if weights and name in _NORMS else shape[-1]
    return Rowwise(
        kind=kind,
        rows=math.prod(shape) // cols,
        cols=cols,
        direction=Pass.BACKWARD if backward else Pass.FORWARD,
        dtype=dtype,
    )
