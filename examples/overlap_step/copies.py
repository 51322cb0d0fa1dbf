"""Two ways over the host link: a kernel on a few SMs, or the GPU's copy engines."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

CTAS = 8
TILE = 4096
"""8-byte words that one CTA moves at a time."""
STAGES = 8
"""Depth of the pipeline: all but one of its tiles wait in shared memory."""

Copy = Callable[[Tensor, Tensor], None]
"""Enqueue destination <- source on the current stream."""


@triton.jit
def conccl_host_copy_kernel(destination, source, sm_ids, words, TILE: tl.constexpr, STAGES: tl.constexpr):  # noqa: N803
    """Copy 8-byte words, tile by tile, and note which SM each CTA runs on.

    Asynchronous loads wait in a ring of STAGES - 1 tiles in shared memory, which hides the latency of the
    link and makes the CTA so large (224 KiB) that an SM holds one of them and no GEMM tile beside it.
    """
    cta = tl.program_id(0)
    sm = tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r,r", [cta], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(sm_ids + cta, sm)
    lanes = tl.arange(0, TILE)
    for offset in tl.range(cta * TILE, words, tl.num_programs(0) * TILE, num_stages=STAGES):
        index = offset + lanes
        mask = index < words
        tl.store(destination + index, tl.load(source + index, mask=mask), mask=mask)


class SmCopies:
    """Copies by ``conccl_host_copy_kernel``: pinned host memory is mapped, so SMs reach it by themselves."""

    name = "sm"

    def __init__(self) -> None:
        self.sm_ids = torch.full((CTAS,), -1, dtype=torch.int32, device="cuda")
        self.compiled = None

    def __call__(self, destination: Tensor, source: Tensor, /) -> None:
        """Enqueue one copy; both tensors are contiguous and a multiple of 8 bytes long."""
        into, out_of = destination.view(torch.int64), source.view(torch.int64)
        self.compiled = conccl_host_copy_kernel[(CTAS,)](
            into, out_of, self.sm_ids, into.numel(), TILE=TILE, STAGES=STAGES, num_warps=16
        )

    def check(self) -> str:
        """What proves that the copies took one SM a CTA."""
        needed = self.compiled.metadata.shared
        available = torch.cuda.get_device_properties(0).shared_memory_per_multiprocessor
        if 2 * needed <= available:
            raise RuntimeError(
                f"a CTA of the copy kernel takes {needed} of an SM's {available} bytes of shared memory, so"
                " two can share one; raise STAGES or TILE."
            )
        sms = sorted(self.sm_ids.tolist())
        if len(set(sms)) != CTAS or sms[0] < 0:
            raise RuntimeError(
                f"the {CTAS} CTAs of the copy kernel ran on SMs {sms}; one SM each was expected."
            )
        return f"{CTAS} CTAs on SMs {sms}"


class EngineCopies:
    """Copies by ``cudaMemcpyAsync``, which the GPU's copy engines carry out."""

    name = "ce"

    def __call__(self, destination: Tensor, source: Tensor, /) -> None:
        """Enqueue one copy."""
        destination.copy_(source, non_blocking=True)

    def check(self) -> str:
        """The trace shows memcpy rows and no kernel; `record` counts them."""
        return "cudaMemcpyAsync"
