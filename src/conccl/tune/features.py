"""What tables know a pair by: the kind of its communication, and how its computation uses the device."""

from __future__ import annotations

import math
from dataclasses import dataclass

from conccl.core.errors import InputError
from conccl.core.hardware import Device
from conccl.core.kinds import CollectiveKind, DType, Memory
from conccl.core.ops import Collective, Communication, Compute, Copy, Gemm, Warm

TILE = 128 * 128
"""Outputs of a GEMM tile by which waves are counted; only ratios of waves matter."""

MANY_WAVES = 32.0
"""Waves of kernels that are no GEMMs: theirs are many and short."""

COLLECTIVES = (
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_TO_ALL,
    CollectiveKind.BROADCAST,
)
"""Collectives that tables are measured for."""

HOST_IN = "host_in"
HOST_OUT = "host_out"
LOCAL = "local"
PEER = "peer"

COPIES = {
    HOST_IN: (Memory.HOST, Memory.DEVICE),
    HOST_OUT: (Memory.DEVICE, Memory.HOST),
    LOCAL: (Memory.DEVICE, Memory.DEVICE),
}
"""Copies that tables are measured for: source and destination."""

_ENDS = {
    **{ends: kind for kind, ends in COPIES.items()},
    (Memory.DEVICE, Memory.PEER): PEER,
    (Memory.PEER, Memory.DEVICE): PEER,
}


def kind_of(op: Communication, /) -> str:
    """The word that tables have for a communication: a collective's kind, or where a copy goes."""
    if isinstance(op, Collective):
        return op.kind.value
    if isinstance(op, Copy):
        found = _ENDS.get((op.source, op.destination))
        if found is not None:
            return found
    raise InputError(
        f"a pair communicates by a Collective or a Copy that touches the GPU, not by {type(op).__name__}."
    )


def communication_of(kind: str, /, *, nbytes: int, ranks: int) -> Communication:
    """The communication that a word of `kind_of` means."""
    if kind in COPIES:
        source, destination = COPIES[kind]
        return Copy(nbytes=nbytes, source=source, destination=destination)
    return Collective(kind=CollectiveKind(kind), nbytes=nbytes, ranks=ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """What a device could do at best; the least time of an op, and which resource sets it."""

    sm_count: int
    flops: dict[DType, float]
    """Operations a nanosecond by element type."""
    vector_flops: float
    hbm: float
    """Bytes a nanosecond that the best kernels reach."""

    def least_ns(self, op: Compute, /) -> tuple[float, float]:
        """Time of the op's operations alone, and of its memory traffic alone."""
        if isinstance(op, Warm):
            op = op.op
        rate = self.flops.get(getattr(op, "dtype", None), self.vector_flops)  # type: ignore[arg-type]
        return op.flops / rate, op.nbytes / self.hbm

    def waves(self, op: Compute, /) -> float:
        """How many times the SMs are filled, in GEMM tiles of 128 x 128."""
        if isinstance(op, Gemm):
            return op.m * op.n * op.batch / (TILE * self.sm_count)
        return MANY_WAVES


def roof_of(device: Device, /) -> Roof:
    """The device's roof, from its data sheet and the memory bandwidth that kernels reach."""
    return Roof(
        sm_count=device.sm_count,
        flops={dtype: rate / 1e9 for dtype, rate in device.peak_flops.items()},
        vector_flops=device.vector_flops / 1e9,
        hbm=device.hbm_bandwidth * device.hbm_efficiency / 1e9,
    )


def log2(value: float, /) -> float:
    """Base-2 logarithm of a time or size, 1 where it is less: tables end there."""
    return math.log2(value) if value > 1.0 else 0.0
