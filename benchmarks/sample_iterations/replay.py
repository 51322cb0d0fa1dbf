"""Whole runs through the simulator, every length of them, beside what their SeqPoints project.

    python benchmarks/sample_iterations/replay.py --lengths FOLDER --runs FOLDER --output FILE.json

FOLDER of lengths: the three logs that `lengths` reads; of runs: measured times (`record.py`). Every simulated
time is kept in FILE, so a run that is interrupted goes on. Prints the tables of the report.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from lengths import LOGS

from conccl.bench.replay import replay
from conccl.bench.sweep import Variation
from conccl.cli.replaying import simulator
from conccl.core.hardware import Device
from conccl.costs.catalogue import load_device
from conccl.sampling.baselines import Baseline, pick
from conccl.sampling.logs import IterationLog
from conccl.sampling.seqpoint import Length, SeqPoint, select

DEVICES = ("h200-sxm", "a100-sxm", "mi300x")
ITERATIONS = 1000
SEEDS = range(20)


def main() -> None:
    """Simulate what is not kept yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, help="kept times")
    options = parser.parse_args()
    kept = Kept(options.output)
    print(
        "| network | device | chosen by | SeqPoints | whole run | projected | error | speedup error |", end=""
    )
    print(" first | median | frequent | random | k-means |\n|" + "---|" * 13)
    for name in ("translation", "transformer", "speech"):
        run = log_of(name, options)
        simulate = kept.simulator(name, f"{Path(__file__).parent / 'simulated.py'}:{name}", run)
        study(name, run, simulate)


def log_of(name: str, options: Any) -> IterationLog:
    """The run's lengths, with the times that were measured on it where they were."""
    length = LOGS[name](options.lengths, iterations=ITERATIONS)
    names = ("length_source", "length_target") if length.shape[1] == 2 else ("length",)
    statistics = {}
    path = options.runs / f"{name}.npz"
    if path.exists():
        measured = dict(np.load(path))
        assert (measured["length"] == length).all(), f"{path} is of another run"
        statistics["measured_ms"] = measured["first_ms"]
    return IterationLog(iteration=np.arange(len(length)), length=length, statistics=statistics, names=names)


class Kept:
    """Simulated times in a JSON file: network -> device -> length -> ns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.times: dict[str, dict[str, dict[str, int]]] = (
            json.loads(path.read_text()) if path.exists() else {}
        )

    def simulator(self, name: str, target: str, run: IterationLog) -> Any:
        """Looks up, or simulates and keeps."""
        once = simulator(target, (), names=run.names)

        def simulate(length: Length, device: Device) -> int:
            times = self.times.setdefault(name, {}).setdefault(device.name, {})
            key = "x".join(map(str, length))
            if key not in times:
                began = time.perf_counter()
                times[key] = once(length, device)
                took = time.perf_counter() - began
                print(f"{name} {device.name} {key}: {times[key] / 1e6:.2f} ms, {took:.1f} s", file=sys.stderr)
                self.path.write_text(json.dumps(self.times, indent=0, sort_keys=True))
            return times[key]

        return simulate


def study(name: str, run: IterationLog, simulate: Any) -> None:
    """Rows of one network: choices by every statistic, on every device."""
    variations = [Variation(device=load_device(device)) for device in DEVICES]
    first = {tuple(n): simulate(tuple(n), variations[0].device) for n in run.distinct().length.tolist()}
    simulated = np.array([first[tuple(n)] for n in run.length.tolist()], dtype=np.float64)
    run = changed(run, statistics={**run.statistics, "simulated": simulated})
    if "measured_ms" in run.statistics:
        whole = run.statistics["measured_ms"].sum() / 1e3
        print(f"{name}: measured {whole:.2f} s, simulated {simulated.sum() / 1e9:.2f} s", file=sys.stderr)
    for statistic in run.statistics:
        for wanted in (0.5, 0.1):
            points = select(run, statistic=statistic, error_percent=wanted).seqpoints
            found = replay(points, target=name, variations=variations, simulate=simulate, whole=run)
            for place in found.places:
                others = [baseline(run, rule, len(points), statistic, place.times_ns) for rule in Baseline]
                print(
                    f"| {name} | {place.name} | {statistic} {wanted} % | {len(points)}"
                    f" | {place.actual_ns / 1e9:.3f} s | {place.projected_ns / 1e9:.3f} s"
                    f" | **{place.error_percent:.3f} %** | {found.speedup_error_percent(place):.3f} % | "
                    + " | ".join(f"{error:.2f} %" for error in others)
                    + " |"
                )


def baseline(
    run: IterationLog, rule: Baseline, count: int, statistic: str, times: dict[Length, int]
) -> float:
    """Error of as many iterations by another rule; the median of 20 draws where it draws."""
    seeds = SEEDS if rule in (Baseline.RANDOM, Baseline.KMEANS) else (0,)
    actual = sum(times[tuple(n)] for n in run.length.tolist())
    return float(
        np.median(
            [
                off(pick(run, baseline=rule, count=count, statistic=statistic, seed=seed), times, actual)
                for seed in seeds
            ]
        )
    )


def off(points: tuple[SeqPoint, ...], times: dict[Length, int], actual: float) -> float:
    """Error in percent, without sign."""
    return 100 * abs(sum(p.weight * times[p.length] for p in points) - actual) / actual


if __name__ == "__main__":
    main()
