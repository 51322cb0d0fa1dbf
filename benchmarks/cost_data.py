"""Measured times that cost models are fitted to and compared with, and which part of them a fit may see."""

from __future__ import annotations

import gzip
import json
import os
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conccl.core.errors import ConcclError
from conccl.core.ops import Collective, CollectiveKind, DType, Gemm, Op
from conccl.costs.rows import ops_of_row

SPLIT = 3
"""One row in so many is kept from the fit."""

MEASURED = Path(__file__).parent / "data" / "h200-sxm" / "2026-11-30"

UNSEEN_FAMILIES = frozenset(
    {"gpt3-13b", "qwen2.5-7b", "llama3-70b-tp8", "t5", "vit-l", "lstm", "gpt2-xl", "random"}
)
"""Models (and random sizes) none of whose GEMMs a fit sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was run, what it took, and where it belongs."""

    ops: tuple[Op, ...]
    us: float
    family: str
    unseen: bool
    """Whether the fit must not look at it."""
    kernels: tuple[str, ...] = ()
    """Names of what ran."""

    @property
    def op(self) -> Op:
        """The first op: for those that are one."""
        return self.ops[0]


def reference(path: str, /) -> Path:
    """A file of the reference data, which is not part of the repository."""
    root = os.environ.get("CONCCL_SHARED_DATA")
    found = Path(root or "../shared/data") / path
    if not found.exists():
        sys.exit(f"reference data not present: {path}. Set CONCCL_SHARED_DATA to its folder.")
    return found


def drawn(*key: object) -> bool:
    """Whether a row is kept from the fit: by its key alone, so that it is the same in every run."""
    return zlib.crc32(repr(key).encode()) % SPLIT == 0


_TABLE_KINDS = {
    "all_gather": CollectiveKind.ALL_GATHER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "all_reduce": CollectiveKind.ALL_REDUCE,
    "alltoall": CollectiveKind.ALL_TO_ALL,
}


def collectives(table: str, /) -> list[Measured]:
    """An NCCL table of aiconfigurator. The fit sees half of the half-precision rows and no int8 row."""
    import polars as pl  # noqa: PLC0415 (only the tables need it)

    found = []
    for row in pl.read_parquet(reference(f"gemm_comm/aiconfigurator/{table}")).iter_rows(named=True):
        half = row["nccl_dtype"] == "half"
        nbytes = row["message_size"] * (2 if half else 1)
        found.append(
            Measured(
                ops=(
                    Collective(
                        kind=_TABLE_KINDS[row["op_name"]],
                        nbytes=nbytes,
                        ranks=row["num_gpus"],
                        dtype=DType.FP16 if half else DType.INT8,
                    ),
                ),
                us=row["latency"] * 1e3,
                family=f"{row['op_name']} {row['nccl_dtype']}",
                unseen=not half or nbytes.bit_length() % 2 == 0,
            )
        )
    return found


def published(device: str, /) -> list[Measured]:
    """GEMMs that LLMCompass measured on the A100 and the MI210; a fit sees those of 12288 columns.

    Their times include what the host takes to start a kernel, so that short ones say nothing.
    """
    found = []
    name = {"a100-sxm": "A100", "mi210": "MI210"}[device]
    for line in reference(f"gemm_comm/llmcompass/matmul_{name}.csv").read_text().splitlines():
        m, n, k, milliseconds, *_ = line.split(",")
        us = float(milliseconds.strip().removesuffix("ms")) * 1e3
        if us >= LEAST_PUBLISHED_US:
            op = Gemm(m=int(m), n=int(n), k=int(k), dtype=DType.FP16)
            found.append(Measured(ops=(op,), us=us, family=name, unseen=op.n != 12288))
    return found


LEAST_PUBLISHED_US = 150


def measured(name: str, /) -> list[Measured]:
    """Rows measured on the H200 by `benchmarks/measure`: gemm, ops, sustained."""
    document = json.loads(gzip.decompress((MEASURED / f"{name}.json.gz").read_bytes()))
    return [found for row in document["rows"] if (found := _measured(row)) is not None]


def reference_rows(name: str, /) -> list[Measured]:
    """Rows of the reference data (h200/gemm.json, h200/ops.json), which no fit sees."""
    rows = json.loads(reference(f"h200/{name}.json").read_text())
    return [found for row in rows if (found := _measured(row, unseen=True)) is not None]


def _measured(row: dict[str, Any], *, unseen: bool | None = None) -> Measured | None:
    """A row as its ops; rows that compare ways to call a GEMM are left out."""
    if row.get("op") == "gather" and "taken" in row:
        row = {**row, "op": "gather_rows"}
    if "way" in row or "error" in row:
        return None
    try:
        ops = ops_of_row(row)
    except ConcclError:
        return None
    family = row.get("family") or row.get("op", "gemm")
    if unseen is None:
        sizes = {
            key: row[key]
            for key in sorted(row)
            if isinstance(row[key], (int, str, bool)) and key not in _RESULTS
        }
        unseen = family in UNSEEN_FAMILIES or drawn(sizes)
    names = tuple(kernel[0] for kernel in row.get("kernels", ()))
    return Measured(ops=ops, us=row["us"], family=family, unseen=unseen, kernels=names)


_RESULTS = frozenset(
    {"us", "us_min", "us_max", "us_first", "sets", "calls", "replays", "timed", "held_ms", "section"}
)


def errors(rows: Sequence[Measured], predicted_us: Sequence[float]) -> dict[str, Any]:
    """Mean absolute relative error in percent of all, and of each family."""
    by_family: dict[str, list[float]] = {}
    for row, us in zip(rows, predicted_us, strict=True):
        by_family.setdefault(row.family, []).append(100 * abs(us / row.us - 1))
    families = {name: sum(found) / len(found) for name, found in sorted(by_family.items())}
    everything = [each for found in by_family.values() for each in found]
    return {
        "rows": len(everything),
        "mape": sum(everything) / max(1, len(everything)),
        "worst": max(everything, default=0.0),
        "families": families,
    }
