"""Whether a high-priority kernel overtakes waiting CTAs of a low-priority one."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from conccl.gpu.findings import Finding, State
from conccl.gpu.toolkit import checked, driver, launch

GROUP = "priorities"
HOLD_NS = 200_000
WAVES = 20


def probe() -> Iterator[Finding]:
    """Many waves of short CTAs, then one CTA with and without priority, and when that ends."""
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    lowest, highest = checked(driver().cuCtxGetStreamPriorityRange())
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    shares = {priority: _share(sms, priority) for priority in (lowest, highest)}
    overtakes = shares[highest] < 0.5 * shares[lowest]
    yield Finding(
        group=GROUP,
        name="stream priorities",
        state=State.OK if overtakes else State.WARNING,
        value=f"{lowest} (lowest) to {highest}",
        evidence=f"behind {WAVES} waves one CTA ended after {shares[lowest]:.0%} of their time, with priority"
        f" after {shares[highest]:.0%}",
        advice="" if overtakes else "Priorities change nothing here: launch communication first.",
    )


def _share(sms: int, priority: int) -> float:
    """When a CTA launched second ended, as a share of the first kernel's time."""
    slow, quick = torch.cuda.Stream(), torch.cuda.Stream(priority=priority)
    words = [torch.zeros(sms * 2 * WAVES, dtype=torch.int32, device="cuda") for _ in range(2)]
    release, started = (torch.zeros(1, dtype=torch.int32, device="cuda") for _ in range(2))
    marks = {name: torch.cuda.Event(enable_timing=True) for name in ("begin", "slow", "quick")}
    pointers = [(release.data_ptr(), HOLD_NS, one.data_ptr(), started.data_ptr()) for one in words]
    torch.cuda.synchronize()
    marks["begin"].record(slow)
    launch("conccl_hold", *pointers[0], grid=sms * 2 * WAVES, block=1024, stream=slow.cuda_stream)
    marks["slow"].record(slow)
    launch("conccl_hold", *pointers[1], grid=1, block=1024, stream=quick.cuda_stream)
    marks["quick"].record(quick)
    torch.cuda.synchronize()
    whole = marks["begin"].elapsed_time(marks["slow"])
    return marks["begin"].elapsed_time(marks["quick"]) / whole if whole > 0 else 1.0
