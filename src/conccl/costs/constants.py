"""The constants of the cost models: what each means, its range, and its value where a device has none fitted.

The defaults are those fitted to the H200 (see `devices/h200-sxm.toml`), as far as they are ratios or carry
over by the data sheet; a model on a device without own constants reports a wider uncertainty.
"""

from __future__ import annotations

from dataclasses import dataclass

from conccl.core.errors import UnknownNameError
from conccl.core.hardware import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One constant of a model."""

    default: float
    low: float
    high: float
    meaning: str


CONSTANTS: dict[str, Constant] = {}


def constant(device: Device, name: str, /) -> float:
    """A model's constant on this device."""
    if name in device.calibration:
        return device.calibration[name]
    if name not in CONSTANTS:
        raise UnknownNameError(kind="constant", name=name, known=CONSTANTS)
    return CONSTANTS[name].default
