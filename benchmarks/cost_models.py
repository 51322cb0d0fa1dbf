"""How far cost models are off what was measured: tables in Markdown, beside two rules of thumb.

python benchmarks/cost_models.py                # what the repository holds
python benchmarks/cost_models.py --reference    # and the reference data, named by CONCCL_SHARED_DATA

``seen`` are rows that the constants were fitted to, ``unseen`` those that no fit looked at.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import cost_data
import fit_costs
import numpy as np
from cost_data import Measured

from conccl.core.hardware import Device
from conccl.core.ops import (
    Attention,
    Collective,
    CollectiveKind,
    DType,
    Gemm,
    Layout,
    Op,
    Rowwise,
    RowwiseKind,
)
from conccl.costs.catalogue import load_device
from conccl.costs.collective import collective_cost
from conccl.costs.gemm import family_of, gemm_ns
from conccl.costs.kernels import kernels_of

H200 = load_device("h200-sxm")

Predict = Callable[[Sequence[Measured], Device], np.ndarray]


def modelled(rows: Sequence[Measured], device: Device) -> np.ndarray:
    """Microseconds by the models: kernels of a graph, a gap after each."""
    return np.array(
        [
            sum(
                kernel.isolated_ns + device.kernel_launch_ns
                for op in row.ops
                for kernel in kernels_of(op, device)
            )
            / 1e3
            for row in rows
        ]
    )


def gemms(rows: Sequence[Measured], device: Device) -> np.ndarray:
    """The same of GEMMs, many at once."""
    return fit_costs.gemms_us(rows, device)


def ruled(
    rows: Sequence[Measured], device: Device, *, of_peak=0.75, of_bandwidth=0.8, start_us=3.0
) -> np.ndarray:
    """Microseconds by a rule: shares of peak and bandwidth, whichever takes longer, and a start."""
    return np.array([_rule_us(row.ops, device, of_peak, of_bandwidth) + start_us for row in rows])


def roofline(rows: Sequence[Measured], device: Device) -> np.ndarray:
    """Microseconds by the data sheet alone."""
    return ruled(rows, device, of_peak=1.0, of_bandwidth=1.0, start_us=0.0)


def _rule_us(ops: Iterable[Op], device: Device, of_peak: float, of_bandwidth: float) -> float:
    total = 0.0
    for op in ops:
        dtype = getattr(op, "dtype", DType.BF16)
        matrices = isinstance(op, Gemm | Attention) or hasattr(op, "kernel_size")
        peak = device.peak_flops.get(dtype, device.vector_flops) if matrices else device.vector_flops
        memory = getattr(op, "nbytes", 0) / (device.hbm_bandwidth * of_bandwidth)
        total += max(getattr(op, "flops", 0) / (peak * of_peak), memory) * 1e6
    return total


def mape(rows: Sequence[Measured], predict: Predict, device: Device = H200) -> tuple[float, float, float]:
    """Mean, median and signed mean of the relative error, in percent."""
    error = 100 * (predict(rows, device) / np.array([row.us for row in rows]) - 1)
    return float(np.abs(error).mean()), float(np.median(np.abs(error))), float(error.mean())


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a Markdown table."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(header) + " |")
    print("|" + " --- |" * len(header))
    for row in rows:
        print(
            "| " + " | ".join(f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in row) + " |"
        )


Group = tuple[str, list[Measured]]


def grouped(rows: Iterable[Measured], name: Callable[[Measured], str]) -> list[Group]:
    found: dict[str, list[Measured]] = {}
    for row in rows:
        found.setdefault(name(row), []).append(row)
    return sorted(found.items())


HEADER = ("", "rows", "MAPE %", "median %", "bias %", "simple rule %", "roofline %")


def line(name: str, rows: Sequence[Measured], predict: Predict, device: Device = H200) -> tuple[object, ...]:
    rule, _, _ = mape(rows, ruled, device)
    bound, _, _ = mape(rows, roofline, device)
    return (name, len(rows), *mape(rows, predict, device), rule, bound)


def lines(groups: Iterable[Group], predict: Predict, device: Device = H200) -> list[tuple[object, ...]]:
    return [line(name, rows, predict, device) for name, rows in groups if rows]


def own_gemms() -> None:
    rows = cost_data.measured("gemm")
    aligned = [row for row in rows if family_of(row.op, H200) == "aligned"]
    unseen = [row for row in aligned if row.unseen]
    table(
        "GEMMs of this project: rows aligned to 16 bytes (bf16, fp16, fp8)",
        HEADER,
        lines(
            [
                ("seen", [row for row in aligned if not row.unseen]),
                ("unseen shapes", [row for row in unseen if row.family not in cost_data.UNSEEN_FAMILIES]),
                ("unseen models", [row for row in unseen if row.family in cost_data.UNSEEN_FAMILIES]),
                *grouped(unseen, lambda row: f"unseen {row.op.dtype}"),
            ],
            gemms,
        ),
    )
    table(
        "The unseen ones of these, by model",
        HEADER,
        lines(
            grouped(
                unseen,
                lambda row: row.family + " (no row seen)" * (row.family in cost_data.UNSEEN_FAMILIES),
            ),
            gemms,
        ),
    )
    others = [row for row in rows if family_of(row.op, H200) != "aligned" and row.unseen]
    table(
        "Unseen GEMMs that the library does with other kernels",
        HEADER,
        lines(grouped(others, lambda row: family_of(row.op, H200)), gemms),
    )
    held = [row for row in cost_data.measured("sustained") if isinstance(row.op, Gemm)]
    table(
        "The same GEMMs run for half a second each (the power limit holds)",
        HEADER,
        lines([("all", held), ("unseen", [row for row in held if row.unseen])], gemms),
    )


def own_ops() -> None:
    rows = cost_data.measured("ops")
    table(
        "Other operators of this project",
        HEADER,
        lines(
            [
                ("seen", [row for row in rows if not row.unseen]),
                ("unseen", [row for row in rows if row.unseen]),
                ("all", rows),
            ],
            modelled,
        ),
    )
    unseen = [row for row in rows if row.unseen]
    table("Unseen rows by operator", HEADER, lines(grouped(unseen, lambda row: row.family), modelled))


LAYOUTS = {
    "_tn_": Layout.NT,
    "TNT": Layout.NT,
    "TNN": Layout.NT,
    "_nt_": Layout.TN,
    "NTT": Layout.TN,
    "NTN": Layout.TN,
}
"""How kernels' names tell layouts: theirs count columns first."""


