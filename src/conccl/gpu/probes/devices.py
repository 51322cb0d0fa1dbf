"""GPUs, copy engines, peers and links."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from conccl.core.errors import ConcclError
from conccl.core.units import format_bytes
from conccl.gpu.findings import Finding, State
from conccl.gpu.toolkit import checked, driver

GROUP = "devices"


def probe() -> Iterator[Finding]:
    """What the driver and PyTorch say about every GPU."""
    if not torch.cuda.is_available():
        yield Finding(
            group=GROUP,
            name="GPU",
            state=State.MISSING,
            value="PyTorch sees none",
            evidence=f"torch {torch.__version__}, CUDA {torch.version.cuda}",
            advice="The driver may be older than PyTorch's CUDA needs: update it, or install an older build.",
        )
        return
    for index in range(torch.cuda.device_count()):
        yield from _device(index)
    yield from _peers()


def _device(index: int) -> Iterator[Finding]:
    properties = torch.cuda.get_device_properties(index)
    yield Finding(
        group=GROUP,
        name=f"GPU {index}",
        state=State.OK,
        value=properties.name,
        evidence=f"compute capability {properties.major}.{properties.minor},"
        f" {properties.multi_processor_count} SMs, {format_bytes(properties.total_memory)},"
        f" L2 {format_bytes(properties.L2_cache_size)}",
    )
    with contextlib.suppress(ConcclError):
        cuda = driver()
        checked(cuda.cuInit(0))
        engines = checked(
            cuda.cuDeviceGetAttribute(
                cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,
                checked(cuda.cuDeviceGet(index)),
            )
        )
        yield Finding(
            group=GROUP,
            name=f"GPU {index} copy engines",
            state=State.OK if engines > 1 else State.WARNING,
            value=str(engines),
            evidence="CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT",
            advice="" if engines > 1 else "Copies in and out take turns on one engine.",
        )


def _peers() -> Iterator[Finding]:
    count = torch.cuda.device_count()
    if count < 2:
        return
    closed = [
        f"{one}-{other}"
        for one in range(count)
        for other in range(count)
        if one != other and not torch.cuda.can_device_access_peer(one, other)
    ]
    yield Finding(
        group=GROUP,
        name="peer access",
        state=State.WARNING if closed else State.OK,
        value="between all GPUs" if not closed else f"not between {', '.join(closed[:8])}",
        evidence="cudaDeviceCanAccessPeer",
        advice="Copies between these go through the host: see IOMMU, ACS and the virtual machine's settings."
        if closed
        else "",
    )
