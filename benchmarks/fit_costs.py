"""Fit the constants of cost models to measurements and write them into a device's file, with their source.

python benchmarks/fit_costs.py collectives h200-sxm
"""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path

import cost_data
import numpy as np
from scipy.optimize import least_squares

from conccl.core.hardware import Device
from conccl.costs.catalogue import FOLDER, load_device, with_fields
from conccl.costs.collective import PROTOCOLS, collective_cost
from conccl.costs.constants import CONSTANTS, constant

MARK = "# Fitted constants: written by benchmarks/fit_costs.py, one model a section.\n"

Predict = Callable[[Device], np.ndarray]


def fitted(
    device: Device, names: Sequence[str], *, predict: Predict, measured_us: np.ndarray, weights: np.ndarray
) -> dict[str, float]:
    """Constants that bring predictions closest to the measured times, in relative terms, outliers damped."""
    start = np.log([max(constant(device, name), 1e-9) for name in names])
    low = np.log([max(CONSTANTS[name].low, 1e-9) for name in names])
    high = np.log([CONSTANTS[name].high for name in names])

    def residuals(logs: np.ndarray) -> np.ndarray:
        return weights * np.log(predict(with_constants(device, names, np.exp(logs))) / measured_us)

    found = least_squares(
        residuals,
        np.clip(start, low + 1e-6, high - 1e-6),
        bounds=(low, high),
        loss="soft_l1",
        f_scale=0.05,
        diff_step=1e-3,
    )
    return dict(zip(names, (float(f"{value:.5g}") for value in np.exp(found.x)), strict=True))


def with_constants(device: Device, names: Sequence[str], values: Sequence[float]) -> Device:
    return with_fields(
        device, {f"calibration.{name}": float(value) for name, value in zip(names, values, strict=True)}
    )


def written(path: Path, model: str, constants: dict[str, float], *, source: str) -> None:
    """Put a model's constants into the device file, in place of those it had."""
    head, _, tail = path.read_text(encoding="utf-8").partition(MARK)
    sections = {
        text.partition("]")[0]: text.partition("]")[2].strip()
        for text in tail.split("[calibration.")
        if text.strip()
    }
    lines = [f'source = "{source}"']
    lines += [f"{name.removeprefix(model + '.')} = {value:g}" for name, value in constants.items()]
    sections[model] = "\n".join(lines)
    body = "\n\n".join(f"[calibration.{name}]\n{text}" for name, text in sorted(sections.items()))
    path.write_text(f"{head.rstrip()}\n\n{MARK}\n{body}\n", encoding="utf-8")


def fit_collectives(device: Device) -> None:
    rows = cost_data.collectives("h200_sxm_nccl2.29.2.parquet")
    seen = [row for row in rows if not row.unseen]
    names = [
        f"collective.{family}.{protocol}_{part}"
        for family in ("ring", "direct")
        for protocol in PROTOCOLS
        for part in ("cycles", "hop_cycles", "share")
    ]
    names += [f"collective.{family}.few_ranks" for family in ("ring", "direct")]
    names += ["collective.in_switch.cycles", "collective.in_switch.share"]

    def predict(candidate: Device) -> np.ndarray:
        return np.array([collective_cost(row.op, candidate).time_ns / 1e3 for row in seen])

    measured = np.array([row.us for row in seen])
    constants = fitted(device, names, predict=predict, measured_us=measured, weights=np.ones(len(seen)))
    better = with_constants(device, list(constants), list(constants.values()))
    unseen = [row for row in rows if row.unseen]
    found = cost_data.errors(unseen, [collective_cost(row.op, better).time_ns / 1e3 for row in unseen])
    print(found)
    constants["collective.uncertainty"] = round(found["mape"] / 100, 3)
    source = f"fit {today()} on NCCL 2.29.2 tables of ai-dynamo/aiconfigurator (commit 095f58a5, Apache-2.0)"
    written(FOLDER / f"{device.name}.toml", "collective", constants, source=source)


def today() -> str:
    return dt.date.today().isoformat()


FITS = {"collectives": fit_collectives}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", choices=FITS)
    parser.add_argument("device")
    given = parser.parse_args()
    FITS[given.model](load_device(given.device))


if __name__ == "__main__":
    main()
