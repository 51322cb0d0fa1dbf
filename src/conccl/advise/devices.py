"""Which device of the catalogue a trace was recorded on, by the name that its driver gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from conccl.core.hardware import Device
from conccl.costs.catalogue import device_names, load_device, with_fields
from conccl.traces.trace import Trace

_A100_40GB: Mapping[str, object] = {"hbm_nbytes": 40e9, "hbm_bandwidth": 1.555e12}
"""NVIDIA A100 data sheet, 40 GB."""

_NAMES: tuple[tuple[str, str, Mapping[str, object]], ...] = (
    (r"h200", "h200-sxm", {}),  # the PCIe card is an "H200 NVL"
    (r"h100 80gb hbm3", "h100-sxm", {}),  # the others are an "H100 PCIe" and an "H100 NVL"
    (r"a100 sxm4 80gb", "a100-sxm", {}),
    (r"a100 sxm4 40gb", "a100-sxm", _A100_40GB),
    (r"a100 pg509 200", "a100-sxm", _A100_40GB),  # PCI id 20B0, as the A100-SXM4-40GB (driver's list)
    (r"b200", "b200-sxm", {}),
    (r"mi300x( vf)?", "mi300x", {}),
    (r"mi210", "mi210", {}),
)
"""Whole names as drivers give them, vendor and family left out -> the catalogue's name, and what differs."""

_FAMILIES = re.compile(r"\b(nvidia|amd|instinct|tesla)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """A device, or why there is none."""

    device: Device | None
    reason: str = ""


def device_of(trace: Trace, /, *, given: str | None = None) -> Recognised:
    """The device that was ``given`` by name, else the one that the trace names, if the catalogue has it."""
    return recognised(trace.device_name, sm_count=trace.sm_count, given=given)


def recognised(name: str | None, /, *, sm_count: int | None, given: str | None = None) -> Recognised:
    """The same from what a trace says of its device."""
    if given is not None:
        return Recognised(device=load_device(given))
    if name is None:
        return Recognised(device=None, reason="the trace names no device; name it with --device")
    device = device_named(name)
    if device is None:
        known = ", ".join(device_names())
        return Recognised(
            device=None,
            reason=f"{name} is not in the catalogue ({known}); --device takes a TOML file too",
        )
    if sm_count not in (None, device.sm_count):
        return Recognised(
            device=None,
            reason=f"{name} has {sm_count} SMs here, in the catalogue {device.sm_count};"
            " name it with --device",
        )
    return Recognised(device=device)


def device_named(name: str, /) -> Device | None:
    """The device that a driver calls so; None where the catalogue has no such one.

    >>> device_named("NVIDIA A100-SXM4-40GB").hbm_nbytes
    40000000000.0
    """
    words = " ".join(re.sub(r"[^a-z0-9]+", " ", _FAMILIES.sub(" ", name.lower())).split())
    for pattern, known, differs in _NAMES:
        if re.fullmatch(pattern, words):
            return with_fields(load_device(known), differs)
    return None
