"""ConCCL's 30 pairs on 8 simulated MI300X, beside the averages that the paper prints.

    python benchmarks/sim_conccl_mi300x.py [--dispatch in_order|alternating]

The pairs are in benchmarks/pairs/conccl_mi300x.json. Partitioned strategies run with every size of the
paper's sweep and the best of each pair counts, as the paper has it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from conccl.bench.characterize import Characterizer, strategies_of
from conccl.bench.executors import open_bench
from conccl.bench.results import PairResult
from conccl.core.metrics import PairClass
from conccl.costs.catalogue import load_device, system_of, with_fields
from conccl.workloads.pairs import read_pairs

PAPER = {
    "baseline": 21,
    "prioritized": 42,
    "partitioned": 41,
    "prioritized_partitioned": 42,
    "ce": 66,
    "ce_trimmed": 72,
}
"""Average percent of ideal (arXiv:2412.14335 by way of a summary; 21 and 72 from its abstract)."""

SIZES = (8, 16, 32, 64, 128)


def fraction(pair: PairResult, strategy: str) -> float:
    """Of ideal; the best size where the strategy has sizes."""
    names = [strategy] if strategy in pair.strategies else [f"{strategy}:{size}" for size in SIZES]
    found = []
    for name in names:
        overlap = pair.strategies[name].overlap
        if overlap is not None and overlap.fraction_of_ideal is not None:
            found.append(overlap.fraction_of_ideal)
    return max(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dispatch", choices=("in_order", "alternating"), default="in_order")
    arguments = parser.parse_args()
    pairs = read_pairs(Path(__file__).parent / "pairs/conccl_mi300x.json").pairs
    device = with_fields(load_device("mi300x"), {"cta_dispatch": arguments.dispatch})
    names = [name for name in PAPER if "partitioned" not in name]
    names += [f"{name}:{size}" for name in PAPER if "partitioned" in name for size in SIZES]
    characterizer = Characterizer(
        bench=open_bench("sim", device=device, gpus=8),
        system=system_of(device, gpus=8),
        strategies=strategies_of(names),
    )
    begin = time.perf_counter()
    found = characterizer.characterize(pairs)
    seconds = time.perf_counter() - begin
    print(f"| strategy | paper | {len(found.pairs)} pairs | " + " | ".join(PairClass) + " |")
    print("|---" * (3 + len(PairClass)) + "|")
    for strategy, paper in PAPER.items():
        every = [fraction(pair, strategy) for pair in found.pairs]
        by_class = []
        for class_ in PairClass:
            some = [fraction(pair, strategy) for pair in found.pairs if pair.pair_class is class_]
            by_class.append(f"{100 * statistics.fmean(some):.0f} ({len(some)})" if some else "-")
        print(f"| {strategy} | {paper} | {100 * statistics.fmean(every):.0f} | {' | '.join(by_class)} |")
    ideal = statistics.fmean(pair.alone.ideal_speedup for pair in found.pairs if pair.alone)
    print(f"\nmean ideal speedup {ideal:.2f}; {len(pairs)} pairs x {len(names)} plans in {seconds:.1f} s")


if __name__ == "__main__":
    main()
