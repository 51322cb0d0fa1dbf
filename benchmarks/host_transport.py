"""The backend conccl against gloo, on CPU tensors of one host, in the same processes and the same run.

Each round times one call of either backend, in an order drawn at random and the same on all ranks, after a
barrier of its own; the time of a call is the longest over the ranks. The ratio of a cell is the median of the
rounds' ratios, with its quartiles. Processor time is the sum over the ranks, all threads (median): on a busy
machine it says more than the clock. Every element is checked in every round of both
backends. A cell ends after its rounds or
after `CELL_S` seconds, so that 2 and 4 ranks together take less than six minutes on a busy machine too.

    python benchmarks/host_transport.py --json benchmarks/2026-12-01-host-transport.json.gz
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import conccl
from conccl.core.kinds import CollectiveKind
from conccl.core.metrics import busbw

KINDS = ("all_gather", "all_to_all", "reduce_scatter", "all_reduce")
SIZES = {8: 400, 4096: 200, 1 << 20: 100, 4 << 20: 40, 16 << 20: 20}
"""Bytes as nccl-tests counts them -> rounds at most."""
CELL_S = 7.0
"""Seconds after which a cell is given no more rounds."""
WARM_UP = 5
AT_A_TIME = 10
"""Rounds between looks at the clock, which is rank 0's."""


def tensors(kind, nbytes, count, rank):
    numel = max(count, nbytes // 4 // count * count)
    share = numel // count
    given = torch.full((share if kind == "all_gather" else numel,), float(rank + 1))
    out = torch.zeros(share if kind == "reduce_scatter" else numel)
    return given, out


def call(kind, given, out, group):
    if kind == "all_gather":
        dist.all_gather_into_tensor(out, given, group=group)
    elif kind == "all_to_all":
        dist.all_to_all_single(out, given, group=group)
    elif kind == "reduce_scatter":
        dist.reduce_scatter_tensor(out, given, group=group)
    else:
        dist.all_reduce(out, group=group)


def is_right(kind, out, count):
    if kind in ("all_gather", "all_to_all"):
        blocks = out.view(count, -1)
        return all(bool((blocks[one] == one + 1).all()) for one in range(count))
    return bool((out == sum(range(1, count + 1))).all())


def is_over(began, number):
    """Whether rank 0 finds that a cell has taken long enough."""
    told = torch.tensor([int(number > WARM_UP and time.monotonic() - began > CELL_S)])
    dist.broadcast(told, 0)
    return bool(told)


def measure(rank, count, folder, out_path):
    warnings.simplefilter("ignore")  # PyTorch 2.13 has new names for these calls, 2.11 has not
    torch.set_num_threads(1)
    conccl.register_backend()
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
    groups = {"gloo": None, "conccl": dist.new_group(backend="conccl")}
    order = random.Random(0)
    rows = []
    for nbytes, rounds in SIZES.items():
        for kind in KINDS:
            samples = {name: [] for name in groups}
            worked = {name: [] for name in groups}
            right = dict.fromkeys(groups, True)
            given, out = tensors(kind, nbytes, count, rank)
            began = time.monotonic()
            for number in range(rounds + WARM_UP):
                if number % AT_A_TIME == 0 and is_over(began, number):
                    break
                names = list(groups)
                order.shuffle(names)
                for name in names:
                    out.copy_(given) if kind == "all_reduce" else out.zero_()
                    dist.barrier(group=groups[name])
                    busy, begin = time.process_time(), time.perf_counter()
                    call(kind, given, out, groups[name])
                    took, busy = time.perf_counter() - begin, time.process_time() - busy
                    right[name] &= is_right(kind, out, count)
                    if number >= WARM_UP:
                        samples[name].append(took)
                        worked[name].append(busy)
            longest = {}
            for name, own in samples.items():
                told = torch.tensor(own, dtype=torch.float64)
                dist.all_reduce(told, dist.ReduceOp.MAX)
                longest[name] = told.tolist()
            total = {}
            for name, own in worked.items():
                told = torch.tensor(own, dtype=torch.float64)
                dist.all_reduce(told)
                total[name] = told.tolist()
            ok = torch.tensor([int(right[name]) for name in groups])
            dist.all_reduce(ok, dist.ReduceOp.MIN)
            rows.append(
                {
                    "kind": kind,
                    "nbytes": given.nbytes * count if kind == "all_gather" else given.nbytes,
                    "right": dict(zip(groups, map(bool, ok.tolist()), strict=True)),
                    "seconds": longest,
                    "processor_seconds": total,
                }
            )
    if rank == 0:
        Path(out_path).write_text(json.dumps(rows))
    dist.destroy_process_group()


def quartiles(values):
    return statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3


def table(rows, count):
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"# {count} ranks, {cores} cores, load {load:.1f}, torch {torch.__version__}\n")
    columns = "conccl us | gloo us | conccl busbw GB/s | gloo busbw GB/s | gloo / conccl | quartiles"
    columns += " | CPU us conccl | CPU us gloo"
    print(f"| collective | bytes | rounds | {columns} | right |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        seconds = row["seconds"]
        median = {name: statistics.median(own) for name, own in seconds.items()}
        bus = {
            name: busbw(kind=CollectiveKind(row["kind"]), nbytes=row["nbytes"], ranks=count, time_ns=t * 1e9)
            / 1e9
            for name, t in median.items()
        }
        ratios = [theirs / ours for theirs, ours in zip(seconds["gloo"], seconds["conccl"], strict=True)]
        low, middle, high = quartiles(ratios)
        cpu = {name: statistics.median(own) * 1e6 for name, own in row["processor_seconds"].items()}
        print(
            f"| {row['kind']} | {row['nbytes']} | {len(ratios)} | {median['conccl'] * 1e6:.0f}"
            f" | {median['gloo'] * 1e6:.0f} | {bus['conccl']:.2f} | {bus['gloo']:.2f}"
            f" | {middle:.2f} | {low:.2f} to {high:.2f} | {cpu['conccl']:.0f} | {cpu['gloo']:.0f}"
            f" | {'yes' if all(row['right'].values()) else 'NO'} |"
        )
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = {}
    for count in given.ranks:
        with tempfile.TemporaryDirectory() as folder:
            out = f"{folder}/rows.json"
            mp.spawn(measure, (count, folder, out), count)
            found[count] = json.loads(Path(out).read_text())
        table(found[count], count)
    if given.json:
        given.json.write_bytes(gzip.compress(json.dumps({"ranks": found}).encode(), mtime=0))


if __name__ == "__main__":
    main()