def in_models() -> None:
    """GEMM kernels as whole models ran them, eagerly, one iteration each."""
    document = json.loads(gzip.decompress((cost_data.MEASURED / "models.json.gz").read_bytes()))
    fields = document["header"]["kernel_fields"]
    found = []
    for run in document["rows"]:
        kernels = [dict(zip(fields, kernel, strict=True)) for kernel in run["kernels"]]
        rows = [row for kernel in kernels if (row := _gemm_kernel(kernel)) is not None]
        if len(rows) < LEAST_KERNELS:
            continue
        predicted = gemm_ns([row.op for row in rows], H200) / 1e3  # durations, no gaps
        measured = np.array([row.us for row in rows])
        error = float(np.abs(predicted / measured - 1).mean() * 100)
        ratio = f"{predicted.sum() / measured.sum():.3f}"
        name = " ".join((run["model"], *run["arguments"]))
        found.append((name, len(rows), float(measured.sum()), ratio, error))
    table(
        "GEMM kernels inside whole models (no row seen)",
        ("", "kernels", "us in all", "predicted / measured", "MAPE % of each"),
        found,
    )


LEAST_KERNELS = 10


def _gemm_kernel(kernel: dict[str, Any]) -> Measured | None:
    """What a matrix product's main kernel multiplied: sizes from the profiler, formats from its name."""
    name, dims = kernel["name"], kernel["input_dims"]
    if kernel["op"] not in ("aten::mm", "aten::addmm", "aten::bmm") or not _MAIN.search(name):
        return None
    left, right = dims[1:3] if kernel["op"] == "aten::addmm" else dims[:2]
    batch = left[0] if kernel["op"] == "aten::bmm" else 1
    dtype = next((dtype for part, dtype in _FORMATS.items() if part in name), DType.FP32)
    layout = next((layout for part, layout in LAYOUTS.items() if part in name), Layout.NN)
    op = Gemm(m=left[-2], k=left[-1], n=right[-1], batch=batch, dtype=dtype, layout=layout)
    return Measured(ops=(op,), us=kernel["us"], family="model", unseen=True)


