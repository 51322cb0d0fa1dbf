"""What the calls of a step cost the host: dispatch, launches, autograd, and the program's own Python."""

from __future__ import annotations

from conccl.core.hardware import Device
from conccl.core.ops import ForEach
from conccl.costs.constants import constant
from conccl.workloads.captured import Captured, HostCall, Phase

LAUNCHES = 3
"""Kernels of one op that count as launched by it; further ones come from a loop inside a library."""


def host_ns(call: HostCall, captured: Captured, device: Device, /) -> float:
    """Time from the end of the call before to this call's last launch."""
    kernels = [launched.kernel for launched in captured.kernels[call.first : call.first + call.count]]
    launches = sum(kernel.launches for kernel in kernels)
    first = min(launches, LAUNCHES * len(kernels))
    time_ns = call.python_calls * constant(device, "host.python_ns")
    if not launches:
        return time_ns + constant(device, "host.view_ns")
    time_ns += first * constant(device, "host.launch_ns")
    time_ns += (launches - first) * constant(device, "host.more_ns")
    if call.phase is Phase.BACKWARD:
        time_ns += constant(device, "host.backward_ns")
    tensors = sum(kernel.op.tensors for kernel in kernels if isinstance(kernel.op, ForEach))
    return time_ns + tensors * constant(device, "host.tensor_ns")
