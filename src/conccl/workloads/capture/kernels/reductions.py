"""Reductions, scans and sorts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod

import torch

from conccl.core.kinds import Access, OrderKind
from conccl.core.ops import Order, Reduction
from conccl.workloads.capture.kernels.call import AtenCall, Rule
from conccl.workloads.capture.kernels.copies import filled
from conccl.workloads.capture.kernels.libraries import sort_launches
from conccl.workloads.capture.tensors import dtype_of
from conccl.workloads.captured import Kernel


def reduction_of(tensor: torch.Tensor, dims: Iterable[int], /, *, name: str = "sum") -> Reduction:
    """The reduction of these dimensions as [outer, reduced, inner] in the order of memory."""
    reduced_dims = {dim % max(1, tensor.dim()) for dim in dims}
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda dim: (-strides[dim], dim))
    sizes = [int(tensor.shape[dim]) for dim in order]
    reduced = [position for position, dim in enumerate(order) if dim in reduced_dims and sizes[position] > 1]
    if not reduced:
        return Reduction(outer=max(1, tensor.numel()), reduced=1, dtype=dtype_of(tensor), name=name)
    inner = max(1, prod(sizes[reduced[-1] + 1 :]))
    many = max(1, prod(sizes[position] for position in reduced))
    outer = max(1, tensor.numel() // (inner * many))
    between = [place for place in range(reduced[0], reduced[-1]) if place not in reduced and sizes[place] > 1]
    pieces = prod(sizes[place] for place in reduced if place < between[-1]) if between else 1
    dtype = dtype_of(tensor)
    return Reduction(outer=outer, reduced=many, inner=inner, dtype=dtype, name=name, pieces=max(1, pieces))


THREADS = 512
"""Of a CTA, fewer where each takes several results (aten/src/ATen/native/cuda/Reduce.cuh)."""

LEAST_VALUES, MOST_VALUES = 16, 256
"""Values that a thread adds before results are shared among CTAs."""

RESIDENT_THREADS, SMS = 2048, 132


def reduction_launches(op: Reduction, /) -> int:
    """Two where CTAs share a result: their counters are cleared first.

    The layout of threads is that of setReduceConfig in aten/src/ATen/native/cuda/Reduce.cuh.
    """
    results, values = op.outer * op.inner, op.reduced
    along = op.inner == 1
    wide = 1
    if along:
        fast, slow = values, results
        if results == 1 and values > 128:
            fast //= 4
    else:
        wide = next(width for width in (4, 2, 1) if op.inner % width == 0)
        fast, slow = results // wide, values
    threads = THREADS // wide
    fast_power, slow_power = (_power_below(min(size, threads)) for size in (fast, slow))
    width = min(fast_power, 32)
    height = min(slow_power, threads // width)
    width = min(fast_power, threads // height)
    each = -(-values // width) if along else values
    across = each >= min(height * 16, MOST_VALUES)
    if not across:
        return 1
    grid = results // wide if along else -(-results // wide // width)
    each = -(-each // height)
    room = SMS * (RESIDENT_THREADS // max(1, width * height))
    return 2 if each >= MOST_VALUES and grid <= room else 1


def _power_below(size: int) -> int:
    return 1 << (max(1, size).bit_length() - 1)


def reduced(call: AtenCall, op: Reduction, /) -> Kernel:
    """The reduction as a kernel, with the memset before it."""
    return call.kernel(op, launches=reduction_launches(op))


_NAMES = {
    "argmax": "argmax", "argmin": "argmin", "max": "max", "min": "min", "aminmax": "max", "std": "std",
    "var": "var", "var_mean": "var", "std_mean": "std", "norm": "norm", "linalg_vector_norm": "norm",
}  # fmt: skip
"""What the cost models tell apart; the rest are sums."""


def _dims(call: AtenCall, tensor: torch.Tensor) -> list[int]:
    for name in ("dim", "dims"):
        if call.has_argument(name):
            given = call.argument(name)
            if isinstance(given, int):
                return [given]
            if given:
                return list(given)
    return list(range(tensor.dim()))


def _reduce(call: AtenCall) -> Iterator[Kernel]:
    if call.inputs and call.inputs[0].numel():
        tensor = call.inputs[0]
        name = _NAMES.get(call.name, "sum")
        yield reduced(call, reduction_of(tensor, _dims(call, tensor), name=name))


def _rows_and_cols(tensor: torch.Tensor, dim: int) -> tuple[int, int]:
    cols = int(tensor.shape[dim]) if tensor.dim() else 1
    return max(1, tensor.numel() // max(1, cols)), max(1, cols)


def _ordered(call: AtenCall, kind: OrderKind, tensor: torch.Tensor) -> Order:
    dim = call.argument("dim") if call.has_argument("dim") else -1
    rows, cols = _rows_and_cols(tensor, -1 if dim is None else dim)
    return Order(kind=kind, rows=rows, cols=cols, dtype=dtype_of(tensor))


def _scan(call: AtenCall) -> Iterator[Kernel]:
    """One row goes through CUB (two kernels); many, or along another dimension, through one kernel."""
    tensor = call.inputs[0]
    if tensor.numel():
        op = _ordered(call, OrderKind.SCAN, tensor)
        dim = call.argument("dim")
        if tensor.dim() > 1 and tensor.shape[dim] > 1 and tensor.stride(dim) != 1:
            op = replace(op, interleaved=True)
        yield call.kernel(op, launches=2 if op.rows == 1 else 1)


SHORT_SORT = 4096
"""Rows up to here are sorted by one kernel, each by a CTA (aten/src/ATen/native/cuda/Sort.cu)."""


def _sort(call: AtenCall) -> Iterator[Kernel]:
    """Values are copied and indices made; then one kernel for short rows, a radix sort for long ones."""
    tensor = call.inputs[0]
    if not tensor.numel():
        return
    op = _ordered(call, OrderKind.SORT, tensor)
    if op.cols <= SHORT_SORT and op.rows > 1:
        yield call.kernel(op, launches=3)
    else:
        yield call.kernel(op, launches=2 + sort_launches(op.rows * op.cols, key_bits=8 * op.dtype.nbytes))


def _topk(call: AtenCall) -> Iterator[Kernel]:
    """Selection, and a small sort of what was selected; one long row goes through many CTAs."""
    tensor = call.inputs[0]
    if tensor.numel():
        op = _ordered(call, OrderKind.TOPK, tensor)
        several = op.cols > 20_000 and op.rows < 64
        yield call.kernel(op, launches=5 + 5 * op.dtype.nbytes if several else 2)


def _unique(call: AtenCall) -> Iterator[Kernel]:
    """Sorted, compared with its neighbour, and gathered."""
    tensor = call.inputs[0]
    if tensor.numel():
        op = Order(kind=OrderKind.SORT, rows=1, cols=tensor.numel(), dtype=dtype_of(tensor))
        yield call.kernel(op, launches=sort_launches(tensor.numel(), key_bits=8 * op.dtype.nbytes))
        for _ in range(3):
            yield call.elementwise(reads=[tensor], writes=[tensor])


_SUMS = (
    "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "any", "all", "norm", "std",
    "var",
    "var_mean", "std_mean", "logsumexp", "nansum", "linalg_vector_norm", "count_nonzero", "aminmax",
)  # fmt: skip


def _distances(call: AtenCall) -> Iterator[Kernel]:
    """A CTA a pair of rows (aten/src/ATen/native/cuda/DistanceKernel.cu)."""
    rows = call.inputs[0 if call.name.endswith("forward") else 1]
    if call.outputs[0].numel():
        reduced_ = max(1, int(rows.shape[-1]))
        pairs = max(1, call.outputs[0].numel() if call.name.endswith("forward") else call.inputs[0].numel())
        yield call.kernel(Reduction(outer=pairs, reduced=2 * reduced_, dtype=dtype_of(rows)))


def _counted(call: AtenCall) -> Iterator[Kernel]:
    """The least and the largest value, a cleared result, and the counts."""
    tensor = call.inputs[0]
    if tensor.numel():
        yield reduced(call, reduction_of(tensor, range(tensor.dim()), name="max"))
        yield filled(call.outputs[0])
        yield call.elementwise(reads=[tensor], writes=[tensor], access=Access.STRIDED)


def _segments(call: AtenCall) -> Iterator[Kernel]:
    tensor = call.inputs[0]
    if tensor.numel():
        yield call.elementwise(kind="scan", reads=call.inputs[1:2], writes=call.inputs[1:2])
        yield call.elementwise(access=Access.STRIDED)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("_cdist_forward", "_cdist_backward", "_pdist_forward", "_pdist_backward"), _distances),
    **dict.fromkeys(("bincount", "histc"), _counted),
    **dict.fromkeys(("segment_reduce", "_segment_reduce_backward"), _segments),
    "trace": _reduce,
    "renorm": _reduce,
    **dict.fromkeys(_SUMS, _reduce),
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp", "_cummax_helper", "_cummin_helper"), _scan),
    **dict.fromkeys(("cumsum_", "cumprod_", "cummax", "cummin"), _scan),
    **dict.fromkeys(("sort", "argsort", "msort"), _sort),
    **dict.fromkeys(("topk", "kthvalue", "median", "nanmedian", "mode"), _topk),
    **dict.fromkeys(("_unique2", "_unique", "unique_dim", "unique_consecutive"), _unique),
}
