"""Measure on one GPU what the cost and contention models are fitted to.

    python benchmarks/measure/h200_ops.py --out OUT                       # everything, in five minutes
    python benchmarks/measure/h200_ops.py --out OUT --seconds gemm=20,c3=10   # some, with their time
    python benchmarks/measure/h200_ops.py --out OUT --device cpu --dry-run    # the logic, on few small rows

Each section runs in a process of its own that keeps every row as soon as it is measured, and is started again
after the row in which it died. `collect.py` makes the data files from what is in OUT.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from pathlib import Path

SECONDS = {"gemm": 46.0, "models": 84.0, "ops": 145.0, "c3": 42.0, "sustained": 45.0, "c3_more": 35.0}
"""Sections in the order they run, and the time of each."""
RESTARTS_AT_MOST = 6
POOL_NBYTES = {"cuda": 8 << 30, "cpu": 1 << 25}
DRY_ROWS = 60
DRY_NBYTES = 1 << 20


def main() -> int:
    """Run the sections, or one of them as a worker."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the rows")
    parser.add_argument("--seconds", default="", help="time by section: gemm=46,models=84")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--dry-run", action="store_true", help="few small rows")
    parser.add_argument("--worker", choices=tuple(SECONDS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    chosen = dict(part.split("=") for part in arguments.seconds.split(",") if part) or SECONDS
    if arguments.worker:
        return _work(arguments.worker, arguments=arguments)
    _write_header(arguments.out, device=arguments.device)
    # All import what they need at once and then wait for their turn at the GPU.
    workers = {name: _start(name, arguments=arguments) for name in SECONDS if name in chosen}
    for name in list(workers):
        _run(name, workers.pop(name), seconds=float(chosen[name]), arguments=arguments)
    return 0


def _start(name: str, *, arguments: argparse.Namespace) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        __file__,
        "--worker",
        name,
        "--out",
        str(arguments.out),
        "--device",
        arguments.device,
    ]
    command += ["--dry-run"] if arguments.dry_run else []
    return subprocess.Popen(command, stdin=subprocess.PIPE, text=True)


def _run(name: str, worker: subprocess.Popen[str], *, seconds: float, arguments: argparse.Namespace) -> None:
    end = time.monotonic() + seconds
    for _ in range(RESTARTS_AT_MOST):
        left = end - time.monotonic()
        try:
            worker.communicate(f"{left}\n", timeout=left + 20)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
        print(f"{name}: exit code {worker.returncode}, {end - time.monotonic():.0f} s left", flush=True)
        if worker.returncode == 0 or end - time.monotonic() < 3:
            return
        worker = _start(name, arguments=arguments)
    worker.kill()


def _work(name: str, *, arguments: argparse.Namespace) -> int:
    import torch  # noqa: PLC0415 - the parent needs none of this
    from rows import RowFile, measure_rows  # noqa: PLC0415

    device = arguments.device
    rows = _rows(name, dry=arguments.dry_run) if name in ("gemm", "ops") else []
    if name == "models":
        import model_runs  # noqa: PLC0415
        import transformers  # noqa: F401, PLC0415 - slow to import, so before the turn begins
    seconds = float(sys.stdin.readline())
    begin = time.monotonic()
    torch.manual_seed(0)
    file = RowFile(arguments.out / f"{name}.jsonl")
    if name in ("gemm", "ops"):
        pool = POOL_NBYTES[device]
        measure_rows(rows, file=file, device=device, seconds=seconds, pool_nbytes=pool)
    elif name == "models":
        model_runs.measure_models(file=file, device=device, seconds=seconds, small=arguments.dry_run)
    elif name == "sustained":
        _work_sustained(file, device=device, end=begin + seconds)
    else:
        _work_c3(name, file, device=device, end=begin + seconds)
    print(f"{name}: {len(file.done)} records, {time.monotonic() - begin:.0f} s", flush=True)
    return 0


def _rows(name: str, *, dry: bool) -> list:
    from gemm_rows import gemm_rows  # noqa: PLC0415
    from layer_rows import layer_rows  # noqa: PLC0415
    from pointwise_rows import pointwise_rows  # noqa: PLC0415
    from rowwise_rows import rowwise_rows  # noqa: PLC0415
    from update_rows import update_rows  # noqa: PLC0415

    sources = (gemm_rows,) if name == "gemm" else (pointwise_rows, rowwise_rows, layer_rows, update_rows)
    groups = [source() for source in sources]
    if not dry:
        return [row for group in groups for row in group]
    small = [[r for r in g if r.nbytes <= DRY_NBYTES and r.flops <= 1e8] for g in groups]
    return [row for group in small for row in group[:: max(1, len(group) // DRY_ROWS)]]


def _work_sustained(file, *, device: str, end: float) -> None:
    if device != "cuda":
        print("sustained needs a GPU", flush=True)
        return
    from pool import Pool  # noqa: PLC0415
    from sustained import measure_sustained  # noqa: PLC0415

    pool = Pool(device=device, nbytes=POOL_NBYTES[device])
    measure_sustained(file=file, pool=pool, seconds=end - time.monotonic())


def _work_c3(name: str, file, *, device: str, end: float) -> None:
    if device != "cuda":
        print("c3 needs a GPU", flush=True)
        return
    from c3_runs import Bench, measure_more_pairs, measure_pairs  # noqa: PLC0415
    from facts import facts  # noqa: PLC0415
    from pool import Pool  # noqa: PLC0415

    pool = Pool(device=device, nbytes=POOL_NBYTES[device])
    bench = Bench(file=file, pool=pool)
    if name == "c3_more":
        measure_more_pairs(bench, past=lambda: time.monotonic() > end)
        return
    measure_pairs(bench, past=lambda: time.monotonic() > end - 10)
    for fact, measure in facts(pool).items():
        if time.monotonic() < end:
            bench.keep(
                f"fact {fact}",
                lambda measure=measure, fact=fact: {"section": "fact", "name": fact, **measure()},
            )


def _write_header(out: Path, *, device: str) -> None:
    """What it was measured on and with."""
    code = """
import json, torch
d = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
if torch.cuda.is_available():
    p = torch.cuda.get_device_properties(0)
    d |= {"gpu": p.name, "sms": p.multi_processor_count, "l2_nbytes": p.L2_cache_size}
    d |= {"memory_nbytes": p.total_memory}
    import triton
    d |= {"triton": triton.__version__}
print(json.dumps(d))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    header = json.loads(found.stdout.splitlines()[-1]) | {
        "device": device,
        "python": platform.python_version(),
    }
    header |= {
        "host_cpu": _cpu(),
        "date": time.strftime("%Y-%m-%d"),
        "command": "python " + " ".join(sys.argv),
    }
    query = "driver_version,power.limit,clocks.max.sm,clocks.max.memory,clocks.sm,temperature.gpu"
    try:
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        header["nvidia_smi"] = dict(zip(query.split(","), answer.strip().split(", "), strict=True))
    except (OSError, subprocess.CalledProcessError, ValueError):
        header["nvidia_smi"] = None
    (out / "header.json").write_text(json.dumps(header, indent=1))


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())
