"""What ends a slice of a native run and what is counted in it: hardware counters, or the software clock.

The kernel's performance events (perf_event_open(2)) are opened by the program itself, inside the counting
agent; here is decided which.
"""

from __future__ import annotations

import ctypes
import enum
import os
import struct
from dataclasses import dataclass

from conccl.core.errors import InputError

_PERF_EVENT_OPEN = 298  # x86-64
_ATTRIBUTE_BYTES = 128
_USER_ONLY = 1 << 5 | 1 << 6  # exclude_kernel, exclude_hv

NOMINAL_INSTRUCTIONS_PER_NS = 10
"""What a slice of time is taken for where instructions cannot be counted (seen: 3 to 13)."""


class Backend(enum.StrEnum):
    """Where slices of a native run come from."""

    HARDWARE = "hardware"
    """Retired instructions end a slice; cycles, cache misses and branch misses are counted in it."""
    CLOCK = "clock"
    """Time of the processor ends a slice; virtual machines often have nothing better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A performance event by type and config, as in perf_event_attr."""

    name: str
    type: int
    config: int


EVENTS: dict[Backend, tuple[Event, ...]] = {
    Backend.HARDWARE: (
        Event(name="instructions", type=0, config=1),
        Event(name="cycles", type=0, config=0),
        Event(name="cache_misses", type=0, config=3),
        Event(name="branch_misses", type=0, config=5),
    ),
    Backend.CLOCK: (Event(name="task_clock_ns", type=1, config=1),),
}
"""The first one ends slices, the others are counted beside it."""


def problem_with(event: Event, /) -> str:
    """Why this process may not open the event; empty where it may."""
    attributes = bytearray(_ATTRIBUTE_BYTES)
    struct.pack_into("<IIQ", attributes, 0, event.type, _ATTRIBUTE_BYTES, event.config)
    struct.pack_into("<Q", attributes, 40, 1 | _USER_ONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    raw = (ctypes.c_char * _ATTRIBUTE_BYTES).from_buffer(attributes)
    file = libc.syscall(_PERF_EVENT_OPEN, raw, 0, -1, -1, 0)
    if file < 0:
        return os.strerror(ctypes.get_errno())
    os.close(file)
    return ""


def choose_backend(wanted: Backend | None = None, /) -> Backend:
    """Hardware counters where every one of them can be opened, else the clock."""
    for backend in (wanted,) if wanted else (Backend.HARDWARE, Backend.CLOCK):
        problems = [f"{event.name}: {why}" for event in EVENTS[backend] if (why := problem_with(event))]
        if not problems:
            return backend
    raise InputError(
        f"performance events cannot be opened ({problems[0]}). Allow them "
        "(sysctl kernel.perf_event_paranoid=2; "
        "containers: --cap-add PERFMON), or use --method simpoint."
    )


def slice_period(instructions: int, /, *, backend: Backend) -> int:
    """Length of a slice in units of the first event: instructions, or nanoseconds that stand for them."""
    if backend is Backend.HARDWARE:
        return instructions
    return max(100_000, instructions // NOMINAL_INSTRUCTIONS_PER_NS)
