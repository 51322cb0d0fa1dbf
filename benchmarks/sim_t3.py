"""T3's sub-layers on its simulated GPU, beside the figures of the paper.

    python benchmarks/sim_t3.py

The sub-layers are in benchmarks/pairs/t3_80cu.json: a GEMM, the reduce-scatter of its output, and an
all-gather that stays as it is. Fused, each finished group of tiles triggers its step of the ring.
"""

from __future__ import annotations

import dataclasses
import statistics
from pathlib import Path

from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective
from conccl.core.pair import Pair
from conccl.core.plan import Plan, Side
from conccl.costs.catalogue import load_device, system_of, with_fields
from conccl.sim.executor import SimExecutor
from conccl.strategies.choices import strategy
from conccl.strategies.lower import isolated, lower
from conccl.workloads.pairs import read_pairs

PARTS_OF_BLOCK = 4
MAIN = ("mega-gpt-2", "t-nlg")
"""The models that the paper's sub-layer figures are taken to be of."""


def sub_layer(pair: Pair, arbitration: str) -> dict[str, float]:
    """Times in ns and bytes of one sub-layer."""
    op = pair.communication
    assert isinstance(op, Collective)
    device = with_fields(load_device("t3-80cu"), {"memory_arbitration": arbitration})
    system = system_of(device, gpus=op.ranks)
    executor = SimExecutor(system=system)

    def alone(collective: Collective) -> Plan:
        return isolated(collective, side=Side.COMMUNICATION, system=system)

    gemm = isolated(pair.compute, side=Side.COMPUTE, system=system)
    scatter, gather = alone(op), alone(dataclasses.replace(op, kind=CollectiveKind.ALL_GATHER))
    fused = lower(pair, strategy(f"fused:{PARTS_OF_BLOCK * op.ranks}"), system=system)
    times = {
        name: executor.run(plan).span_ns
        for name, plan in (("gemm", gemm), ("scatter", scatter), ("gather", gather), ("fused", fused))
    }
    moved = op.ranks * executor.hbm_nbytes(gemm) + executor.hbm_nbytes(scatter)
    passed_on = executor.hbm_nbytes(gather)
    serial = times["gemm"] + times["scatter"] + times["gather"]
    return {
        **times,
        "speedup": serial / (times["fused"] + times["gather"]),
        "ideal": serial / (max(times["gemm"], times["scatter"]) + times["gather"]),
        "moved": (executor.hbm_nbytes(fused) + passed_on) / (moved + passed_on) - 1,
    }


def main() -> None:
    pairs = read_pairs(Path(__file__).parent / "pairs/t3_80cu.json").pairs
    rows = {
        arbitration: {pair.source: sub_layer(pair, arbitration) for pair in pairs}
        for arbitration in ("fair", "compute_first")
    }
    print("| sub-layer | GEMM us | reduce-scatter us | all-gather us | fused us | speedup | ideal | bytes |")
    print("|---|---|---|---|---|---|---|---|")
    for source, row in rows["fair"].items():
        times = " | ".join(f"{row[name] / 1e3:.0f}" for name in ("gemm", "scatter", "gather", "fused"))
        print(f"| {source} | {times} | {row['speedup']:.2f} | {row['ideal']:.2f} | {row['moved']:+.0%} |")
    print("\n| | geomean | max | bytes: mean | most |\n|---|---|---|---|---|")
    for group, is_main in (("first two models", True), ("the larger ones", False)):
        for name, key, arbitration in (
            ("T3", "speedup", "fair"),
            ("with compute first at memory", "speedup", "compute_first"),
            ("ideal", "ideal", "fair"),
        ):
            some = [row for source, row in rows[arbitration].items() if source.startswith(MAIN) is is_main]
            values = [row[key] for row in some]
            moved = [row["moved"] for row in some]
            print(
                f"| {group}: {name} | {statistics.geometric_mean(values) - 1:.1%} | {max(values) - 1:.1%} |"
                f" {statistics.fmean(moved):+.0%} | {min(moved):+.0%} |"
            )


if __name__ == "__main__":
    main()
