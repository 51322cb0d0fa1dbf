"""A fiftieth of the kernels for all of them: every trace and every measured model that is there.

    python benchmarks/sample_kernels.py TRACES [MODELS.json.gz ...]

TRACES: a folder of profiler traces. MODELS: measured models with a time for every kernel. Prints a row each:
how far off the kernel time of the whole is from a fiftieth of the kernels, chosen by `conccl sample kernels`
and otherwise (median of 200 draws where it draws); how often the 95 % interval covers when the kernel of each
stratum is drawn at random, as the interval supposes; how far off kernels chosen on one step are on the next;
and how many kernels an interval of 1 % takes.
"""

from __future__ import annotations

import gzip
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from conccl.core.errors import ConcclError
from conccl.core.timeline import Activity
from conccl.sampling.kernels import sample_kernels, stratified
from conccl.traces.kineto import read_trace
from conccl.traces.sources import find_traces

FEWER = 50
DRAWS = 2000
CHOSEN = ("run", "kernels", "chosen", "error", "95 % interval", "covered", "next step", "for 1 %")
OTHERS = ("random", "first", "every 50th")

Times = npt.NDArray[np.int64]


def main() -> None:
    """One row a run."""
    head = CHOSEN + OTHERS
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for path in sys.argv[2:]:
        for label, names, times in measured(Path(path)):
            row(label, names, times)
    for label, names, times, steps in traced(Path(sys.argv[1])):
        row(label, names, times, steps)


def measured(path: Path) -> Iterator[tuple[str, list[str], Times]]:
    """Models with [name, us] of every kernel."""
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    rows = document["rows"] if "rows" in document else [{"name": k, **v} for k, v in document.items()]
    for entry in rows:
        kernels = entry.get("kernels")
        if isinstance(kernels, list) and kernels and isinstance(kernels[0], list):
            label = " ".join([entry.get("name") or entry.get("model"), *entry.get("arguments", ())])
            yield label, [name for name, *_ in kernels], np.array([round(1000 * k[1]) for k in kernels])


def traced(folder: Path) -> Iterator[tuple[str, list[str], Times, npt.NDArray[np.int64]]]:
    """Every rank of every trace below a folder."""
    for file in [file for path in sorted(folder.rglob("*.gz")) for file in find_traces([path]).files]:
        try:
            traces = read_trace(file)
        except ConcclError as error:
            print(f"not read: {error}", file=sys.stderr)
            continue
        for trace in traces:
            rows = trace.timeline.where(trace.timeline.activity != Activity.COPY)
            if not len(rows):
                continue
            launches = zip(rows.name_id, rows.columns["variant"], strict=True)
            names = [f"{rows.names[name]} #{variant}" for name, variant in launches]
            where = Path(file.member or file.path).name
            yield (
                f"{where}, rank {trace.rank}",
                names,
                np.asarray(rows.duration_ns),
                rows.columns["step"].astype(np.int64),
            )


def row(label: str, names: list[str], times: Times, steps: npt.NDArray[np.int64] | None = None) -> None:
    """Print the row of one run."""
    most = max(1, len(names) // FEWER)
    sample = sample_kernels(names, times, most=most, error_percent=1e-6)
    random = np.random.default_rng(0)
    others = [
        np.median([scaled(times, random.choice(len(times), most, replace=False)) for _ in range(200)]),
        scaled(times, np.arange(most)),
        scaled(times, np.arange(most) * len(times) // most),
    ]
    following = next_step(names, times, steps)
    print(
        f"| {label} | {len(names)} | {len(sample.points)} | **{sample.error_percent:.3f} %**"
        f" | {sample.interval_percent:.1f} % | {covered(names, times, most, random):.1%}"
        f" | {'-' if following is None else f'{following:.2f} %'}"
        f" | {len(stratified(names, times, error_percent=1.0))} | "
        + " | ".join(f"{error:.1f} %" for error in others)
        + " |",
        flush=True,
    )


def scaled(times: Times, chosen: npt.NDArray[np.intp]) -> float:
    """Error in percent of the chosen ones' mean for all."""
    return 100 * abs(times[chosen].mean() * len(times) / times.sum() - 1)


def covered(names: list[str], times: Times, most: int, random: np.random.Generator) -> float:
    """How often the truth lies in the interval when each stratum's kernel is drawn at random."""
    strata = stratified(names, times, most=most, error_percent=1e-6)
    total = np.zeros(DRAWS)
    for stratum in strata:
        total += len(stratum) * times[stratum][random.integers(0, len(stratum), DRAWS)]
    sample = sample_kernels(names, times, most=most, error_percent=1e-6)
    return float((np.abs(total / times.sum() - 1) * 100 <= sample.interval_percent + 1e-9).mean())


def next_step(names: list[str], times: Times, steps: npt.NDArray[np.int64] | None) -> float | None:
    """Chosen on one step, error on the next one with the same kernels: what the choice is for."""
    if steps is None:
        return None
    by_step = [np.flatnonzero(steps == step) for step in np.unique(steps[steps >= 0])]
    for one, other in itertools.pairwise(by_step):
        here, there = ([names[i] for i in each] for each in (one, other))
        if here == there and len(here) >= FEWER:
            sample = sample_kernels(here, times[one], most=max(1, len(here) // FEWER), error_percent=1e-6)
            projected = sample.scaled_ns([int(times[other][point.index]) for point in sample.points])
            return 100 * abs(projected / times[other].sum() - 1)
    return None


if __name__ == "__main__":
    main()
