"""A kernel as the hardware sees it: CTAs, what each needs to be resident, and what each asks for.

A CTA first spends its latency, which uses nothing that is shared, then its body, in which it asks for the
SM's units, HBM, L2 and link bandwidth at once: the scarcest of them sets its pace. The kernel's isolated time
is what `executed_ns` gives with the whole device; with fewer SMs or less bandwidth the same CTAs take longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from conccl.core.errors import InputError
from conccl.core.hardware import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class CtaWork:
    """What one CTA asks for. Times in ns, traffic in bytes; both may be fractions, as they are averages."""

    latency_ns: float = 0.0
    """Start, pipeline fill and drain: passes while nothing shared is used."""
    least_ns: float = 0.0
    """The body takes no less, however much bandwidth it has: bytes in flight over memory latency."""
    sm_ns: float = 0.0
    """The body's time on the SM's matrix or vector units with the SM to itself; an SM's CTAs share it."""
    hbm_read_nbytes: float = 0.0
    hbm_write_nbytes: float = 0.0
    l2_nbytes: float = 0.0
    """Between L2 and the SM, hits and misses: what HBM would carry if L2 held nothing."""
    link_nbytes: float = 0.0
    """To or from peers or the host."""
    hbm_share: float = 1.0
    """Of the bandwidth that the best kernels reach, what its accesses can: reads and writes may disturb
    each other, rows be opened for little."""
    flops: float = 0.0

    @property
    def hbm_nbytes(self) -> float:
        """HBM traffic in both directions."""
        return self.hbm_read_nbytes + self.hbm_write_nbytes

    @property
    def hbm_taken_nbytes(self) -> float:
        """What the best kernels could have moved in the HBM time that it takes up."""
        return self.hbm_nbytes / self.hbm_share

    def body_ns(
        self, *, sharers: int, hbm_bandwidth: float, l2_bandwidth: float, link_bandwidth: float
    ) -> float:
        """The body's time beside ``sharers - 1`` CTAs on its SM, with these shares of bandwidth (bytes/s)."""
        return max(
            self.least_ns,
            self.sm_ns * sharers,
            self.hbm_taken_nbytes * 1e9 / hbm_bandwidth,
            self.l2_nbytes * 1e9 / l2_bandwidth,
            self.link_nbytes * 1e9 / link_bandwidth,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CtaGroup:
    """CTAs that ask for the same."""

    count: int
    work: CtaWork

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"CtaGroup.count is {self.count}; it must be 1 or more.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What one CTA holds of its SM while it is resident."""

    threads: int
    registers: int = 0
    """32-bit registers of the whole CTA; 0: few enough not to matter."""
    shared_memory_nbytes: int = 0

    def fit(self, device: Device, /) -> int:
        """CTAs of this size that fit on one SM together; 0: not even one does."""
        limits = [device.ctas_per_sm, device.threads_per_sm // self.threads]
        if self.registers:
            limits.append(device.registers_per_sm // self.registers)
        if self.shared_memory_nbytes:
            limits.append(device.shared_memory_nbytes // self.shared_memory_nbytes)
        return min(limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCost:
    """One kernel: its CTAs in launch order, and its time alone on the device."""

    name: str
    groups: tuple[CtaGroup, ...]
    """A persistent kernel has one CTA an SM slot, and two groups where some get one tile more."""
    footprint: Footprint
    ctas_per_sm: int
    """Of this kernel alone; beside others' CTAs, what their footprints leave."""
    fixed_ns: float
    """Start and end of the kernel as a whole, beside its CTAs."""
    isolated_ns: int
    """Duration alone on the device, as a profiler shows it: the gap to the next kernel is not in it."""
    uncertainty: float
    """Relative error to expect of the isolated time: the mean on shapes that the fit has not seen."""
    model: str = ""
    """Whose constants it is made of: "contiguous", "gemm", "collective" ..."""
    l2_footprint_nbytes: float = 0.0
    """What must stay in L2 for the HBM traffic to be no more than stated (at most the L2 traffic)."""
    cluster: int = 1
    """CTAs that start together or not at all."""
    workers: int = 0
    """CTAs of a persistent kernel, each of which goes from tile to tile: its first tile is its own, the next
    is whichever is next. The groups are then tiles. 0: a CTA for each of what the groups count."""

    def __post_init__(self) -> None:
        if not self.groups or self.ctas_per_sm < 1:
            raise InputError(f"kernel {self.name!r} needs CTAs and room for one or more of them on an SM.")

    @property
    def ctas(self) -> int:
        """CTAs in all."""
        return sum(group.count for group in self.groups)

    @property
    def flops(self) -> float:
        """Operations of all CTAs."""
        return sum(group.count * group.work.flops for group in self.groups)

    @property
    def hbm_nbytes(self) -> float:
        """HBM traffic of all CTAs."""
        return sum(group.count * group.work.hbm_nbytes for group in self.groups)

    @property
    def l2_nbytes(self) -> float:
        """Traffic between L2 and the SMs of all CTAs."""
        return sum(group.count * group.work.l2_nbytes for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What of a device a kernel has to itself. Bandwidths in bytes/s."""

    sms: int
    hbm_bandwidth: float
    l2_bandwidth: float
    link_bandwidth: float = math.inf


def whole(device: Device, /) -> Share:
    """The whole device, with the HBM bandwidth that kernels reach on it."""
    return Share(
        sms=device.sm_count,
        hbm_bandwidth=device.hbm_bandwidth * device.hbm_efficiency,
        l2_bandwidth=device.l2_bandwidth,
    )


def executed_ns(groups: tuple[CtaGroup, ...], *, ctas_per_sm: int, share: Share) -> float:
    """Time of the CTAs in waves on this share of a device.

    CTAs go to the emptiest SM in launch order; those of a wave start together and have equal parts of the
    bandwidth. Where a wave holds unequal CTAs, the short ones leave and the long ones have what is left.
    """
    slots = share.sms * ctas_per_sm
    waiting = [(group.count, group.work) for group in groups]
    total_ns = 0.0
    while waiting:
        count, work = waiting[0]
        if count >= slots:
            total_ns += (count // slots) * _wave_ns([(slots, work)], share=share)
            waiting[0] = (count % slots, work)
        else:
            wave, waiting = _next_wave(waiting, slots=slots)
            total_ns += _wave_ns(wave, share=share)
        waiting = [(count, work) for count, work in waiting if count]
    return total_ns


def _next_wave(
    waiting: list[tuple[int, CtaWork]], *, slots: int
) -> tuple[list[tuple[int, CtaWork]], list[tuple[int, CtaWork]]]:
    """The CTAs that fill the slots, and those that must wait."""
    wave, left = [], []
    for count, work in waiting:
        taken = min(count, slots)
        slots -= taken
        if taken:
            wave.append((taken, work))
        left.append((count - taken, work))
    return wave, left


def _wave_ns(wave: list[tuple[int, CtaWork]], *, share: Share) -> float:
    """From the start of a wave's CTAs to the end of the last."""
    left = dict.fromkeys(range(len(wave)), 1.0)
    latency_ns = max(work.latency_ns for _, work in wave)
    body_ns = 0.0
    while left:
        active = sum(wave[index][0] for index in left)
        needs = {
            index: part
            * wave[index][1].body_ns(
                sharers=-(-active // share.sms),
                hbm_bandwidth=share.hbm_bandwidth / active,
                l2_bandwidth=share.l2_bandwidth / active,
                link_bandwidth=share.link_bandwidth / active,
            )
            for index, part in left.items()
        }
        step_ns = min(needs.values())
        body_ns += step_ns
        left = {
            index: part * (1 - step_ns / needs[index])
            for index, part in left.items()
            if needs[index] > step_ns
        }
    return latency_ns + body_ns


def kernel_cost(
    name: str,
    /,
    *,
    device: Device,
    groups: tuple[CtaGroup, ...],
    footprint: Footprint,
    fixed_ns: float,
    uncertainty: float,
    model: str = "",
    ctas_per_sm: int | None = None,
    l2_footprint_nbytes: float = 0.0,
    cluster: int = 1,
    workers: int = 0,
) -> KernelCost:
    """A kernel with the isolated time that follows from its CTAs; ``ctas_per_sm`` None: as many as fit."""
    fit = footprint.fit(device) if ctas_per_sm is None else ctas_per_sm
    if fit < 1:
        raise InputError(f"a CTA of {name!r} is too large for an SM of {device.name}.")
    body_ns = executed_ns(groups, ctas_per_sm=fit, share=whole(device))
    return KernelCost(
        name=name,
        groups=groups,
        footprint=footprint,
        ctas_per_sm=fit,
        fixed_ns=fixed_ns,
        isolated_ns=max(1, round(fixed_ns + body_ns)),
        uncertainty=uncertainty,
        model=model,
        l2_footprint_nbytes=l2_footprint_nbytes,
        cluster=cluster,
        workers=workers,
    )


def least_ns_for(body_ns: float, /, *, count: int, slots: int, memory_ns: float) -> float:
    """The least time of each of ``count`` equal CTAs with which all of them take ``body_ns`` in waves.

    ``memory_ns`` is what their HBM traffic takes together; it must not be above ``body_ns``. In full waves it
    may be the memory that sets the pace, so that the last wave is left the rest.
    """
    full, rest = divmod(count, slots)
    rounds = full + (1 if rest else 0)
    even = body_ns / rounds
    wave_ns = memory_ns * min(slots, count) / count
    if even >= wave_ns or not rest:
        return even
    return max(body_ns - full * wave_ns, 0.0)