_MAIN = re.compile(r"nvjet|gemm_(?!.*splitKreduce)", re.IGNORECASE)
_FORMATS = {
    "nvjet": DType.BF16,
    "bf16": DType.BF16,
    "f16_": DType.FP16,
    "tf32": DType.TF32,
    "s1688": DType.TF32,
}


def reference_rows() -> None:
    rows = cost_data.reference_rows("gemm")
    table(
        "Reference GEMMs of another session on an H200 (no row seen)",
        HEADER,
        lines([("all", rows), *grouped(rows, lambda row: row.family)], gemms),
    )
    own = {(row.op.m, row.op.n, row.op.k): row for row in cost_data.measured("gemm") if _plain(row.op)}
    both = [(row, own[key]) for row in rows if (key := (row.op.m, row.op.n, row.op.k)) in own]
    apart = [100 * (mine.us / row.us - 1) for row, mine in both]
    print(
        f"\nThe two sessions measured {len(both)} shapes both; their times are"
        f" {np.abs(apart).mean():.1f} % apart on average, those of this project"
        f" {-np.mean(apart):.1f} % shorter."
    )
    ops = cost_data.reference_rows("ops")
    table(
        "Reference operators (no row seen)",
        HEADER,
        lines([("all", ops), *grouped(ops, lambda row: row.family)], modelled),
    )


STATE = ("gemm.burst_share", "gemm.sustained_ns", "gemm.first_ns")
"""Constants that say in which state a GPU was: its clocks under load, and how soon memory is busy."""


def refit(seen: Sequence[Measured], names: Sequence[str]) -> Device:
    """The H200 with these constants fitted to other rows."""
    found = fit_costs.fit_rows(H200, names, seen, [1.0] * len(seen))
    return fit_costs.with_constants(H200, list(found), list(found.values()))


def reference_refits() -> None:
    """The same model with few constants of the other session: each family by the two others."""
    rows = cost_data.reference_rows("gemm")
    found = []
    for family, part in grouped(rows, lambda row: row.family):
        device = refit([row for row in rows if row.family != family], STATE)
        found.append(line(f"{family}, by the others", part, gemms, device))
    table(f"Reference GEMMs after {len(STATE)} constants were fitted to two families of three", HEADER, found)


def _plain(op: Op) -> bool:
    return isinstance(op, Gemm) and op.dtype is DType.BF16 and op.layout.value == "nt" and op.batch == 1


SAMPLE = 4000


def other_stacks() -> None:
    """Tables of other software on the same or other devices: no row of them is seen."""
    import polars as pl  # noqa: PLC0415 (only the tables need it)

    folder = cost_data.reference("gemm_comm/aiconfigurator")
    frame = pl.read_parquet(folder / "h200_sxm_vllm0.24_gemm.parquet").filter(
        pl.col("gemm_dtype") == "bfloat16"
    )
    rows = [
        Measured(ops=(Gemm(m=m, n=n, k=k),), us=latency * 1e3, family="gemm", unseen=True)
        for m, n, k, latency in frame.sample(SAMPLE, seed=1).select("m", "n", "k", "latency").iter_rows()
    ]
    table(
        f"bf16 GEMMs of vLLM 0.24 on an H200, a sample of {SAMPLE} of {len(frame)} (no row seen)",
        HEADER,
        lines(
            [("all", rows), *grouped(rows, lambda row: f"10^{len(str(row.op.flops)) - 1:02d} FLOP")], gemms
        ),
    )
    seen, unseen = ([row for row in rows if cost_data.drawn(row.op) is kept] for kept in (False, True))
    names = fit_costs.GEMM_EVERY + fit_costs.gemm_family_names("aligned")
    device = refit(seen[:1000], names)
    table(
        f"The same after a second fit of {len(names)} constants to 1000 of them",
        HEADER,
        lines([("seen", seen[:1000]), ("unseen", unseen)], gemms, device),
    )
    found = []
    for name in ("a100-sxm", "mi210"):
        published = cost_data.published(name)
        for title, kept in (("seen", False), ("unseen", True)):
            part = [row for row in published if row.unseen is kept]
            found.append(line(f"{name}, {title}", part, gemms, load_device(name)))
    table("fp16 GEMMs of LLMCompass, 150 us and longer", HEADER, found)
    a100 = load_device("a100-sxm")
    softmax = [row for row in _softmax_rows() if row.us >= LEAST_US]
    table(
        f"A100 from its data sheet: fp16 softmax of LLMCompass, {LEAST_US} us and longer (no row seen)",
        HEADER,
        [line("softmax", softmax, modelled, a100)],
    )


