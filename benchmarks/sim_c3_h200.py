"""Compare the simulator with measured pairs of computation and transfer on one H200.

    python benchmarks/sim_c3_h200.py [--data benchmarks/data/h200-sxm/2026-11-30/c3.json.gz]

Prints the error of concurrent time and of the fraction of ideal, for the computations whose pairs the
contention constants are fitted to (``--fit``) and for the others, by kind of transfer, and the GEMM slowdown
against SMs taken. The form of the model was chosen with all of these pairs in view, so that the others are no
clean test of it. ``--isolated measured`` scales each computation to its measured isolated time, so that what
is left is the error of the contention model; ``predicted`` (the default) leaves the cost models as they are.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import gzip
import itertools
import json
import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from conccl.core.kinds import Memory, RowwiseKind
from conccl.core.metrics import Overlap
from conccl.core.ops import Compute, Copy, Elementwise, Gemm, Rowwise
from conccl.core.plan import Dependency, Engine, Plan, Side, Task
from conccl.core.timeline import Timeline
from conccl.costs.catalogue import load_device, system_of, with_fields
from conccl.costs.kernel import CtaGroup, CtaWork, Footprint, KernelCost
from conccl.costs.kernels import kernels_of
from conccl.sim.executor import SimExecutor

DATA = Path(__file__).parent / "data/h200-sxm/2026-11-30/c3.json.gz"

FITTED = (("add", None), ("gemm", 16), ("gemm", 4096), ("gemm", 8192))
"""Operation and m of the computations whose pairs the constants of `GRID` are fitted to."""

GRID = {
    "contention.register_share": (0.55, 0.68, 0.85),
    "contention.latency": (0.2, 0.35, 0.5),
    "contention.blocking": (0.22, 0.32, 0.45),
}

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One pair, simulated beside measured. Times in us."""

    row: Row
    compute: float
    communication: float
    concurrent: float

    @property
    def time_error(self) -> float:
        """Relative, of concurrent time."""
        return self.concurrent / self.row["concurrent_us"] - 1

    @property
    def fraction_error(self) -> float | None:
        """Of the fraction of ideal; None where it has no meaning."""
        measured = _fraction(
            self.row["compute_alone_us"], self.row["communication_alone_us"], self.row["concurrent_us"]
        )
        simulated = _fraction(self.compute, self.communication, self.concurrent)
        return None if measured is None or simulated is None else simulated - measured


def _fraction(compute: float, communication: float, concurrent: float) -> float | None:
    return Overlap(
        compute_ns=round(compute * 1e3),
        communication_ns=round(communication * 1e3),
        concurrent_ns=round(concurrent * 1e3),
    ).fraction_of_ideal


def compute_op(key: Row) -> Compute:
    if key["op"] == "gemm":
        return Gemm(m=key["m"], n=key["n"], k=key["k"])
    if key["op"] == "add":
        nbytes = 2 * key["numel"]
        return Elementwise(name="add", read_nbytes=2 * nbytes, written_nbytes=nbytes, numel=key["numel"])
    return Rowwise(kind=RowwiseKind.RMS_NORM, rows=key["rows"], cols=key["cols"])


class Replay:
    """Runs what was measured through the simulator."""

    def __init__(self, *, scaled: bool, constants: dict[str, float] | None = None) -> None:
        self._scaled = scaled
        self._scale: dict[Compute, float] = {}
        fields = {f"calibration.{name}": value for name, value in (constants or {}).items()}
        system = system_of(with_fields(load_device("h200-sxm"), fields), gpus=1)
        self._executor = SimExecutor(system=system, kernels_of=self._kernels)

    def _kernels(self, op: Any, device: Any) -> tuple[KernelCost, ...]:
        if isinstance(op, Elementwise) and op.name in ("wait", "occupy"):
            return (_holding(op, exclusive=op.name == "occupy", device=device),)
        factor = self._scale.get(op, 1.0)
        return tuple(_slowed(kernel, factor) for kernel in kernels_of(op, device))

    def compared(self, row: Row) -> Compared:
        """A measured pair, simulated."""
        op = compute_op(row["compute"])
        self._scale.pop(op, None)
        if self._scaled:
            alone = self._executor.run(_plan(row, communication=False)).span_ns
            self._scale[op] = row["compute_alone_us"] * 1e3 / alone
        return Compared(
            row=row,
            compute=self._executor.run(_plan(row, communication=False)).span_ns / 1e3,
            communication=self._executor.run(_plan(row, compute=False)).span_ns / 1e3,
            concurrent=_span_us(self._executor.run(_plan(row))),
        )

    def slowdown(self, row: Row) -> float:
        """Of a computation, with so many SMs taken by kernels that do nothing else."""
        self._scale.clear()
        calls = _calls(row["compute"])
        alone = self._executor.run(Plan(tasks=calls)).span_ns
        sms = row["sms_taken"]
        op = Elementwise(name="occupy", read_nbytes=0, written_nbytes=0, flops=10**9, numel=sms)
        occupied = Plan(tasks=(Task(id="occupy", op=op, lane="other"), *calls))
        rows = self._executor.run(occupied)
        return max(span.end_ns for span in rows if span.name != "occupy") / alone


