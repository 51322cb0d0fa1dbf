"""Fused operators in chunks beside serial ones, on real processes of one host.

    python benchmarks/fused_on_cpu.py --ranks 2 --output benchmarks/2026-12-01-fused-on-cpu.json

Ways take turns within every repeat, and each is compared with serial of the same repeat. Every result is
checked against float64 in the same run. The tables that it writes are what `use_measurements` takes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import conccl
from conccl.core.kinds import DType
from conccl.strategies.ways import way as way_of
from conccl.tune.fused_problem import Call
from conccl.tune.fused_table import Row, Table, write_table

SHAPES = (
    ("short K", 2048, 1024, 128),
    ("equal", 2048, 1024, 1024),
    ("long K", 1024, 512, 4096),
    ("small M", 64, 1024, 1024),
    ("odd", 1001, 511, 777),
)
WAYS = (
    "serial",
    "chunked:2",
    "chunked:4",
    "chunked:8",
    "chunked:4:shrinking",
    "chunked:1:staggered",
    "chunked:2:staggered",
)
CALLS = ("gemm_reduce_scatter", "gemm_all_reduce", "gemm_all_to_all", "all_gather_gemm")


def one(call: str, x: torch.Tensor, weight: torch.Tensor, way: str, ranks: int) -> torch.Tensor:
    given = x
    more = {}
    if call == "all_gather_gemm":
        given = x.chunk(ranks)[dist.get_rank()]
        more["rows"] = len(x)
    return getattr(conccl, call)(given, weight, way=way, **more)


def right(call: str, xs: list[torch.Tensor], weights: list[torch.Tensor], rank: int) -> torch.Tensor:
    products = [x.double() @ w.double().t() for x, w in zip(xs, weights, strict=True)]
    whole = sum(products)
    if call == "gemm_reduce_scatter":
        return whole.chunk(len(xs))[rank]
    if call == "gemm_all_reduce":
        return whole
    if call == "gemm_all_to_all":
        return torch.cat([one.chunk(len(xs))[rank] for one in products])
    return xs[0].double() @ weights[rank].double().t()


def rank_main(rank: int, ranks: int, backend: str, repeats: int, folder: str) -> None:
    torch.set_num_threads(1)
    conccl.register_backend()
    dist.init_process_group(backend, init_method=f"file://{folder}/{backend}", rank=rank, world_size=ranks)
    found = []
    for name, m, n, k in SHAPES:
        source = torch.Generator().manual_seed(m + n + k)
        xs = [torch.randn(m, k, generator=source) for _ in range(ranks)]
        weights = [torch.randn(n, k, generator=source) for _ in range(ranks)]
        for call in CALLS:
            x = xs[0] if call == "all_gather_gemm" else xs[rank]
            ways = [w for w in WAYS if not (call == "gemm_all_reduce" and "staggered" in w)]
            wanted = right(call, xs, weights, rank)
            times: dict[str, list[float]] = {one_way: [] for one_way in ways}
            for repeat in range(repeats + 2):
                for one_way in ways[repeat % len(ways) :] + ways[: repeat % len(ways)]:
                    dist.barrier()
                    began = time.perf_counter()
                    out = one(call, x, weights[rank], one_way, ranks)
                    dist.barrier()
                    if repeat >= 2:
                        times[one_way].append(time.perf_counter() - began)
                    error = (out.double() - wanted).abs().max().item() / wanted.abs().max().item()
                    assert error < 1e-5, (call, one_way, error)
            gemm, moved = alone(call, x, weights[rank], ranks, repeats)
            found.append(
                {
                    "shape": name,
                    "call": call,
                    "m": m,
                    "n": n,
                    "k": k,
                    "s": times,
                    "gemm_s": gemm,
                    "transfer_s": moved,
                }
            )
    if rank == 0:
        Path(folder, f"{backend}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def alone(call: str, x: torch.Tensor, weight: torch.Tensor, ranks: int, repeats: int) -> tuple[float, float]:
    """Medians of the GEMM and of the collective, one without the other."""
    computing, moving = [], []
    made = torch.nn.functional.linear(x, weight)
    for _ in range(repeats):
        dist.barrier()
        began = time.perf_counter()
        torch.nn.functional.linear(x, weight)
        dist.barrier()
        computing.append(time.perf_counter() - began)
        began = time.perf_counter()
        if call == "all_gather_gemm":
            shard = x[: -(-len(x) // ranks)].contiguous()
            dist.all_gather([torch.empty_like(shard) for _ in range(ranks)], shard)
        elif call == "gemm_all_reduce":
            dist.all_reduce(made)
        elif call == "gemm_all_to_all":
            parts = [len(one) for one in made.chunk(ranks)]
            mine = parts[dist.get_rank()]
            dist.all_to_all_single(made.new_empty(ranks * mine, made.shape[1]), made, [mine] * ranks, parts)
        else:
            rows = -(-len(made) // ranks) * ranks
            padded = torch.nn.functional.pad(made, (0, 0, 0, rows - len(made)))
            dist.reduce_scatter(torch.empty_like(padded.chunk(ranks)[0]), list(padded.chunk(ranks)))
        dist.barrier()
        moving.append(time.perf_counter() - began)
    return statistics.median(computing), statistics.median(moving)


def report(backend: str, rows: list[dict]) -> None:
    """Speedup of every way over serial, the median of pairs of the same repeat: no best is picked."""
    chunked = [way for way in WAYS if way != "serial"]
    print(f"\n### {backend}\n")
    print("| shape | call | GEMM ms | transfer ms | serial ms | " + " | ".join(chunked) + " |")
    print("|---" * (5 + len(chunked)) + "|")
    for row in rows:
        serial = row["s"]["serial"]
        cells = []
        for way in chunked:
            times = row["s"].get(way)
            pairs = zip(serial, times, strict=True) if times else ()
            cells.append(f"{statistics.median(a / b for a, b in pairs):.2f}" if times else "")
        print(
            f"| {row['shape']}, {row['m']}x{row['n']}x{row['k']} | {row['call']} | {row['gemm_s'] * 1e3:.2f}"
            f" | {row['transfer_s'] * 1e3:.2f} | {statistics.median(serial) * 1e3:.2f} | "
            + " | ".join(cells)
            + " |"
        )


def table(rows: list[dict], ranks: int) -> Table:
    return Table(
        device="cpu",
        rows=tuple(
            Row(
                call=Call(row["call"]),
                m=row["m"],
                n=row["n"],
                k=row["k"],
                world=ranks,
                dtype=DType.FP32,
                way=way_of(way),
                ns=round(statistics.median(times) * 1e9),
            )
            for row in rows
            for way, times in row["s"].items()
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    host = f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}"
    print(f"{host}; {arguments.ranks} processes of one thread each")
    everything = {}
    for backend in ("conccl", "gloo"):
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(
                rank_main,
                args=(arguments.ranks, backend, arguments.repeats, folder),
                nprocs=arguments.ranks,
                join=True,
            )
            rows = json.loads(Path(folder, f"{backend}.json").read_text())
        report(backend, rows)
        everything[backend] = rows
        write_table(arguments.output.with_suffix(f".{backend}-table.json"), table(rows, arguments.ranks))
    arguments.output.write_text(json.dumps(everything))


if __name__ == "__main__":
    main()
