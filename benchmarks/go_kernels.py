"""GO-kernels and the dynamic choice on the simulator: 40 sets of published models' GEMMs.

    python benchmarks/go_kernels.py --device h200-sxm

Prints Markdown tables: every set, what the budgeted search costs and loses against measuring every choice,
and the choice of degree for models that its training has not seen.
"""

from __future__ import annotations

import argparse
import statistics
import timeit
from collections.abc import Sequence
from pathlib import Path

from conccl.costs.catalogue import load_device
from conccl.report.gemms import how
from conccl.tune.gemms.build import corpus, surveyed
from conccl.tune.gemms.choice import GemmSet, read_sets
from conccl.tune.gemms.logic import GROUPED, Logic
from conccl.tune.gemms.running import SimulatedRunner, bound_ns
from conccl.tune.gemms.search import Tuned, exhaustive, search
from conccl.tune.gemms.training import Example, example_of, train

SETS = Path(__file__).parent / "data" / "concurrent_gemms.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="h200-sxm")
    parser.add_argument("--sets", type=Path, default=SETS)
    arguments = parser.parse_args()
    device = load_device(arguments.device)
    runner = SimulatedRunner(device=device)
    sets = read_sets(arguments.sets)

    def estimate(gemms: GemmSet, choice) -> float:
        return bound_ns(gemms, choice, device=device)

    full = [exhaustive(one, measure=runner.measure) for one in sets]
    quick = [search(one, measure=runner.measure, estimate=estimate) for one in sets]
    print_sets(full)
    print_search(full, quick)
    own = [example_of(one, free_sms=device.sm_count) for one in surveyed(sets, device=device, runner=runner)]
    drawn = surveyed(corpus(), device=device, runner=runner)
    print_choice(own, [example_of(one, free_sms=device.sm_count) for one in drawn])


def print_sets(full: Sequence[Tuned]) -> None:
    print("| set | sequential us | over sequential | over all at once | over vendor's kernels | best |")
    print("|---|---|---|---|---|---|")
    for one in full:
        print(
            f"| {one.gemms.name} | {one.sequential_ns / 1e3:.1f} | {one.sequential_ns / one.best_ns:.2f} |"
            f" {one.default_ns / one.best_ns:.2f} | {vendor_ns(one) / one.best_ns:.2f} | {how(one.best)} |"
        )
    for name, gains in (
        ("over sequential", [one.sequential_ns / one.best_ns for one in full]),
        ("over all at once", [one.default_ns / one.best_ns for one in full]),
        ("over the vendor's kernels at their best degree", [vendor_ns(one) / one.best_ns for one in full]),
    ):
        print(f"\n{name}: geometric mean {statistics.geometric_mean(gains):.2f}, most {max(gains):.2f}")


def vendor_ns(one: Tuned) -> float:
    """The kernels that are best alone, at the degree that is best for them."""
    return min(
        time
        for choice, time in one.times_ns.items()
        if not choice.grouped and all(kernel.is_vendor for kernel in choice.kernels)
    )


def print_search(full: Sequence[Tuned], quick: Sequence[Tuned]) -> None:
    lost = [fast.best_ns / whole.best_ns for fast, whole in zip(quick, full, strict=True)]
    needed = sum(one.measurements for one in quick)
    every = sum(one.measurements for one in full)
    print(f"\nsearch: {needed} measurements instead of {every} ({every / needed:.1f} times fewer);")
    print(f"lost: geometric mean {statistics.geometric_mean(lost) - 1:.2%}, most {max(lost) - 1:.2%}\n")


def print_choice(own: Sequence[Example], drawn: Sequence[Example]) -> None:
    """Leave one model out: its sets are in nobody's training."""
    print("| set | chosen | best | time over best | time over sequential |\n|---|---|---|---|---|")
    lost, over_sequential = [], []
    for one in own:
        others = [other for other in own if other.gemms.source != one.gemms.source]
        logic = train([*drawn, *others])
        shapes = [(op.m, op.n, op.k) for op in one.gemms.gemms]
        seen, _ = logic.decide(shapes, free_sms=one.free_sms, can_group=one.gemms.can_be_grouped)
        best = min(one.times_ns, key=one.times_ns.__getitem__)
        lost.append(one.times_ns[seen] / one.best_ns)
        over_sequential.append(one.times_ns[seen] / one.times_ns[1])
        row = (one.gemms.name, named(seen), named(best), f"{lost[-1]:.3f}", f"{over_sequential[-1]:.3f}")
        print(f"| {' | '.join(row)} |")
    print(f"\nchoice: geometric mean {statistics.geometric_mean(lost) - 1:.2%} above the best of all,")
    print(f"most {max(lost) - 1:.1%}; against sequential at worst {max(over_sequential):.3f} times its time")
    for ready in (2, 16):
        print(f"deciding for {ready} shapes not seen before: {deciding_us(logic, ready):.0f} us")


def deciding_us(logic: Logic, ready: int) -> float:
    """Least of five times 5,000 decisions."""
    shapes = [(64, 4096, 1024)] * ready
    times = timeit.repeat(lambda: logic.decide(shapes, free_sms=132, can_group=True), number=5_000, repeat=5)
    return min(times) / 5_000 * 1e6


def named(class_: int) -> str:
    return "grouped" if class_ == GROUPED else str(class_)


if __name__ == "__main__":
    main()
