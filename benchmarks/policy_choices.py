"""How good the policy's choices are: pairs that its tables were not made of, every strategy tried on each.

    python benchmarks/policy_choices.py [--device h200-sxm] [--tables FILE] [--output benchmarks/FILE.json]

GEMMs of Llama-3-8B, 70B and 405B (tensor-parallel by 8), GPT-3 (by 8) and DeepSeek-V3, with 16 to 8192 rows,
each beside a host transfer in, one out, a copy inside HBM, an all-gather and an all-to-all among 8 GPUs, at
three lengths: the communication (by the library) half as long as the GEMM, as long, twice as long. Simulated:
the figures say how well the tables stand for the simulator, not how well either stands for a GPU.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import timeit
from pathlib import Path
from typing import Any

from conccl.bench.characterize import Characterizer, strategies_of
from conccl.bench.executors import open_bench
from conccl.core.hardware import Device
from conccl.core.ops import Gemm
from conccl.core.pair import Pair
from conccl.costs.catalogue import load_device, system_of
from conccl.costs.gemm import gemm_kernels
from conccl.strategies.heuristics import partition_sizes
from conccl.tune.cells import sm_counts
from conccl.tune.features import communication_of
from conccl.tune.policy import Policy
from conccl.tune.shapes import modelled
from conccl.tune.tables import find_tables, read_tables

GPUS = 8

WEIGHTS = {
    "llama3-8b qkv": (6144, 4096),
    "llama3-8b gate and up": (28672, 4096),
    "llama3-70b tp8 gate and up": (7168, 8192),
    "llama3-70b tp8 down": (8192, 3584),
    "llama3-405b tp8 gate and up": (13312, 16384),
    "gpt-3 tp8 up": (6144, 12288),
    "gpt-3 tp8 attention out": (12288, 1536),
    "deepseek-v3 expert gate and up": (4096, 7168),
    "deepseek-v3 q up": (24576, 1536),
}
"""n and k of a linear layer."""

ROWS = (16, 256, 2048, 8192)

KINDS = ("host_in", "host_out", "local", "all_gather", "all_to_all")

LENGTHS = {"G-long": 0.5, "GC-equal": 1.0, "C-long": 2.0}

Row = dict[str, Any]


def model_gemms() -> dict[str, Gemm]:
    return {f"{name} {m}": Gemm(m=m, n=n, k=k) for name, (n, k) in WEIGHTS.items() for m in ROWS}


def random_gemms(count: int) -> dict[str, Gemm]:
    """Shapes drawn at random, to look at while working on the policy: the models' are kept for the end."""
    draw = random.Random(1)
    sizes = [
        (round(2 ** draw.uniform(3, 14)), *(round(2 ** draw.uniform(2, 7.3)) * 128 for _ in "nk"))
        for _ in range(count)
    ]
    return {f"random {m}": Gemm(m=m, n=n, k=k) for m, n, k in sizes}


def pairs(device: Device, bench: Any, gemms: dict[str, Gemm]) -> list[Pair]:
    """Every GEMM beside every kind of communication at every length."""
    found = []
    for name, op in gemms.items():
        alone_ns = sum(kernel.isolated_ns for kernel in gemm_kernels(op, device))
        for kind in KINDS:
            for length, ratio in LENGTHS.items():
                nbytes = size_for(bench, device, kind, ratio * alone_ns)
                communication = communication_of(kind, nbytes=nbytes, ranks=GPUS)
                found.append(Pair(compute=op, communication=communication, source=f"{name} {kind} {length}"))
    return found


