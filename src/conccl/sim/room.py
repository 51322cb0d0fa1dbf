"""What is free on an SM, and how many CTAs of a kernel that has room for."""

from __future__ import annotations

from conccl.core.hardware import Device
from conccl.costs.kernel import Footprint

Room = tuple[int, int, int, int]
"""Free threads, registers, bytes of shared memory and CTA slots of one SM."""


def empty(device: Device, /) -> Room:
    """An SM on which nothing is resident."""
    return (
        device.threads_per_sm,
        device.registers_per_sm,
        device.shared_memory_nbytes,
        device.ctas_per_sm,
    )


def fits(footprint: Footprint, /, *, room: Room) -> int:
    """CTAs of this footprint for which there is room."""
    threads, registers, shared, slots = room
    fit = min(slots, threads // footprint.threads)
    if footprint.registers:
        fit = min(fit, registers // footprint.registers)
    if footprint.shared_memory_nbytes:
        fit = min(fit, shared // footprint.shared_memory_nbytes)
    return max(0, fit)


def without(room: Room, /, *, footprint: Footprint, ctas: int) -> Room:
    """The room that is left beside so many CTAs more; a negative number gives room back."""
    threads, registers, shared, slots = room
    return (
        threads - ctas * footprint.threads,
        registers - ctas * footprint.registers,
        shared - ctas * footprint.shared_memory_nbytes,
        slots - ctas,
    )
