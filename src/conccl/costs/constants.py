"""The constants of the cost models: what each means, its range, and where its value comes from.

A device's file holds what was fitted to it. What it does not hold is taken from the H200, for which all were
fitted: they are latencies in clocks and shares of what a data sheet promises, and so carry over. Only the
uncertainty does not: a model with another device's constants reports the wide one that is written here.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conccl.core.errors import UnknownNameError
from conccl.core.hardware import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One constant of a model."""

    start: float
    """Where a fit begins; the value of an uncertainty where none was fitted."""
    low: float
    high: float
    meaning: str


def _constants(prefix: str, /, **given: tuple[float, float, float, str]) -> dict[str, Constant]:
    return {
        f"{prefix}.{name}": Constant(start=start, low=low, high=high, meaning=meaning)
        for name, (start, low, high, meaning) in given.items()
    }


_CYCLES = (0.0, 1e6)


def _protocols(family: str, /, **defaults: float) -> dict[str, Constant]:
    """The constants of a family of collectives: a start, a hop and a share of the link for each protocol."""
    found: dict[str, Constant] = {}
    for protocol in ("ll", "ll128", "simple"):
        found |= _constants(
            f"collective.{family}",
            **{
                f"{protocol}_cycles": (defaults[f"{protocol}_cycles"], *_CYCLES, "clocks to start"),
                f"{protocol}_hop_cycles": (
                    defaults[f"{protocol}_hop_cycles"],
                    *_CYCLES,
                    "clocks a hop",
                ),
                f"{protocol}_share": (defaults[f"{protocol}_share"], 1e-4, 1.5, "of the bandwidth reached"),
            },
        )
    return found | _constants(
        f"collective.{family}",
        few_ranks=(defaults["few_ranks"], 0.0, 100.0, "behind a switch, n ranks reach n / (n + this)"),
        ctas=(defaults["ctas"], 1.0, 1024.0, "CTAs that drive it, one an SM"),
    )


CONSTANTS: dict[str, Constant] = {
    **_protocols(
        "ring",
        ll_cycles=7900,
        ll_hop_cycles=1750,
        ll_share=0.0066,
        ll128_cycles=9300,
        ll128_hop_cycles=1840,
        ll128_share=0.33,
        simple_cycles=39500,
        simple_hop_cycles=1980,
        simple_share=1.0,
        few_ranks=0.96,
        ctas=24,
    ),
    **_protocols(
        "direct",
        ll_cycles=11700,
        ll_hop_cycles=210,
        ll_share=0.021,
        ll128_cycles=22000,
        ll128_hop_cycles=170,
        ll128_share=0.63,
        simple_cycles=84600,
        simple_hop_cycles=4560,
        simple_share=0.85,
        few_ranks=0.24,
        ctas=24,
    ),
    **_constants(
        "collective",
        **{
            "in_switch.cycles": (40000.0, *_CYCLES, "clocks to start and end"),
            "in_switch.share": (0.68, 0.01, 1.5, "of the bandwidth reached, each byte sent once"),
            "uncertainty": (0.2, 0.001, 10.0, "relative error with another device's constants"),
            "unmeasured_uncertainty": (
                0.3,
                0.001,
                10.0,
                "relative error of what was never measured",
            ),
        },
    ),
}


REFERENCE = Path(__file__).parent / "devices" / "h200-sxm.toml"
"""The device to which all constants were fitted."""


def constant(device: Device, name: str, /) -> float:
    """A model's constant on this device."""
    found = device.calibration.get(name)
    if found is not None:
        return found
    if name not in CONSTANTS:
        raise UnknownNameError(kind="constant", name=name, known=CONSTANTS)
    if name.endswith("uncertainty"):
        return CONSTANTS[name].start
    return _reference().get(name, CONSTANTS[name].start)


@functools.cache
def _reference() -> dict[str, float]:
    """The reference device's constants, read apart from the catalogue, which needs this module's ranges."""
    document = tomllib.loads(REFERENCE.read_text(encoding="utf-8"))
    return dict(_numbers(document.get("calibration", {})))


def _numbers(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, entry in table.items():
        if isinstance(entry, dict):
            yield from _numbers(entry, f"{prefix}{key}.")
        elif isinstance(entry, (int, float)):
            yield f"{prefix}{key}", float(entry)
