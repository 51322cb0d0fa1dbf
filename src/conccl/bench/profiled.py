"""What a profiler would say of simulated work: the durations of kernels, without the time between them.

An op that is several kernels is one task here, and a simulated kernel is as long as one of many in a graph,
where the next begins a moment after the last one's end. Recurrent networks run kernels side by side, so that
their durations add up to more than the time that they take.
"""

from __future__ import annotations

from conccl.core.errors import ConcclError
from conccl.core.hardware import Device
from conccl.core.ops import Op, Recurrent, Warm
from conccl.costs.constants import constant
from conccl.costs.kernels import kernels_of
from conccl.costs.recurrent import side_by_side_ns
from conccl.workloads.captured import Kernel


def profiled_ns(kernel: Kernel, op: Op, duration_ns: int, /, *, device: Device) -> int:
    """The sum of a profiler's rows for a simulated kernel of this duration, never below a third of it."""
    inner = op.op if isinstance(op, Warm) else op
    gap_ns, turn_ns = constant(device, "host.gap_ns"), constant(device, "host.turn_ns")
    if isinstance(inner, Recurrent):
        more_ns = side_by_side_ns(inner, device, launches=kernel.launches, gap_ns=gap_ns)
        return max(0, round(duration_ns + more_ns))
    try:
        count = len(kernels_of(op, device))
    except ConcclError:  # copies to the host and collectives are one
        count = 1
    between_ns = (count - 1) * gap_ns + count * turn_ns
    return max(duration_ns // 3, round(duration_ns - between_ns))
