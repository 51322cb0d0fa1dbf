"""One computation's isolated time and slowdowns: what the policy need not guess where it was told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conccl.core.hardware import Device
from conccl.core.ops import Compute
from conccl.strategies.heuristics import alone_ns, compute_ns_on
from conccl.tune.cells import Cells, losses


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What is known of one op."""

    op: Compute
    time_ns: float
    """Alone."""
    slow: Mapping[int, float]
    """SMs taken -> how many times as long it lasts."""


def modelled(op: Compute, device: Device, /) -> Shape:
    """By the cost models."""
    whole_ns = compute_ns_on(op, device, sms=device.sm_count)
    slow = {sms: compute_ns_on(op, device, sms=device.sm_count - sms) / whole_ns for sms in losses(device)}
    return Shape(op=op, time_ns=alone_ns(op, device), slow=slow)


def measured(op: Compute, cells: Cells, /) -> Shape | None:
    """By running it; None where it cannot be."""
    time_ns = cells.compute_ns(op)
    if time_ns is None:
        return None
    slowed = {sms: cells.compute_ns(op, without=sms) for sms in losses(cells.system.device)}
    return Shape(op=op, time_ns=time_ns, slow={sms: ns / time_ns for sms, ns in slowed.items() if ns})
