"""NCCL and symmetric memory: what of copy-engine collectives is there."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist

from conccl.gpu.findings import Finding, State

GROUP = "libraries"

ZERO_CTAS = (2, 28)
"""NCCL from which copy-engine collectives (NCCL_CTA_POLICY_ZERO) exist."""


def probe() -> Iterator[Finding]:
    """Versions and symbols; nothing is communicated."""
    yield _nccl()
    yield _symmetric_memory()


def _nccl() -> Finding:
    if not dist.is_nccl_available():
        return Finding(
            group=GROUP,
            name="NCCL",
            state=State.MISSING,
            value="PyTorch was built without it",
            evidence="torch.distributed.is_nccl_available",
        )
    version = torch.cuda.nccl.version()
    enough = tuple(version[:2]) >= ZERO_CTAS
    several = torch.cuda.device_count() > 1
    policy = os.environ.get("NCCL_CTA_POLICY", "default")
    advice = ""
    if not enough:
        advice = f"Copy-engine collectives need {'.'.join(map(str, ZERO_CTAS))} or later."
    elif not several:
        advice = "They need two GPUs or more of one NVLink domain: there is one."
    return Finding(
        group=GROUP,
        name="NCCL",
        state=State.OK if enough and several else State.INFO,
        value=".".join(map(str, version)) + f", CTA policy {policy}",
        evidence="torch.cuda.nccl.version, NCCL_CTA_POLICY",
        advice=advice,
    )


def _symmetric_memory() -> Finding:
    try:
        module = importlib.import_module("torch.distributed._symmetric_memory")
    except ImportError as error:
        return Finding(
            group=GROUP,
            name="symmetric memory",
            state=State.MISSING,
            value="PyTorch has none",
            evidence=str(error),
        )
    ops = [name for name in ("_low_contention_all_gather", "fused_all_gather_matmul") if _has_op(name)]
    return Finding(
        group=GROUP,
        name="symmetric memory",
        state=State.OK if ops else State.WARNING,
        value=", ".join(ops) or "no operators",
        evidence=f"{module.__name__}, torch.ops.symm_mem",
    )


def _has_op(name: str) -> bool:
    return hasattr(torch.ops.symm_mem, name)
