"""Co-tuning by search beside measuring every setting, on the simulator.

    python benchmarks/cotune.py [--device h200-sxm] [--output FILE.json]

Pairs of Llama-3 and GPT-3 layers with 8 GPUs: independent ones (a gather or all-to-all beside a GEMM) and
ones in which the GEMM feeds a reduce-scatter or all-reduce. Both searches see the same simulator.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path

from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective, Gemm
from conccl.core.pair import Dependence, Pair
from conccl.costs.catalogue import load_device, system_of
from conccl.sim.executor import SimExecutor
from conccl.tune.cotune import Cotuned, cotune, exhaust

GPUS = 8
FEEDS = Dependence.COMPUTE_FEEDS_COMMUNICATION

PAIRS = {
    "llama3-70b gate and up, gather of 400 MiB": (
        Gemm(m=8192, n=7168, k=8192),
        "all_gather",
        400 << 20,
        None,
    ),
    "llama3-8b down, gather of 100 MiB": (Gemm(m=4096, n=4096, k=14336), "all_gather", 100 << 20, None),
    "llama3-8b qkv, all-to-all of 64 MiB": (Gemm(m=2048, n=6144, k=4096), "all_to_all", 64 << 20, None),
    "gpt-3 up, 256 rows, all-reduce of 32 MiB": (Gemm(m=256, n=6144, k=12288), "all_reduce", 32 << 20, None),
    "llama3-70b down into reduce-scatter": (Gemm(m=8192, n=8192, k=3584), "reduce_scatter", 128 << 20, FEEDS),
    "llama3-8b out into all-reduce": (Gemm(m=4096, n=4096, k=4096), "all_reduce", 32 << 20, FEEDS),
    "gpt-3 down into reduce-scatter": (Gemm(m=2048, n=12288, k=6144), "reduce_scatter", 48 << 20, FEEDS),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="h200-sxm")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    system = system_of(load_device(arguments.device), gpus=GPUS)

    def executor_of(kernels_of):
        return SimExecutor(system=system, kernels_of=kernels_of)

    print("| pair | settings | measured | over the best of all | sides tuned apart: over it | search | all |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for name, (gemm, kind, nbytes, dependence) in PAIRS.items():
        pair = Pair(
            compute=gemm,
            communication=Collective(kind=CollectiveKind(kind), nbytes=nbytes, ranks=GPUS),
            dependence=dependence or Dependence.NONE,
            source=name,
        )
        found, search_s = _timed(lambda pair=pair: cotune(pair, system=system, executor_of=executor_of))
        best, all_s = _timed(lambda pair=pair: exhaust(pair, system=system, executor_of=executor_of))
        apart = (found.apart_ns or 0) / best.time_ns - 1
        print(
            f"| {name} | {found.space} | {found.measured} | {found.time_ns / best.time_ns - 1:.1%} |"
            f" {apart:.1%} | {search_s:.1f} s | {all_s:.1f} s |",
            flush=True,
        )
        rows.append({"pair": name, "found": dataclasses.asdict(found), "best": dataclasses.asdict(best)})
    if arguments.output:
        arguments.output.write_text(json.dumps(rows, indent=1) + "\n")


def _timed(run) -> tuple[Cotuned, float]:
    begin = time.perf_counter()
    return run(), time.perf_counter() - begin


if __name__ == "__main__":
    main()
