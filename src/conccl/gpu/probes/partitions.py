"""Whether SMs can be divided: two groups by one split, and the SMs that kernels in them really ran on."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from conccl.gpu.findings import Finding, State
from conccl.gpu.toolkit import launch, split_streams

GROUP = "partitions"
SMALLER = 32
HOLD_NS = 2_000_000


def probe() -> Iterator[Finding]:
    """One split, two kernels at once, two sets of ``%smid``."""
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    (few, few_sms), (rest, rest_sms) = split_streams(SMALLER)
    release = torch.zeros(1, dtype=torch.int32, device="cuda")
    seen = []
    for stream in (few, rest):
        ids, started = torch.full((sms,), -1, dtype=torch.int32, device="cuda"), torch.zeros_like(release)
        pointers = (release.data_ptr(), HOLD_NS, ids.data_ptr(), started.data_ptr())
        seen.append((ids, started))
        torch.cuda.synchronize()
        launch("conccl_hold", *pointers, grid=sms, block=1024, stream=stream)
    torch.cuda.synchronize()
    used = [set(ids.tolist()) - {-1} for ids, _ in seen]
    shared = used[0] & used[1]
    yield Finding(
        group=GROUP,
        name="green contexts",
        state=State.WARNING if shared else State.OK,
        value=f"{len(used[0])} and {len(used[1])} SMs, {len(shared)} shared",
        evidence=f"%smid of two kernels; the driver said {few_sms} and {rest_sms}",
        advice="Partitions are not disjoint here: use SM limits of kernels instead." if shared else "",
    )
