"""Choose iterations on the first recorded run; score on the second, on kernels, and on half of the SMs.

    python benchmarks/sample_iterations/evaluate.py benchmarks/data/h200-sxm/2026-11-30/sequence-runs

Prints the tables of the report and writes curve.json (error against number of points, by rule).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from conccl.sampling.baselines import Baseline, pick
from conccl.sampling.logs import IterationLog
from conccl.sampling.seqpoint import SeqPoint, project, project_speedup, select

ERRORS = (5.0, 2.0, 1.0, 0.5, 0.2, 0.1)
SEEDS = range(20)


def main() -> None:
    """Evaluate every run in the folder."""
    folder = Path(sys.argv[1])
    curves = {}
    for path in sorted(folder.glob("*.npz")):
        run = dict(np.load(path))
        print(f"\n### {path.stem}\n")
        curves[path.stem] = evaluated(run)
    (folder / "curve.json").write_text(json.dumps(curves, indent=1))


def evaluated(run: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """The tables of one network; returns its curve."""
    log = IterationLog(
        iteration=np.arange(len(run["length"])), length=run["length"], statistics={"ms": run["first_ms"]}
    )
    first, second = float(run["first_ms"].sum()), float(run["second_ms"].sum())
    print(f"{len(run['length'])} iterations, {len(np.unique(run['length'], axis=0))} lengths;", end=" ")
    print(f"first run {first / 1e3:.2f} s, second {second / 1e3:.2f} s: {off(second, first):.2f} % apart\n")
    print("| wanted | SeqPoints | first run | second run | kernels | kernel time | speedup on half the SMs |")
    print("|---|---|---|---|---|---|---|")
    curve = []
    for wanted in ERRORS:
        points = select(log, statistic="ms", error_percent=wanted).seqpoints
        row = scores(run, points)
        curve.append({"points": len(points), "wanted": wanted, "seqpoint": row["second run"]})
        print(
            f"| {wanted} % | {len(points)} | " + " | ".join(f"{value:.2f} %" for value in row.values()) + " |"
        )
    print("\n| rule, as many iterations | second run |\n|---|---|")
    for row in curve:
        row |= {rule.value: baseline_error(run, log, rule, count=row["points"]) for rule in Baseline}
    for rule in Baseline:
        print(
            f"| {rule.value} | "
            + ", ".join(f"{row[rule.value]:.2f} % ({row['points']})" for row in curve)
            + " |"
        )
    return curve


def scores(run: dict[str, np.ndarray], points: tuple[SeqPoint, ...]) -> dict[str, float]:
    """Errors in percent of what the points project."""
    first, second, half = (by_length(run, f"{name}_ms") for name in ("first", "second", "half"))
    counts = {tuple(map(int, n)): i for i, n in enumerate(run["distinct"])}
    weight = np.array([(run["length"] == n).all(axis=1).sum() for n in run["distinct"]])
    classes = [key for key in run if key.startswith("kernels_") and key != "kernels_count"]
    time = sum(run[key] for key in classes)
    speedup = run["half_ms"].sum() / run["second_ms"].sum()
    return {
        "first run": off(project(points, values=first), run["first_ms"].sum()),
        "second run": off(project(points, values=second), run["second_ms"].sum()),
        "kernels": off(
            sum(p.weight * run["kernels_count"][counts[p.length]] for p in points),
            weight @ run["kernels_count"],
        ),
        "kernel time": off(sum(p.weight * time[counts[p.length]] for p in points), weight @ time),
        "speedup": off(project_speedup(points, before=half, after=second), speedup),
    }


def baseline_error(run: dict[str, np.ndarray], log: IterationLog, rule: Baseline, *, count: int) -> float:
    """Error on the second run of so many iterations by this rule; the median over seeds where it draws."""
    seeds = SEEDS if rule in (Baseline.RANDOM, Baseline.KMEANS) else (0,)
    errors = []
    for seed in seeds:
        points = pick(log, baseline=rule, count=count, statistic="ms", seed=seed)
        errors.append(
            off(sum(p.weight * run["second_ms"][p.iteration] for p in points), run["second_ms"].sum())
        )
    return float(np.median(errors))


def by_length(run: dict[str, np.ndarray], name: str) -> dict[tuple[int, ...], float]:
    """Mean time of each length."""
    lengths, group = np.unique(run["length"], axis=0, return_inverse=True)
    group = group.reshape(-1)
    mean = np.bincount(group, weights=run[name]) / np.bincount(group)
    return {tuple(map(int, n)): float(value) for n, value in zip(lengths, mean, strict=True)}


def off(projected: float, actual: float) -> float:
    """Error in percent, without sign."""
    return float(100 * abs(projected - actual) / abs(actual))


if __name__ == "__main__":
    main()