def _holding(op: Elementwise, *, exclusive: bool, device: Any) -> KernelCost:
    """CTAs that only pass time; exclusive ones leave no room on their SM."""
    footprint = Footprint(threads=1)
    if exclusive:
        footprint = Footprint(threads=512, shared_memory_nbytes=device.shared_memory_nbytes)
    group = CtaGroup(count=max(1, op.numel), work=CtaWork(latency_ns=op.flops))
    return KernelCost(
        name=op.name,
        groups=(group,),
        footprint=footprint,
        ctas_per_sm=1,
        fixed_ns=0,
        isolated_ns=op.flops,
        uncertainty=0,
    )


def _slowed(kernel: KernelCost, factor: float) -> KernelCost:
    groups = tuple(
        dataclasses.replace(
            group,
            work=dataclasses.replace(
                group.work,
                latency_ns=group.work.latency_ns * factor,
                least_ns=group.work.least_ns * factor,
                sm_ns=group.work.sm_ns * factor,
                hbm_share=group.work.hbm_share / factor,
            ),
        )
        for group in kernel.groups
    )
    return dataclasses.replace(
        kernel,
        groups=groups,
        fixed_ns=kernel.fixed_ns * factor,
        isolated_ns=max(1, round(kernel.isolated_ns * factor)),
    )


def _calls(key: Row, after: tuple[Dependency, ...] = ()) -> tuple[Task, ...]:
    op = compute_op(key)
    return tuple(
        Task(id=f"compute.{i}", op=op, lane="compute", after=after if i == 0 else ())
        for i in range(key["count"])
    )