def size_for(bench: Any, device: Device, kind: str, time_ns: float) -> int:
    """Bytes whose communication by the library takes so long, by bisection."""
    from conccl.core.plan import Side  # noqa: PLC0415
    from conccl.strategies.lower import isolated  # noqa: PLC0415

    low, high = 12.0, 34.0
    for _ in range(12):
        middle = (low + high) / 2
        op = communication_of(kind, nbytes=round(2**middle) // 256 * 256, ranks=GPUS)
        plan = isolated(op, side=Side.COMMUNICATION, system=system_of(device, gpus=GPUS))
        if (bench.measure(plan, label="x").median_ns or 0) < time_ns:
            low = middle
        else:
            high = middle
    return max(4096, round(2**low) // 256 * 256)


def names(device: Device) -> tuple[str, ...]:
    """Every strategy in every size."""
    sizes = partition_sizes(device)
    return (
        *("serial", "baseline", "prioritized"),
        *(f"prioritized:{n}" for n in sm_counts(device)),
        *(f"{word}:{n}" for word in ("partitioned", "prioritized_partitioned") for n in sizes),
        *("ce", "ce_trimmed", "nccl_zero"),
    )


def judged(device: Device, policy: Policy, gemms: dict[str, Gemm]) -> list[Row]:
    bench, system = open_bench("sim", device=device, gpus=GPUS), system_of(device, gpus=GPUS)
    characterizer = Characterizer(bench=bench, system=system, strategies=strategies_of(names(device)))
    rows = []
    for pair in pairs(device, bench, gemms):
        result = characterizer.pair(pair)
        times = {
            name: one.overlap.concurrent_ns
            for name, one in result.strategies.items()
            if one.overlap is not None
        }
        choice = policy.choose(pair)
        best = min(times, key=lambda name: times[name])
        rows.append(
            {
                "source": pair.source,
                "class": result.pair_class,
                "best": best,
                "best_ns": times[best],
                "chosen": choice.name,
                "chosen_ns": times[choice.name],
                "serial_ns": times["serial"],
                "alone_ns": [result.compute.median_ns, result.communication.median_ns],
                "predicted_ns": choice.predicted_ns,
                "predicted_serial_ns": choice.serial_ns,
                "confidence": round(choice.confidence, 3),
                "times_ns": times,
            }
        )
    return rows


def report(rows: list[Row]) -> None:
    print(
        f"| {'':12} | pairs | over best: mean | worst | within 2 % | over serial: worst |"
        " time error: median |"
    )
    print("|---|---|---|---|---|---|---|")
    groups: dict[str, list[Row]] = {"all": rows}
    for row in rows:
        groups.setdefault(row["source"].split()[-2], []).append(row)
        groups.setdefault(str(row["class"]), []).append(row)
    for name, some in groups.items():
        over = [row["chosen_ns"] / row["best_ns"] - 1 for row in some]
        slower = max(row["chosen_ns"] / row["serial_ns"] - 1 for row in some)
        error = statistics.median(abs(row["predicted_ns"] / row["chosen_ns"] - 1) for row in some)
        near = sum(one <= 0.02 for one in over) / len(over)
        print(
            f"| {name:12} | {len(some)} | {statistics.fmean(over):.1%} | {max(over):.1%} | {near:.0%} |"
            f" {slower:+.1%} | {error:.1%} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="h200-sxm")
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--random", type=int, help="so many random GEMMs instead of the models'")
    parser.add_argument(
        "--prepare", action="store_true", help="tell the policy the shapes (not the pairs) before"
    )
    parser.add_argument("--worst", type=int, default=0, help="print so many of the worst choices")
    arguments = parser.parse_args()
    device = load_device(arguments.device)
    tables = read_tables(arguments.tables) if arguments.tables else find_tables(device)
    policy = Policy(tables=tables, device=device)
    gemms = random_gemms(arguments.random) if arguments.random else model_gemms()
    for op in gemms.values() if arguments.prepare else ():
        policy.learn(modelled(op, device))
    rows = judged(device, policy, gemms)
    report(rows)
    for row in sorted(rows, key=lambda row: -row["chosen_ns"] / row["best_ns"])[: arguments.worst]:
        print(
            f"{row['source']:50} {row['alone_ns']} {row['chosen']} {row['chosen_ns'] / row['serial_ns']:.3f},"
            f" best {row['best']} {row['best_ns'] / row['serial_ns']:.3f},"
            f" said {row['predicted_ns'] / row['predicted_serial_ns']:.3f}"
        )
    pair = Pair(
        compute=Gemm(m=2048, n=7168, k=8192),
        communication=communication_of("all_gather", nbytes=1 << 26, ranks=8),
    )
    calls = 2000
    best = min(timeit.repeat(lambda: policy.choose(pair), number=calls, repeat=7)) / calls
    print(f"\na choice takes {best * 1e6:.1f} us (best of 7 runs of {calls})")
    if arguments.output:
        arguments.output.write_text(json.dumps(rows, indent=0) + "\n")


if __name__ == "__main__":
    main()
