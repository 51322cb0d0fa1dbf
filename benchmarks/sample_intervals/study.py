"""How well, how fast and how small: SimPoint and DARTS on real programs, each checked against its whole run.

A line of JSON for each program; programs that have a line already are skipped, so that it can be interrupted.

    python benchmarks/sample_intervals/study.py ROWS.jsonl [--inputs FOLDER] [--only gzip,bc] [--interval N]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from programs import Program, programs

from conccl.core.errors import ConcclError, ExecutionError
from conccl.sampling.intervals.evaluate import Truth, coverage_of, error_by_points, errors, measure_truth
from conccl.sampling.intervals.flow import sample_intervals
from conccl.sampling.intervals.methods import Method, Translator
from conccl.sampling.intervals.points import Sample
from conccl.sampling.intervals.program import Child, find_program

FLOWS = {
    "simpoint-valgrind": (Method.SIMPOINT, Translator.VALGRIND),
    "simpoint-qemu": (Method.SIMPOINT, Translator.QEMU),
    "darts-qemu": (Method.DARTS, Translator.QEMU),
    "darts-attach": (Method.DARTS, Translator.ATTACH),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--inputs", type=Path, default=Path(tempfile.gettempdir()) / "conccl-study-inputs")
    parser.add_argument("--only", default="")
    parser.add_argument("--interval", type=int, default=10_000_000)
    given = parser.parse_args()
    done = set()
    if given.rows.exists():
        done = {json.loads(line)["program"] for line in given.rows.read_text().splitlines()}
    for program in programs(given.inputs):
        if program.name in done or (given.only and program.name not in given.only.split(",")):
            continue
        began = time.monotonic()
        row = study(program, interval=given.interval)
        with given.rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(program.name, f"{time.monotonic() - began:.0f} s", _short(row), flush=True)


def study(program: Program, /, *, interval: int) -> dict[str, Any]:
    found = find_program(program.argv)
    row: dict[str, Any] = {
        "program": program.name,
        "package": program.package,
        "argv": list(program.argv),
        "interval": interval,
        "load_before": os.getloadavg()[0],
    }
    with Child(found.argv, program=found, environment=found.environment()) as child:
        ended = child.wait()
    row["native"] = {"wall_ns": ended.wall_ns, "cpu_ns": ended.cpu_ns}
    samples: dict[str, Sample] = {}
    for name, (method, translator) in FLOWS.items():
        try:
            samples[name] = sample_intervals(found, method=method, translator=translator, interval=interval)
            row[name] = _summary(samples[name])
        except ConcclError as error:
            row[name] = {"error": str(error)}
    attached = samples.get("darts-attach")
    bounds = attached.bounds if attached else ()
    try:
        truth = measure_truth(found, bounds, interval=interval)
    except ExecutionError as error:  # not the same in each run: no markers to cut the truth by
        row["truth_problem"] = str(error)
        attached, truth = None, measure_truth(found, (), interval=interval)
    row["truth"] = {"totals": truth.totals.tolist(), "cpu_ns": truth.ended.cpu_ns}
    row["error_by_points"] = error_by_points(truth, most=20)
    for name, sample in samples.items():
        row[name]["errors"] = errors(sample, truth)
        # the truth is cut by one native run's markers; another native run has its own
        known = sample.method is Method.SIMPOINT or sample is attached
        known = known and _is_within(sample, truth)
        row[name]["coverage"] = coverage_of(sample, truth) if known else None
    row["load_after"] = os.getloadavg()[0]
    return row


def _is_within(sample: Sample, truth: Truth) -> bool:
    """Whether the truth has all chosen intervals: a run that differs each time may be shorter."""
    if sample.method is not Method.SIMPOINT:
        return True
    last = truth.fixed_vectors.shape[0] - 1
    return all(point.interval <= last for point in sample.points)


def _summary(sample: Sample) -> dict[str, Any]:
    return {
        "points": len(sample.points),
        "intervals": len(sample.phases),
        "nbytes": sample.nbytes,
        "projected": sample.projected,
        "backend": sample.backend,
        "warnings": list(sample.warnings),
        "stages": {stage.name: {"wall_ns": stage.wall_ns, "cpu_ns": stage.cpu_ns} for stage in sample.stages},
    }


def _short(row: dict[str, Any]) -> str:
    parts = [f"load {row['load_before']:.0f}-{row['load_after']:.0f}"]
    for name in FLOWS:
        flow = row[name]
        if "error" in flow:
            parts.append(f"{name}: {flow['error'][:120]}")
            continue
        wall = sum(stage["wall_ns"] for stage in flow["stages"].values()) / 1e9
        cpu = sum(stage["cpu_ns"] for stage in flow["stages"].values()) / 1e9
        off = np.multiply(100, [flow["errors"]["cycles"], flow["errors"]["cpi"]])
        parts.append(
            f"{name}: {flow['points']} points, {off[0]:+.2f} % cycles, {off[1]:+.2f} % cpi, "
            f"{wall:.1f} s wall, {cpu:.1f} s cpu, {flow['nbytes']} B"
        )
    return "\n  ".join(parts)


if __name__ == "__main__":
    main()
