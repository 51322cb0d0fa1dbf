"""How far off simulated speedups are: pairs of the H200 data set that strategies of advice stand for.

    python benchmarks/simulated_remedies.py

Each measured pair is a row of equal compute kernels beside one copy over the host link, by copy engines or by
a kernel of 8 CTAs, launched after the compute or before it with and without high priority. Beside the
simulator stands what one would say without it: overlap is ideal.
"""

from __future__ import annotations

import gzip
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from conccl.advise.simulated import Row, simulate
from conccl.core.kinds import Memory
from conccl.core.metrics import Overlap
from conccl.core.movement import Copy
from conccl.core.pair import Pair
from conccl.costs.catalogue import load_device
from conccl.costs.rows import ops_of_row

DATA = Path(__file__).parent / "data" / "h200-sxm" / "2026-11-30" / "c3.json.gz"


def main() -> None:
    device = load_device("h200-sxm")
    errors: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for row in json.loads(gzip.decompress(DATA.read_bytes()))["rows"]:
        name = strategy_of(row)
        if name is None:
            continue
        compute = dict(row["compute"])
        kernels = compute.pop("count")
        (op,) = ops_of_row(compute)
        outcome = simulate(
            Row(pair=Pair(compute=op, communication=copy_of(row["communication"])), kernels=kernels),
            [name],
            device=device,
        )[name]
        measured = Overlap(
            compute_ns=round(1e3 * row["compute_alone_us"]),
            communication_ns=round(1e3 * row["communication_alone_us"]),
            concurrent_ns=round(1e3 * row["concurrent_us"]),
        )
        fraction, simulated = measured.fraction_of_ideal, outcome.overlap.fraction_of_ideal
        errors[name].append(
            (
                outcome.overlap.speedup / measured.speedup - 1,
                measured.ideal_speedup / measured.speedup - 1,
                0.0 if fraction is None or simulated is None else simulated - fraction,
            )
        )
    print(f"{'strategy':12} pairs  speedup off  taken as ideal  fraction of ideal off")
    for name, found in errors.items():
        simulated, ideal, fraction = (
            statistics.fmean(abs(entry[place]) for entry in found) for place in range(3)
        )
        print(f"{name:12} {len(found):5} {simulated:11.1%} {ideal:15.1%} {fraction:22.2f}")


def strategy_of(row: dict[str, Any]) -> str | None:
    """Which strategy a measured pair is an instance of."""
    if row["section"] != "pair" or row["communication"].get("direction") not in ("in", "out"):
        return None
    communication, order = row["communication"], row["order"]
    if communication["kind"] == "copy_engine":
        return "ce" if order == "after" else None
    if communication["kind"] != "host_copy_sm" or communication["ctas"] != 8:
        return None
    if order == "before":
        return "prioritized"
    return "baseline" if row["priority"] == "normal" else None


def copy_of(communication: dict[str, Any]) -> Copy:
    inwards = communication["direction"] == "in"
    return Copy(
        nbytes=communication["nbytes"],
        source=Memory.HOST if inwards else Memory.DEVICE,
        destination=Memory.DEVICE if inwards else Memory.HOST,
    )


if __name__ == "__main__":
    main()
