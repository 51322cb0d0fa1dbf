"""Draws from distributions that PyTorch puts together from other kernels on CUDA."""

from __future__ import annotations

from collections.abc import Iterator

from conccl.core.kinds import Memory, OrderKind
from conccl.core.ops import Copy, Order
from conccl.workloads.capture.kernels.call import AtenCall, Rule
from conccl.workloads.capture.kernels.reductions import reduced, reduction_of
from conccl.workloads.capture.tensors import dtype_of
from conccl.workloads.captured import Kernel


def _multinomial(call: AtenCall) -> Iterator[Kernel]:
    """Checks whose results the host reads, then the largest of p / q with q drawn exponentially.

    aten/src/ATen/native/Distributions.cpp; several draws with replacement search sums of the rows.
    """
    weights = call.inputs[0]
    if not weights.numel():
        return
    drawn = int(call.argument("num_samples"))
    if call.argument("replacement") and drawn > 1:
        for kind in ("sum", "div", "cumsum"):
            yield call.elementwise(kind=kind, reads=[weights], writes=[weights])
        yield call.elementwise(kind="sample", reads=[weights])
        return
    everything, last = range(weights.dim()), [weights.dim() - 1]
    few = call.outputs[:1]
    for name, compared in (("max", 1), ("min", 2)):
        yield reduced(call, reduction_of(weights, everything, name=name))
        for _ in range(compared):
            yield call.elementwise(kind="lt", reads=few, writes=few)
    yield _read_by_the_host(call)
    yield reduced(call, reduction_of(weights, last))
    yield call.elementwise(kind="eq", reads=few, writes=few)
    if weights.dim() > 1:
        yield reduced(call, reduction_of(call.outputs[0], everything))
    yield _read_by_the_host(call)
    yield call.elementwise(kind="exponential", reads=[], writes=[weights])
    yield call.elementwise(kind="div", reads=[weights, weights], writes=[weights])
    if drawn == 1:
        yield reduced(call, reduction_of(weights, last, name="argmax"))
    else:
        cols = int(weights.shape[-1])
        rows = weights.numel() // cols
        op = Order(kind=OrderKind.TOPK, rows=rows, cols=cols, dtype=dtype_of(weights))
        yield call.kernel(op, launches=2)


def _read_by_the_host(call: AtenCall) -> Kernel:
    return call.kernel(Copy(nbytes=1, source=Memory.DEVICE, destination=Memory.HOST))


RULES: dict[str, Rule] = {"multinomial": _multinomial}
