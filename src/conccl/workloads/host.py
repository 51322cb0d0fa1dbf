"""What the calls of a step cost the host: dispatch, launches, autograd, and the program's own Python."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

from conccl.core.hardware import Device
from conccl.core.ops import Convolution, ForEach
from conccl.costs.constants import constant
from conccl.workloads.captured import Captured, HostCall, Phase

LAUNCHES = 3
"""Kernels of one op that count as launched by it; further ones come from a loop inside a library."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How often a call does what a constant of the host is for; the field names are theirs."""

    launch: int = 0
    """Kernels dispatched and launched."""
    more: int = 0
    """Further kernels of a library call."""
    backward: int = 0
    """Ops that autograd calls."""
    view: int = 0
    """Ops that launch nothing."""
    python: int = 0
    """Python functions entered."""
    tensor: int = 0
    """Tensors of lists."""
    plan: int = 0
    """Convolutions, for each of which cuDNN's plan is looked up by all that it depends on."""
    graph: int = 0
    """Graphs launched."""

    def __add__(self, other: Counts) -> Counts:
        sums = [one + more for one, more in zip(astuple(self), astuple(other), strict=True)]
        return Counts(**dict(zip((field.name for field in fields(Counts)), sums, strict=True)))


def counts_of(call: HostCall, captured: Captured, /) -> Counts:
    """What one call does."""
    if call.phase is Phase.REPLAY:
        return Counts(graph=1, python=call.python_calls)
    if not call.count:
        return Counts(view=1, python=call.python_calls)
    kernels = [launched.kernel for launched in captured.kernels[call.first : call.first + call.count]]
    launches = sum(kernel.launches for kernel in kernels)
    first = min(launches, LAUNCHES * len(kernels))
    return Counts(
        launch=first,
        more=launches - first,
        backward=int(call.phase is Phase.BACKWARD),
        python=call.python_calls,
        plan=sum(isinstance(kernel.op, Convolution) for kernel in kernels),
        tensor=sum(kernel.op.tensors for kernel in kernels if isinstance(kernel.op, ForEach)),
    )


def host_ns(call: HostCall, captured: Captured, device: Device, /) -> float:
    """Time from the end of the call before to this call's last launch."""
    counts = counts_of(call, captured)
    times = zip(fields(Counts), astuple(counts), strict=True)
    return sum((count * constant(device, f"host.{field.name}_ns") for field, count in times), start=0.0)
