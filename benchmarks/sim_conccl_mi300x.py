"""ConCCL's 30 pairs on 8 simulated MI300X, beside the averages that the paper prints.

    python benchmarks/sim_conccl_mi300x.py [--dispatch in_order|alternating]

The pairs are in benchmarks/pairs/conccl_mi300x.json. Partitioned strategies run with every size of the
paper's sweep and the best of each pair counts, as the paper has it.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from pathlib import Path

from conccl.bench.characterize import Characterizer, strategies_of
from conccl.bench.executors import open_bench
from conccl.bench.results import PairResult
from conccl.core.metrics import Overlap, PairClass
from conccl.core.pair import Pair
from conccl.core.plan import Engine, Side
from conccl.costs.catalogue import load_device, system_of, with_fields
from conccl.sim.executor import SimExecutor
from conccl.strategies.choices import Path as By
from conccl.strategies.lower import isolated
from conccl.strategies.transfers import Means
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


def slowed(fraction_of: Overlap, by: float) -> float:
    """The fraction of ideal if computation also went slower by so much while communication runs."""
    both = min(fraction_of.compute_ns, fraction_of.communication_ns)
    if fraction_of.compute_ns > fraction_of.communication_ns:
        later = round(by * both)
    else:  # the longer communication hides what computation loses, as far as it is longer
        later = max(0, round((1 + by) * both) - fraction_of.communication_ns)
    found = dataclasses.replace(fraction_of, concurrent_ns=fraction_of.concurrent_ns + later)
    return found.fraction_of_ideal or 0.0


def what_if(pairs: tuple[Pair, ...]) -> None:
    """The averages under facts that the device file does not hold, one after the other."""
    device = load_device("mi300x")
    names = [name for name in PAPER if "partitioned" not in name] + [f"partitioned:{size}" for size in SIZES]
    print("| what | ce alone / library alone | " + " | ".join(NAMES_SHOWN) + " |")
    print("|---" * (2 + len(NAMES_SHOWN)) + "|")
    for title, fields, by in WHAT_IFS:
        changed = with_fields(device, fields)
        system = system_of(changed, gpus=8)
        characterizer = Characterizer(
            bench=open_bench("sim", device=changed, gpus=8), system=system, strategies=strategies_of(names)
        )
        found = characterizer.characterize(pairs)
        executor = SimExecutor(system=system)
        ratios = [
            executor.run(
                isolated(pair.pair.communication, side=Side.COMMUNICATION, system=system, means=ENGINES)
            ).span_ns
            / pair.alone.communication_ns
            for pair in found.pairs
            if pair.alone
        ]
        row = []
        for strategy in NAMES_SHOWN:
            own = [strategy] if strategy in names else [name for name in names if name.startswith(strategy)]
            best = [
                max(slowed(overlap, by) for name in own if (overlap := pair.strategies[name].overlap))
                for pair in found.pairs
            ]
            row.append(f"{100 * statistics.fmean(best):.0f}")
        print(f"| {title} | {statistics.fmean(ratios):.2f} | {' | '.join(row)} |")
    print("| paper | - | " + " | ".join(str(PAPER[name]) for name in NAMES_SHOWN) + " |")


NAMES_SHOWN = ("baseline", "prioritized", "partitioned", "ce", "ce_trimmed")

ENGINES = Means(engine=Engine.COPY_ENGINE, path=By.PLANNED)

ENGINE = 45e9
"""Bytes/s of one engine with which these copies take as long as the library's collectives, on average."""

SLOWER = 0.189
"""By how much computation goes slower beside communication on average, as Lit Silicon cites it (by way of a
note that names no GPU); 40 % at most."""

WHAT_IFS: tuple[tuple[str, dict[str, float], float], ...] = (
    ("as shipped: data sheets and CU losses", {}, 0.0),
    ("engines as slow as the library", {"copy_engines.bandwidth": ENGINE}, 0.0),
    ("engines a tenth slower than it", {"copy_engines.bandwidth": 0.92 * ENGINE}, 0.0),
    ("computation 18.9 % slower beside communication", {}, SLOWER),
    ("both", {"copy_engines.bandwidth": ENGINE}, SLOWER),
    ("both, and 40 % slower", {"copy_engines.bandwidth": ENGINE}, 0.4),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dispatch", choices=("in_order", "alternating"), default="in_order")
    parser.add_argument("--what-if", action="store_true", help="what other facts would change, then stop")
    arguments = parser.parse_args()
    pairs = read_pairs(Path(__file__).parent / "pairs/conccl_mi300x.json").pairs
    if arguments.what_if:
        what_if(pairs)
        return
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
