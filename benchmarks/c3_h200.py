"""Measure pairs of computation and communication on one H200 by every strategy; saved after each cell.

    python benchmarks/c3_h200.py --output benchmarks/data/h200-sxm/c3 [--minutes 7.5] [--device h200-sxm]
    python benchmarks/c3_h200.py --output FOLDER --executor sim        # the same pairs through the simulator

90 pairs: GEMMs of Llama-3-8B, Llama-3-70B and 405B (TP8), GPT-3 (TP8) and DeepSeek-V3, each beside (a) a host
transfer in and one out and (b) a copy inside HBM of what one rank of an all-gather or all-to-all would send
(one GPU stands for several: SM strategies only), at three lengths. They come in random order, so that a run
that is cut short has some of each; the same command goes on where it stopped. ``--report`` prints what is
there without measuring.

Not yet run on a GPU.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from collections.abc import Sequence
from pathlib import Path

from conccl.bench.characterize import Characterizer, pair_key, strategies_of
from conccl.bench.executors import open_bench
from conccl.bench.results import Characterization, PairResult, StrategyResult
from conccl.bench.store import Store, read_store
from conccl.core.hardware import Device
from conccl.core.measurement import Environment
from conccl.core.metrics import Overlap, PairClass
from conccl.core.ops import Gemm
from conccl.core.pair import Pair
from conccl.costs.catalogue import load_device, system_of
from conccl.costs.gemm import gemm_kernels
from conccl.tune.features import communication_of, kind_of

GEMMS = {
    "llama3-8b gate and up": Gemm(m=8192, n=28672, k=4096),
    "llama3-8b qkv, 256 rows": Gemm(m=256, n=6144, k=4096),
    "llama3-70b tp8 gate and up": Gemm(m=8192, n=7168, k=8192),
    "llama3-70b tp8 down, 2048 rows": Gemm(m=2048, n=8192, k=3584),
    "llama3-405b tp8 gate and up": Gemm(m=4096, n=13312, k=16384),
    "llama3-405b tp8 gate and up, 16 rows": Gemm(m=16, n=13312, k=16384),
    "gpt-3 tp8 up": Gemm(m=2048, n=6144, k=12288),
    "gpt-3 tp8 attention out": Gemm(m=8192, n=12288, k=1536),
    "deepseek-v3 expert gate and up": Gemm(m=4096, n=4096, k=7168),
    "deepseek-v3 q up, 512 rows": Gemm(m=512, n=24576, k=1536),
}

LENGTHS = {"G-long": 0.5, "GC-equal": 1.0, "C-long": 2.0}

HOST_BANDWIDTH = 55e9
"""Bytes/s of the host link one way, measured on an H200 (docs: facts of November 2026)."""

HBM_BANDWIDTH = 1.9e12
"""Bytes/s that a copy inside HBM on all SMs reaches, measured on an H200 (c3.json.gz, 132 CTAs)."""

KINDS = {"host_in": HOST_BANDWIDTH, "host_out": HOST_BANDWIDTH, "local": HBM_BANDWIDTH}

STRATEGIES = (
    *("serial", "baseline", "prioritized:8", "prioritized:16", "prioritized:32"),
    *("partitioned:8", "partitioned:16", "partitioned:32", "ce", "ce_trimmed"),
)


def pairs(device: Device) -> list[Pair]:
    """In random order, always the same."""
    found = []
    for name, op in GEMMS.items():
        alone_s = sum(kernel.isolated_ns for kernel in gemm_kernels(op, device)) / 1e9
        for (length, ratio), (kind, bandwidth) in itertools.product(LENGTHS.items(), KINDS.items()):
            nbytes = max(1 << 16, int(bandwidth * alone_s * ratio) >> 16 << 16)
            communication = communication_of(kind, nbytes=nbytes, ranks=1)
            found.append(Pair(compute=op, communication=communication, source=f"{name} {length}"))
    random.Random(0).shuffle(found)
    return found


def measure(arguments: argparse.Namespace) -> None:
    device = load_device(arguments.device)
    until = time.monotonic() + 60 * arguments.minutes
    bench = open_bench(arguments.executor, device=device, gpus=1)
    store = Store(arguments.output / "store.jsonl", environment=bench.environment)
    results: list[PairResult] = []
    for index, pair in enumerate(pairs(device)):
        names = list(STRATEGIES)
        random.Random(index).shuffle(names)
        if time.monotonic() > until:
            print(f"out of time after {index} pairs; the same command goes on from here")
            break
        characterizer = Characterizer(
            bench=bench, system=system_of(device, gpus=1), strategies=strategies_of(names), store=store
        )
        results.append(characterizer.pair(pair))
        print(f"{index + 1}: {pair.source}", flush=True)
    summarize(bench.environment, results)


def summarize(environment: Environment, results: Sequence[PairResult]) -> None:
    for kind in KINDS:
        some = tuple(one for one in results if kind_of(one.pair.communication) == kind and one.alone)
        report(Characterization(environment=environment, pairs=some), title=kind)


def reread(arguments: argparse.Namespace) -> None:
    """From the store alone: nothing is opened or measured."""
    environment, cells = read_store(arguments.output / "store.jsonl")
    known = {cell.label: cell for cell in cells}
    results = []
    for pair in pairs(load_device(arguments.device)):
        compute, communication = (
            known.get(f"{pair_key(pair)}/{side}") for side in ("compute", "communication")
        )
        if compute is None or communication is None or not (compute.median_ns and communication.median_ns):
            continue
        strategies = {}
        for name in STRATEGIES:
            cell = known.get(f"{pair_key(pair)}/{name}")
            if cell is not None:
                alone = {"compute_ns": compute.median_ns, "communication_ns": communication.median_ns}
                overlap = Overlap(**alone, concurrent_ns=cell.median_ns) if cell.median_ns else None
                strategies[name] = StrategyResult(overlap=overlap, measurement=cell)
        results.append(
            PairResult(pair=pair, compute=compute, communication=communication, strategies=strategies)
        )
    summarize(environment, results)


def report(found: Characterization, *, title: str) -> None:
    """Average fraction of ideal by strategy and class; unproved cells do not count and are said."""
    print(f"\n{title}, {found.environment.executor}, {len(found.pairs)} pairs")
    print(
        "| strategy | all | "
        + " | ".join(PairClass)
        + " | not proved | failed |\n|---|---|---|---|---|---|---|"
    )
    for name in STRATEGIES:
        cells = [pair.strategies[name] for pair in found.pairs if name in pair.strategies]
        averages = [found.average_fraction(name), *(found.average_fraction(name, of=c) for c in PairClass)]
        texts = " | ".join("-" if a is None else f"{a:.2f}" for a in averages)
        unproved = sum(cell.measurement.proved is False for cell in cells)
        failed = sum(cell.overlap is None for cell in cells)
        print(f"| {name} | {texts} | {unproved} | {failed} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--device", default="h200-sxm")
    parser.add_argument("--executor", default="gpu", choices=("gpu", "sim"))
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--report", action="store_true", help="only print what is there already")
    arguments = parser.parse_args()
    (reread if arguments.report else measure)(arguments)


if __name__ == "__main__":
    main()
