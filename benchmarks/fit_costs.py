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
from conccl.core.ops import Gemm
from conccl.costs.catalogue import FOLDER, load_device, with_fields
from conccl.costs.collective import PROTOCOLS, collective_cost
from conccl.costs.constants import CONSTANTS, constant
from conccl.costs.gemm import family_of, gemm_ns
from conccl.costs.kernels import MODELS, kernels_of

MARK = "# Fitted constants: written by benchmarks/fit_costs.py, one model a section.\n"

Predict = Callable[[Device], np.ndarray]


def fitted(
    device: Device,
    names: Sequence[str],
    *,
    predict: Predict,
    measured_us: np.ndarray,
    weights: np.ndarray,
    step: float = 1e-3,
    most: int | None = None,
    prior: float = 0.0,
) -> dict[str, float]:
    """Constants that bring predictions closest to the measured times, in relative terms, outliers damped.

    Fits begin where the table of constants does, so that they can be repeated; ``prior`` holds them there.
    """
    start = np.log([max(CONSTANTS[name].start, 1e-9) for name in names])
    low = np.log([max(CONSTANTS[name].low, 1e-9) for name in names])
    high = np.log([CONSTANTS[name].high for name in names])

    def residuals(logs: np.ndarray) -> np.ndarray:
        ratios = predict(with_constants(device, names, np.exp(logs))) / measured_us
        return np.concatenate([weights * np.log(ratios), prior * (logs - start)])

    found = least_squares(
        residuals,
        np.clip(start, low + 1e-6, high - 1e-6),
        bounds=(low, high),
        loss="soft_l1",
        f_scale=0.05,
        diff_step=step,
        max_nfev=most,
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


GEMM_EVERY = [
    f"gemm.{name}"
    for name in (
        *("start_ns", "first_ns", "store_share", "cache_share", "written_part", "paired_epilogue"),
        *("other_epilogue", "mix", "split_ns", "split_share", "burst_share", "sustained_ns", "odd_tile"),
    )
]


def gemm_family_names(family: str) -> list[str]:
    return [f"gemm.{family}.{name}" for name in ("rate_share", "step_ns", "latency_ns", "hbm_share")]


def fit_gemm(device: Device, *, only: str = "") -> None:
    """All constants on aligned GEMMs, bursts and a few under sustained load, then each other family's own."""
    bursts = cost_data.measured("gemm")
    sustained = [row for row in cost_data.measured("sustained") if isinstance(row.op, Gemm)]
    seen = [row for row in bursts if not row.unseen]
    seen_sustained = [row for row in sustained if not row.unseen]
    constants: dict[str, float] = {}
    for family in GEMM_FAMILIES:
        if not family.startswith(only):
            names = gemm_family_names(family) + (GEMM_EVERY if family == "aligned" else [])
            constants |= {name: constant(device, name) for name in names}
            continue
        rows = [row for row in seen if family_of(row.op, device) == family]
        weights = [1.0] * len(rows)
        names = gemm_family_names(family)
        if family == "aligned":
            rows += seen_sustained
            weights += [SUSTAINED_WEIGHT] * len(seen_sustained)
            names = GEMM_EVERY + names
        found = fit_rows(device, names, rows, weights)
        constants |= found
        device = with_constants(device, list(found), list(found.values()))
        print(family, {name: round(value, 4) for name, value in found.items()}, flush=True)
    for title, rows in (
        ("bursts, seen", seen),
        ("bursts, unseen", [row for row in bursts if row.unseen]),
        ("sustained", sustained),
    ):
        print(title, cost_data.errors(rows, gemms_us(rows, device)))
    for family in GEMM_FAMILIES:
        unseen = [row for row in bursts if row.unseen and family_of(row.op, device) == family]
        found = cost_data.errors(unseen, gemms_us(unseen, device))
        print(f"{family:8s} unseen {found['rows']:4d} {found['mape']:5.1f} %")
        constants[f"gemm.{family}.uncertainty"] = round(found["mape"] / 100, 3)
    written(FOLDER / f"{device.name}.toml", "gemm", constants, source=_source("gemm and sustained"))
    fit_group(device, ("gemv",), [row for row in bursts if family_of(row.op, device) == "gemv"])


def fit_published(device: Device) -> None:
    """Few constants of a device that others measured: no power limit shows in their times."""
    rows = cost_data.published(device.name)
    device = with_constants(device, ["gemm.burst_share", "gemm.sustained_share"], [1.0, 1.0])
    names = ["gemm.aligned.rate_share", "gemm.aligned.hbm_share"]
    seen, unseen = ([row for row in rows if row.unseen is kept] for kept in (False, True))
    constants = {"gemm.burst_share": 1.0, "gemm.sustained_share": 1.0}
    constants |= fit_rows(device, names, seen, [1.0] * len(seen))
    better = with_constants(device, list(constants), list(constants.values()))
    for title, part in (("seen", seen), ("unseen", unseen)):
        found = cost_data.errors(part, gemms_us(part, better))
        print(device.name, title, found)
    constants["gemm.aligned.uncertainty"] = round(found["mape"] / 100, 3)
    if device.calibration.get("gemm.loaded_share"):  # from elsewhere, and kept
        constants["gemm.loaded_share"] = device.calibration["gemm.loaded_share"]
    source = f"fit {today()} on PrincetonUniversity/LLMCompass, ae/figure5 (commit 2e015fd2, BSD-3-Clause)"
    written(FOLDER / f"{device.name}.toml", "gemm", constants, source=source)


GEMM_FAMILIES = ("aligned", "tf32", "narrow", "scalar", "turned", "vector")

SUSTAINED_WEIGHT = 1.5
"""How much a row under sustained load counts beside a burst; models lie between the two."""


def fit_rows(
    device: Device, names: Sequence[str], rows: Sequence[cost_data.Measured], weights: Sequence[float]
) -> dict[str, float]:
    return fitted(
        device,
        names,
        predict=lambda candidate: gemms_us(rows, candidate),
        measured_us=np.array([row.us for row in rows]),
        weights=np.array(weights),
        step=1e-2,
        most=40,
        prior=PRIOR * len(rows) ** 0.5 / 4,
    )


OP_GROUPS: tuple[tuple[str, ...], ...] = (
    ("contiguous",),
    ("driver_copy",),
    ("driver_fill",),
    ("fill",),
    ("dropout",),
    ("casting",),
    ("strided",),
    ("transposed",),
    ("joined",),
    ("indexed",),
    ("scattered",),
    ("expanded",),
    ("reduce_rows",),
    ("reduce_rows_pairs",),
    ("reduce_all",),
    ("reduce_columns",),
    ("reduce_columns_pairs",),
    ("reduce_shared_columns",),
    ("reduce_shared_columns_pairs",),
    ("reduce_odd_columns",),
    ("gather",),
    ("gather_odd",),
    ("gather_few",),
    ("embedding_backward",),
    ("embedding_sort", "embedding_sums"),
    ("max_pool_first",),
    ("max_pool_last",),
    ("max_pool_backward_first",),
    ("max_pool_backward_last",),
    ("avg_pool_first",),
    ("avg_pool_last",),
    ("avg_pool_backward_first",),
    ("avg_pool_backward_last",),
    ("upsample_first",),
    ("upsample_last",),
    ("upsample_backward_first",),
    ("upsample_backward_last",),
    ("sort_tiny",),
    ("sort_short",),
    ("sort_long",),
    ("topk_short",),
    ("topk_long",),
    ("scan",),
    ("scan_whole",),
    ("multi_tensor",),
    ("multi_tensor_fused",),
    ("layer_norm",),
    ("rms_norm",),
    ("norm_backward", "layer_weight_backward", "rms_weight_backward"),
    ("softmax_warp",),
    ("softmax_warp_backward",),
    ("softmax_registers",),
    ("softmax_shared",),
    ("softmax_long",),
    ("softmax_backward",),
    ("softmax_backward_long",),
    ("loss",),
    ("batch_statistics_first", "batch_apply_first"),
    ("batch_statistics_last", "batch_apply_last"),
    ("batch_whole_first",),
    ("batch_once_first",),
    ("batch_once_backward_first",),
    ("batch_whole_last",),
    ("batch_backward_first",),
    ("batch_whole_backward_first",),
    ("batch_whole_backward_last",),
    ("batch_reduce_last", "batch_gradient_last"),
    ("moments", "norm_apply"),
    ("group_moments", "group_parameters", "group_apply"),
    ("group_reduce", "group_gamma", "group_gradient"),
    ("depthwise_forward_first",),
    ("depthwise_dgrad_first",),
    ("depthwise_wgrad_first",),
    ("depthwise_forward_last",),
    ("depthwise_dgrad_last",),
    ("depthwise_wgrad_last",),
    ("convolution_forward", "convolution_layout"),
    ("convolution_forward_tf32",),
    ("convolution_dgrad",),
    ("convolution_dgrad_tf32",),
    ("convolution_wgrad", "convolution_sum"),
    ("convolution_wgrad_tf32",),
    ("convolution_forward_few",),
    ("convolution_dgrad_few",),
    ("convolution_wgrad_few",),
    ("attention_cudnn",),
    ("attention_decode", "attention_combine"),
    ("attention_flash_decode",),
    ("attention_cudnn_backward", "attention_dot", "attention_convert", "attention_heads"),
    ("attention_flash",),
    ("attention_flash_backward",),
    ("attention_efficient",),
    ("attention_efficient_backward",),
    ("attention_fp32",),
    ("attention_fp32_backward",),
    ("recurrent_forward",),
    ("recurrent_backward",),
    ("recurrent_forward_fp32",),
    ("recurrent_backward_fp32",),
)
"""Kinds of kernels that are fitted together, as rows have them together; in order, for the later ones' rows
hold kernels of the earlier ones."""


def fit_ops(device: Device, *, only: str = "") -> None:
    """Each group's constants on the seen rows whose kernels are its own or fitted before it."""
    rows = [row for row in cost_data.measured("ops") if costable(row)]
    models = [frozenset(kernel.model for op in row.ops for kernel in kernels_of(op, device)) for row in rows]
    done = {"gemm", ""}
    for group in OP_GROUPS:
        done |= set(group)
        own = [row for row, kinds in zip(rows, models, strict=True) if kinds & set(group) and kinds <= done]
        if not only or any(kind.startswith(only) for kind in group):
            device = fit_group(device, group, own)


def costable(row: cost_data.Measured) -> bool:
    return all(type(op) in MODELS for op in row.ops)


def fit_group(device: Device, group: Sequence[str], rows: Sequence[cost_data.Measured]) -> Device:
    """Fit and write one group's constants; those that start at zero stay there."""
    seen = [row for row in rows if not row.unseen]
    names = [
        name
        for kind in group
        for name, each in CONSTANTS.items()
        if name.startswith(f"{kind}.") and each.start > 0 and not name.endswith("uncertainty")
    ]
    if group == ("contiguous",):
        names.append("stream.busy_ns")
    if not seen:
        print(f"{'+'.join(group):45s} no rows")
        return device
    found = fitted(
        device,
        names,
        predict=lambda candidate: np.array([row_us(row, candidate) for row in seen]),
        measured_us=np.array([row.us for row in seen]),
        weights=np.ones(len(seen)),
        step=1e-2,
        most=25,
        prior=PRIOR,
    )
    better = with_constants(device, list(found), list(found.values()))
    unseen = [row for row in rows if row.unseen]
    before, after = (cost_data.errors(part, [row_us(r, better) for r in part]) for part in (seen, unseen))
    error = after["mape"] if len(unseen) >= 5 else max(before["mape"], after["mape"])
    print(
        f"{'+'.join(group):45s} seen {len(seen):4d} {before['mape']:5.1f} %   "
        f"unseen {len(unseen):4d} {after['mape']:5.1f} %   worst {after['worst']:5.0f} %",
        flush=True,
    )
    for kind in {name.partition(".")[0] for name in found}:
        own = {name: value for name, value in found.items() if name.startswith(f"{kind}.")}
        if kind != "stream":
            own[f"{kind}.uncertainty"] = round(max(error / 100, 0.01), 3)
        written(FOLDER / f"{device.name}.toml", kind, own, source=_source("ops"))
    return better


def gemms_us(rows: Sequence[cost_data.Measured], device: Device) -> np.ndarray:
    """GEMMs as nodes of a graph: the gap to the next node is in what was measured."""
    return (gemm_ns([row.op for row in rows], device) + device.kernel_launch_ns) / 1e3


def row_us(row: cost_data.Measured, device: Device) -> float:
    """A graph's node takes its kernel's time and the gap to the next."""
    kernels = [kernel for op in row.ops for kernel in kernels_of.__wrapped__(op, device)]
    return sum(kernel.isolated_ns + device.kernel_launch_ns for kernel in kernels) / 1e3


PRIOR = 0.02
"""Residual of a constant that is e times what it began as: what few rows say little about stays."""


def _source(files: str) -> str:
    return f"fit {today()} on own measurements of 2026-11-30 ({files} rows in benchmarks/data/h200-sxm)"


def today() -> str:
    return dt.date.today().isoformat()


PLAIN = {"collectives": fit_collectives, "published": fit_published}
FITS = {"gemm": fit_gemm, "ops": fit_ops}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", choices=[*PLAIN, *FITS])
    parser.add_argument("device")
    parser.add_argument("--only", default="", help="kinds that begin so, or one family of GEMMs")
    given = parser.parse_args()
    device = load_device(given.device)
    if given.model in PLAIN:
        PLAIN[given.model](device)
    else:
        FITS[given.model](device, only=given.only)


if __name__ == "__main__":
    main()