def _transfer(key: Row, *, priority: int, after: tuple[Dependency, ...]) -> tuple[Task, ...]:
    ways = {"both": ("in", "out")}.get(key.get("direction", ""), (key.get("direction"),))
    engine = Engine.COPY_ENGINE if key["kind"] == "copy_engine" else Engine.SM
    tasks = []
    for way in ways:
        ends = {"source": Memory.DEVICE, "destination": Memory.DEVICE}
        if way is not None:
            ends["source" if way == "in" else "destination"] = Memory.HOST
        tasks.append(
            Task(
                id=f"transfer.{way}",
                op=Copy(nbytes=key["nbytes"] // len(ways), **ends),
                lane=f"transfer {way}",
                side=Side.COMMUNICATION,
                engine=engine,
                priority=priority,
                sms=key.get("ctas"),
                ctas_per_sm=1 if engine is Engine.SM else None,
                after=after,
            )
        )
    return tuple(tasks)


def _plan(row: Row, *, compute: bool = True, communication: bool = True) -> Plan:
    """Both sides at once, save that the second one starts so much later."""
    late = (Dependency(task="wait"),) if compute and communication else ()
    transfer_last = row["order"] == "after"
    calls = _calls(row["compute"], () if transfer_last else late) if compute else ()
    priority = -1 if row["priority"] == "high" else 0
    transfer = _transfer(row["communication"], priority=priority, after=late if transfer_last else ())
    sides = [calls, transfer if communication else ()]
    wait = Elementwise(name="wait", read_nbytes=0, written_nbytes=0, flops=round(row["offset_us"] * 1e3))
    waiting = (Task(id="wait", op=wait, lane="wait"),) if late else ()
    return Plan(tasks=(*waiting, *(t for side in (sides if transfer_last else sides[::-1]) for t in side)))


def _span_us(timeline: Timeline) -> float:
    rows = [span for span in timeline if span.name != "wait"]
    return (max(span.end_ns for span in rows) - min(span.start_ns for span in rows)) / 1e3


def _is_fitted(row: Row) -> bool:
    key = row["compute"]
    return (key["op"], key.get("m")) in FITTED


def table(found: Iterable[Compared], key: Callable[[Row], str]) -> None:
    groups: dict[str, list[Compared]] = collections.defaultdict(list)
    for one in found:
        groups[key(one.row)].append(one)
    print(f"| {'':44} | pairs | time: median | mean | bias | worst | fraction: median | mean |")
    print("|---|---|---|---|---|---|---|---|")
    for name, members in sorted(groups.items()):
        times = [one.time_error for one in members]
        size = [abs(error) for error in times]
        fractions = [abs(error) for one in members if (error := one.fraction_error) is not None]
        print(
            f"| {name:44} | {len(members)} | {statistics.median(size):.1%} | {statistics.fmean(size):.1%} |"
            f" {statistics.fmean(times):+.1%} | {max(size):.0%} | {statistics.median(fractions):.3f} |"
            f" {statistics.fmean(fractions):.3f} |"
        )
    print()


def fit(rows: list[Row]) -> None:
    """Print the mean error on the fitted computations for every point of the grid, the best first."""
    pairs = [row for row in rows if row["section"] == "pair" and _is_fitted(row)]
    scores = []
    for values in itertools.product(*GRID.values()):
        constants = dict(zip(GRID, values, strict=True))
        replay = Replay(scaled=True, constants=constants)
        scores.append((statistics.fmean(abs(replay.compared(row).time_error) for row in pairs), constants))
    for error, constants in sorted(scores, key=lambda score: score[0]):
        print(f"{error:.3%}", constants, flush=True)


SPLITS: dict[str, Callable[[Row], bool]] = {
    "computation: GEMMs of few rows, and norms | large GEMMs, and add": lambda row: (
        row["compute"]["op"] == "rms_norm" or row["compute"].get("m", 1 << 20) < 1024
    ),
    "computation: every other one": _is_fitted,
    "transfer: over the host link | within HBM": lambda row: row["communication"]["kind"] != "hbm_copy",
    "transfer: up to 8 SMs | more SMs, and copy engines": lambda row: (
        row["communication"].get("ctas", 1 << 20) <= 8
    ),
}
"""Ways to cut the pairs in two: what is fitted on one half is reported on the other, both ways round."""


def split(rows: list[Row]) -> None:
    """For each way to cut: the grid point that is best on one half, and its errors on both."""
    pairs = [row for row in rows if row["section"] == "pair"]
    points = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    found = []
    for number, constants in enumerate(points, start=1):
        replay = Replay(scaled=True, constants=constants)
        found.append([replay.compared(row) for row in pairs])
        print(f"grid point {number} of {len(points)}", file=sys.stderr, flush=True)
    print("| cut | fitted on | register_share, latency, blocking | there: median | mean | fraction |", end="")
    print(" on the others: median | mean | fraction |")
    print("|---" * 9 + "|")
    for cut, belongs in SPLITS.items():
        for half in (True, False):
            own = [index for index, row in enumerate(pairs) if belongs(row) is half]
            others = [index for index, row in enumerate(pairs) if belongs(row) is not half]
            best = min(range(len(points)), key=lambda point: _mean_error(found[point], own))
            what, _, ways = cut.partition(": ")
            name = (
                ways.split(" | ")[0 if half else -1]
                if " | " in ways
                else ways + ("" if half else ", the others")
            )
            values = ", ".join(f"{value:g}" for value in points[best].values())
            print(f"| {what} | {name} ({len(own)}) | {values} |", end="")
            for part in (own, others):
                print(f" {_summary([found[best][index] for index in part])} |", end="")
            print()
    shipped = Replay(scaled=True)
    print(f"\nas shipped, all {len(pairs)}: {_summary([shipped.compared(row) for row in pairs])}")


def _mean_error(found: list[Compared], indices: list[int]) -> float:
    return statistics.fmean(abs(found[index].time_error) for index in indices)


def _summary(found: list[Compared]) -> str:
    size = [abs(one.time_error) for one in found]
    fractions = [abs(error) for one in found if (error := one.fraction_error) is not None]
    return (
        f"{statistics.median(size):.1%} | {statistics.fmean(size):.1%} | {statistics.median(fractions):.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--isolated", choices=("predicted", "measured"), default="predicted")
    parser.add_argument("--fit", action="store_true", help="search the grid of constants, then stop")
    parser.add_argument(
        "--split", action="store_true", help="fit on one half, report on the other, then stop"
    )
    arguments = parser.parse_args()
    rows = json.loads(gzip.decompress(arguments.data.read_bytes()))["rows"]
    if arguments.fit:
        fit(rows)
        return
    if arguments.split:
        split(rows)
        return
    replay = Replay(scaled=arguments.isolated == "measured")
    found = [replay.compared(row) for row in rows if row["section"] == "pair"]
    table(found, lambda row: "constants fitted to" if _is_fitted(row) else "constants not fitted to")
    unseen = [one for one in found if not _is_fitted(one.row)]
    table(unseen, lambda row: _named(row["compute"]))
    table(unseen, lambda row: f"{row['communication']['kind']} {row['communication'].get('ctas', '')}")
    table(unseen, lambda row: f"transfer {row['order']}, priority {row['priority']}")
    print("| computation | SMs taken | measured | simulated |\n|---|---|---|---|")
    for row in rows:
        if row["section"] == "occupied" and row["sms_taken"] <= 64:
            measured = row["compute_us"] / row["compute_alone_us"]
            simulated = replay.slowdown(row)
            print(f"| {_named(row['compute'])} | {row['sms_taken']} | {measured:.2f} | {simulated:.2f} |")


def _named(key: Row) -> str:
    sizes = "x".join(str(key[name]) for name in ("m", "n", "k", "numel", "rows", "cols") if name in key)
    return f"{key['op']} {sizes}"


if __name__ == "__main__":
    main()
