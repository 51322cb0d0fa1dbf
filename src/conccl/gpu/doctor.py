"""What this machine can do, as findings: the host, software and settings always, probes where a GPU is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from conccl.gpu.findings import Finding, State
from conccl.gpu.host import host_findings
from conccl.gpu.packages import package_findings
from conccl.gpu.probing import SECONDS, Command, probe_command, probed
from conccl.gpu.settings import setting_findings

PROBES = ("devices", "clocks", "copies", "partitions", "priorities", "memory_ops", "libraries")
"""Probes by name, the harmless ones first: a hang of a later one may leave the GPU busy for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """All findings, and whether there was a GPU to probe."""

    findings: tuple[Finding, ...]
    has_gpu: bool
    device: str | None
    """Name of the first GPU."""

    @property
    def is_broken(self) -> bool:
        """Whether some probe failed or hung."""
        return any(one.state in (State.FAILED, State.HUNG) for one in self.findings)


def examine(
    *,
    root: Path = Path("/"),
    environment: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
    command: Command = probe_command,
    done: Callable[[], None] = lambda: None,
) -> Examination:
    """Look at everything; ``done`` is called after each of `stages`."""
    findings = [*host_findings(root=root), *package_findings()]
    findings += setting_findings(os.environ if environment is None else environment)
    done()
    has_gpu = any(one.name == "NVIDIA driver" and one.state is State.OK for one in findings)
    for name in PROBES if has_gpu else ():
        findings += probed([name], seconds=seconds, command=command)
        done()
    device = next((one.value for one in findings if one.group == "devices" and one.name == "GPU 0"), None)
    return Examination(findings=tuple(findings), has_gpu=has_gpu, device=device)


def stages() -> int:
    """How often `examine` says that it has come further, at most."""
    return 1 + len(PROBES)
