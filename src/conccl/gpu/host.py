"""What the host is: processor, memory, shared memory, limits, driver. Nothing here needs a GPU."""

from __future__ import annotations

import os
import platform
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from conccl.core.units import GIB, MIB, format_bytes
from conccl.gpu.findings import Finding, State

GROUP = "host"

SHARED_MEMORY = GIB
"""Of /dev/shm: the host transport's segments and those of PyTorch's loaders; containers often have 64 MiB."""

LOCKED_MEMORY = 64 * MIB
"""Below this, registering buffers with InfiniBand fails (NCCL's own advice is unlimited)."""


def host_findings(*, root: Path = Path("/")) -> Iterator[Finding]:
    """Everything about the host; ``root`` is where its files are looked for."""
    yield _processor(root)
    yield _numa(root)
    yield _memory(root)
    yield _shared_memory(root / "dev/shm")
    yield _locked_memory()
    yield _driver(root)


def _processor(root: Path) -> Finding:
    text = _read(root / "proc/cpuinfo")
    names = re.findall(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    few = usable < 2
    return Finding(
        group=GROUP,
        name="processor",
        state=State.WARNING if few else State.OK,
        value=f"{names[0] if names else platform.machine()}, {usable} cores usable",
        evidence="/proc/cpuinfo, sched_getaffinity",
        advice="Launching and waiting share one core: give the process two or more." if few else "",
    )


def _numa(root: Path) -> Finding:
    nodes = sorted(path.name for path in (root / "sys/devices/system/node").glob("node[0-9]*"))
    several = len(nodes) > 1
    return Finding(
        group=GROUP,
        name="NUMA nodes",
        state=State.INFO,
        value=str(max(1, len(nodes))),
        evidence="/sys/devices/system/node",
        advice="Bind each rank to its GPU's node (numactl --cpunodebind --membind): host copies cross"
        " sockets otherwise."
        if several
        else "",
    )


def _memory(root: Path) -> Finding:
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _read(root / "proc/meminfo"), re.MULTILINE)
    value = format_bytes(int(found.group(1)) * 1024) if found else "unknown"
    return Finding(
        group=GROUP, name="memory available", state=State.INFO, value=value, evidence="/proc/meminfo"
    )


def _shared_memory(path: Path) -> Finding:
    try:
        usage = os.statvfs(path)
    except OSError as error:
        return Finding(
            group=GROUP,
            name="shared memory",
            state=State.MISSING,
            value=f"{path} cannot be used",
            evidence=f"statvfs: {error.strerror}",
            advice="The host transport needs /dev/shm: mount a tmpfs there.",
        )
    free, whole = usage.f_bavail * usage.f_frsize, usage.f_blocks * usage.f_frsize
    little = free < SHARED_MEMORY
    return Finding(
        group=GROUP,
        name="shared memory",
        state=State.WARNING if little else State.OK,
        value=f"{format_bytes(free)} free of {format_bytes(whole)}",
        evidence=f"statvfs {path}",
        advice="Start the container with --shm-size=8g or --ipc=host: segments of the host transport lie"
        " there."
        if little
        else "",
    )


def _locked_memory() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = soft == resource.RLIM_INFINITY
    little = not unlimited and soft < LOCKED_MEMORY
    return Finding(
        group=GROUP,
        name="locked memory",
        state=State.WARNING if little else State.OK,
        value="unlimited" if unlimited else format_bytes(soft),
        evidence="getrlimit RLIMIT_MEMLOCK",
        advice="Between nodes, NCCL registers buffers with the network card and needs more: ulimit -l"
        " unlimited, or --ulimit memlock=-1 for a container. Pinned host memory on one node does not."
        if little
        else "",
    )


def _driver(root: Path) -> Finding:
    text = _read(root / "proc/driver/nvidia/version")
    version = re.search(r"Kernel Module[^\d]*([\d.]+)", text)
    devices = sorted(path.name for path in (root / "dev").glob("nvidia[0-9]*"))
    if version is None:
        amd = (root / "dev/kfd").exists()
        return Finding(
            group=GROUP,
            name="NVIDIA driver",
            state=State.MISSING,
            value="not loaded",
            evidence="/proc/driver/nvidia/version" + (", /dev/kfd is there" if amd else ""),
            advice="An AMD GPU is there; the GPU executor knows NVIDIA's only. Simulation works."
            if amd
            else "No GPU can be used here. What still works: analyze, characterize and simulate"
            " (--executor sim), predict, sample, compare, tune, and the host transport.",
        )
    return Finding(
        group=GROUP,
        name="NVIDIA driver",
        state=State.OK if devices else State.WARNING,
        value=f"{version.group(1)}, {len(devices)} device files",
        evidence="/proc/driver/nvidia/version, /dev/nvidia*",
        advice="" if devices else "The container has no GPU: start it with --gpus all.",
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
