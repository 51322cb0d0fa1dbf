"""Clocks, power and who else is on the GPU, by NVML's command-line tool."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

from conccl.gpu.findings import Finding, State

GROUP = "clocks"

FIELDS = (
    "clocks.current.sm",
    "clocks.max.sm",
    "power.draw",
    "power.limit",
    "power.max_limit",
    "temperature.gpu",
    "clocks_event_reasons.active",
)

IDLE = 0x1
"""Bit of the reasons for lower clocks that says nothing runs (NVML: GPU idle)."""

REASONS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


def probe() -> Iterator[Finding]:
    """One line a GPU, and one for every other process on them."""
    for line in _asked("gpu", ",".join(FIELDS)):
        yield _clocks(line)
    others = [line for line in _asked("compute-apps", "pid,used_memory") if not _is_mine(line)]
    yield Finding(
        group=GROUP,
        name="other processes",
        state=State.WARNING if others else State.OK,
        value=f"{len(others)} use a GPU" if others else "none uses a GPU",
        evidence="nvidia-smi --query-compute-apps" + (f": {'; '.join(others[:4])}" if others else ""),
        advice="What is measured beside them means little: stop them, or use another GPU." if others else "",
    )


def _clocks(line: str) -> Finding:
    clock, most, draw, limit, highest, heat, active = (part.strip() for part in line.split(","))
    why = reasons(active)
    return Finding(
        group=GROUP,
        name="SM clock and power",
        state=State.WARNING if why else State.OK,
        value=f"{clock} of {most}, {draw} of {limit}, {heat} C",
        evidence=f"nvidia-smi; limit at most {highest}" + (f"; slowed by {', '.join(why)}" if why else ""),
        advice="Times measured now are not those of a cool, unlimited GPU." if why else "",
    )


def reasons(active: str, /) -> list[str]:
    """Why clocks are low, from nvidia-smi's bit mask; an idle GPU is no reason."""
    try:
        mask = int(active, 16)
    except ValueError:
        return []
    return [name for bit, name in REASONS.items() if mask & bit]


def _asked(what: str, fields: str) -> list[str]:
    command = ["nvidia-smi", f"--query-{what}={fields}", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    return [line for line in done.stdout.splitlines() if line.strip()]


def _is_mine(line: str) -> bool:
    return line.split(",", maxsplit=1)[0].strip() == str(os.getpid())
