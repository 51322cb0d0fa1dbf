"""Measured times that cost models are fitted to and compared with, and which part of them a fit may see."""

from __future__ import annotations

import os
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conccl.core.ops import Collective, CollectiveKind, DType, Op

SPLIT = 3
"""One row in so many is kept from the fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An op, what it took, and where it belongs."""

    op: Op
    us: float
    family: str
    unseen: bool
    """Whether the fit must not look at it."""


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
                op=Collective(
                    kind=_TABLE_KINDS[row["op_name"]],
                    nbytes=nbytes,
                    ranks=row["num_gpus"],
                    dtype=DType.FP16 if half else DType.INT8,
                ),
                us=row["latency"] * 1e3,
                family=f"{row['op_name']} {row['nccl_dtype']}",
                unseen=not half or nbytes.bit_length() % 2 == 0,
            )
        )
    return found


def errors(rows: list[Measured], predicted_us: list[float]) -> dict[str, Any]:
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
