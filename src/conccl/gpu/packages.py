"""Which optional packages are installed, and in which version; nothing is imported for it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator

from conccl.gpu.findings import Finding, State

GROUP = "software"

Version = Callable[[str], str]

PACKAGES = (
    ("torch", "torch", "models, collectives, the executor"),
    ("triton", "gpu", "kernels with an SM limit"),
    ("cuda-bindings", "gpu", "copy engines, stream memory operations, green contexts"),
    ("cuda-core", "gpu", "partitions by one disjoint split"),
)
"""Distribution, the extra that brings it, what it is for."""

NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")


def package_findings(version_of: Version = importlib.metadata.version, /) -> Iterator[Finding]:
    """One line a package."""
    for name, extra, purpose in PACKAGES:
        version = _version(version_of, name)
        yield Finding(
            group=GROUP,
            name=name,
            state=State.MISSING if version is None else State.OK,
            value="not installed" if version is None else version,
            evidence="package metadata",
            advice=f"For {purpose}: pip install 'conccl[{extra}]'" if version is None else "",
        )
    torch = _version(version_of, "torch")
    if torch is not None and "+cpu" in torch:
        yield Finding(
            group=GROUP,
            name="torch build",
            state=State.WARNING,
            value="CPU only",
            evidence=f"version {torch}",
            advice="On a machine with a GPU install PyTorch's CUDA build.",
        )
    nccl = next((found for name in NCCL if (found := _version(version_of, name)) is not None), None)
    yield Finding(
        group=GROUP,
        name="NCCL",
        state=State.INFO if nccl is None else State.OK,
        value="not installed as a package" if nccl is None else nccl,
        evidence="package metadata",
    )


def _version(version_of: Version, name: str) -> str | None:
    try:
        return version_of(name)
    except importlib.metadata.PackageNotFoundError:
        return None
