"""The chooser of fused operators beside every way there is, on projections of known models, simulated.

    python benchmarks/fused_choices.py --output benchmarks/2026-12-01-fused-choices.csv

Each call is simulated serially, in 2 to 32 chunks of both kinds of sizes and tracked in up to 64 parts: more
ways than the chooser looks at. "sm" is a group whose collectives run on SMs (NCCL), "ce" one that has copy
engines for them; the host link always has.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from conccl.core.plan import Engine
from conccl.costs.catalogue import load_device
from conccl.strategies.cutting import Sizes
from conccl.strategies.ways import Chunked, Serial, Tracked, Way
from conccl.tune.fused_choice import choose, simulated_ns
from conccl.tune.fused_problem import Call, Problem

MODELS = {
    "llama3-8b": (4096, 14336, 1024, 4),
    "llama3-70b": (8192, 28672, 1024, 8),
    "llama3-405b": (16384, 53248, 1024, 8),
    "gpt3-175b": (12288, 49152, 12288, 8),
    "t-nlg": (4256, 17024, 4256, 8),
}
"""Hidden size, MLP size, size of keys (and of values), tensor parallelism."""

TOKENS = (512, 2048, 8192)

COUNTS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
PARTS = (4, 8, 16, 24, 32, 64)


def problems(models: list[str]) -> Iterator[tuple[str, Problem]]:
    for model in models:
        hidden, inner, keys, world = MODELS[model]
        for tokens in TOKENS:
            columns = {"qkv": (hidden + 2 * keys, hidden), "up": (inner, hidden)}
            rows = {"out": (hidden, hidden), "down": (hidden, inner)}
            for name, (n, k) in columns.items():
                shape = Problem(call=Call.ALL_GATHER_GEMM, m=tokens, n=n // world, k=k, world=world)
                yield f"{model} {name}", shape
            for name, (n, k) in rows.items():
                for call in (Call.GEMM_REDUCE_SCATTER, Call.GEMM_ALL_REDUCE):
                    yield f"{model} {name}", Problem(call=call, m=tokens, n=n, k=k // world, world=world)
            n, k = columns["qkv"]
            exchange = Problem(call=Call.GEMM_ALL_TO_ALL, m=tokens // world * 8, n=n, k=k, world=world)
            yield f"{model} qkv, heads exchanged", exchange
            n, k = columns["up"]
            yield f"{model} up", Problem(call=Call.GEMM_OFFLOAD, m=tokens, n=n // world, k=k)
            yield f"{model} up", Problem(call=Call.PREFETCH_GEMM, m=tokens, n=n // world, k=k)


def drawn(count: int, seed: int) -> Iterator[tuple[str, Problem]]:
    """Calls of no model: sizes drawn at random, evenly over their logarithms."""
    source = random.Random(seed)
    for index in range(count):
        call = source.choice(list(Call))
        m, n, k = (round(2 ** source.uniform(8, 14)) for _ in range(3))
        world = 1 if call in (Call.GEMM_OFFLOAD, Call.PREFETCH_GEMM) else source.choice([2, 3, 4, 6, 8])
        yield f"drawn {index}", Problem(call=call, m=m, n=n, k=k, world=world)


def all_ways(problem: Problem) -> Iterator[Way]:
    yield Serial()
    for count in COUNTS:
        for sizes in Sizes:
            if count > 2 or sizes is Sizes.EQUAL:
                yield Chunked(chunks=count, sizes=sizes)
    for parts in PARTS:
        if parts >= problem.world:
            yield Tracked(chunks=parts)


def row(name: str, problem: Problem, device: str) -> dict[str, object]:
    """One call: the chooser's pick, the best of all ways, serial."""
    gpu = load_device(device)
    times = {str(way): simulated_ns(problem, way, gpu) for way in all_ways(problem)}
    began = time.process_time()
    choice = choose(problem, device=gpu)
    decided_ms = (time.process_time() - began) * 1e3
    chosen = times[str(choice.way)] = simulated_ns(problem, choice.way, gpu)
    untracked = choose(problem, device=gpu, ways=("serial", "chunked"))
    best = min(times, key=lambda way: times[way])
    return {
        "name": name,
        "call": problem.call.value,
        "mover": problem.mover.value,
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "world": problem.world,
        "serial_us": round(times["serial"] / 1e3, 1),
        "best": best,
        "best_us": round(times[best] / 1e3, 1),
        "chosen": str(choice.way),
        "chosen_us": round(chosen / 1e3, 1),
        "chosen_without_tracked": str(untracked.way),
        "chosen_without_tracked_us": round(simulated_ns(problem, untracked.way, gpu) / 1e3, 1),
        "decided_ms": round(decided_ms, 1),
        "looked_at": len(choice.predicted_ns),
    }


def summary(rows: list[dict[str, object]]) -> None:
    print("| call | moved by | cases | serial chosen | speedup: median, most | behind the best: mean, most |")
    print("|---|---|---|---|---|---|")
    groups = sorted({(str(row["call"]), str(row["mover"])) for row in rows})
    for call, mover in [*groups, ("all", "")]:
        some = [row for row in rows if call == "all" or (row["call"], row["mover"]) == (call, mover)]
        gains = [float(row["serial_us"]) / float(row["chosen_us"]) for row in some]  # type: ignore[arg-type]
        behind = [float(row["chosen_us"]) / float(row["best_us"]) - 1 for row in some]  # type: ignore[arg-type]
        serial = sum(row["chosen"] == "serial" for row in some)
        print(
            f"| {call} | {mover} | {len(some)} | {serial} | {statistics.median(gains):.2f}, {max(gains):.2f}"
            f" | {statistics.fmean(behind):.1%}, {max(behind):.1%} |"
        )
    slower = max(float(row["chosen_us"]) / float(row["serial_us"]) - 1 for row in rows)  # type: ignore[arg-type]
    decided = [float(row["decided_ms"]) for row in rows]  # type: ignore[arg-type]
    print(
        f"\nAgainst serial at worst {slower:+.1%}. Deciding: median {statistics.median(decided):.0f} ms,"
        f" most {max(decided):.0f} ms of processor time, once for each call."
    )


def measured(arguments: argparse.Namespace) -> Iterator[dict[str, object]]:
    calls = drawn(arguments.drawn, arguments.seed) if arguments.drawn else problems(arguments.models)
    for name, problem in calls:
        movers = list(Engine) if problem.world > 1 else [Engine.COPY_ENGINE]
        for mover in movers:
            yield row(name, dataclasses.replace(problem, mover=mover), arguments.device)
            print(f"{name} {problem.call} m={problem.m} {mover}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="h200-sxm")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--drawn", type=int, help="So many calls drawn at random in their place.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="Run, and write the rows to this file.")
    parser.add_argument("--summary", type=Path, nargs="+", help="Only sum up files that were written.")
    arguments = parser.parse_args()
    if arguments.output is not None:
        with arguments.output.open("w", newline="") as file:
            writer = None
            for found in measured(arguments):
                writer = writer or csv.DictWriter(file, fieldnames=list(found))
                if file.tell() == 0:
                    writer.writeheader()
                writer.writerow(found)
                file.flush()
    rows: list[dict[str, object]] = []
    for path in arguments.summary or [arguments.output]:
        with path.open(newline="") as file:
            rows.extend(csv.DictReader(file))
    summary(rows)


if __name__ == "__main__":
    main()