LEAST_US = 50
"""Their times include the start of a kernel by the host, about 13 us."""


def _softmax_rows() -> list[Measured]:
    rows = []
    with cost_data.reference("gemm_comm/llmcompass/softmax_A100.csv").open() as file:
        for m, n, rate in csv.reader(file):
            op = Rowwise(kind=RowwiseKind.SOFTMAX, rows=int(m), cols=int(n), dtype=DType.FP16)
            rows.append(
                Measured(ops=(op,), us=int(m) * int(n) / float(rate) / 1e3, family="softmax", unseen=True)
            )
    return rows


def collectives() -> None:
    header = ("", "rows", "MAPE %", "median %", "bias %")

    def predict(rows: Sequence[Measured], device: Device) -> np.ndarray:
        return np.array([collective_cost(row.op, device).time_ns / 1e3 for row in rows])

    for device, table_name, title in (
        ("h200-sxm", "h200_sxm_nccl2.29.2.parquet", "Collectives of NCCL 2.29.2 on 2, 4 and 8 H200"),
        (
            "a100-sxm",
            "a100_sxm_nccl2.27.3.parquet",
            "Collectives of NCCL 2.27.3 on A100, from its data sheet",
        ),
    ):
        rows = cost_data.collectives(table_name)
        if device != "h200-sxm":
            rows = [Measured(ops=row.ops, us=row.us, family=row.family, unseen=True) for row in rows]
        groups = [
            ("seen", [row for row in rows if not row.unseen]),
            ("unseen", [row for row in rows if row.unseen]),
            *grouped((row for row in rows if row.unseen), lambda row: f"unseen {row.family}"),
        ]
        table(
            title,
            header,
            [(name, len(part), *mape(part, predict, load_device(device))) for name, part in groups if part],
        )


def speed() -> None:
    ops: dict[str, list[Op]] = {
        "GEMM": [Gemm(m=512 + 8 * index, n=4096, k=4096) for index in range(100)],
        "attention, causal": [
            Attention(
                batch=1,
                heads=32,
                kv_heads=8,
                queries=2048 + index,
                keys=2048 + index,
                head_dim=128,
                causal=True,
            )
            for index in range(100)
        ],
        "all-gather": [
            Collective(kind=CollectiveKind.ALL_GATHER, nbytes=(1 << 20) + 8 * index, ranks=8)
            for index in range(100)
        ],
        "elementwise": [row.op for row in cost_data.measured("ops") if row.family == "add"],
    }
    found = []
    for name, each in ops.items():
        kernels_of.cache_clear()
        kernels_of(each[0], H200)
        started = time.perf_counter()
        for op in each[1:]:
            kernels_of(op, H200)
        new = time.perf_counter() - started
        started = time.perf_counter()
        for op in each[1:]:
            kernels_of(op, H200)
        again = time.perf_counter() - started
        found.append((name, 1e6 * new / (len(each) - 1), 1e6 * again / (len(each) - 1)))
    many = [row.op for row in cost_data.measured("gemm")]
    started = time.perf_counter()
    gemm_ns(many, H200)
    found.append((f"{len(many)} GEMMs at once", 1e6 * (time.perf_counter() - started) / len(many), "-"))
    table("Microseconds to cost an op", ("", "new", "known"), found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--reference", action="store_true", help="compare with the reference data too")
    given = parser.parse_args()
    speed()
    own_gemms()
    own_ops()
    in_models()
    if given.reference:
        reference_rows()
        collectives()
        reference_refits()
        other_stacks()


if __name__ == "__main__":
    main()
