"""Which steps there are, in the order of what one would miss most if time ran out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from multi_gpu.running import Step

HERE = Path(__file__).resolve().parent
PAIRS = HERE.parent / "pairs" / "conccl_mi300x.json"

COLLECTIVES = ("all_gather", "all_to_all", "reduce_scatter", "all_reduce")
SMALL = ("-b", "1K", "-e", "64M", "-f", "4")
LARGE = ("-b", "256M", "-e", "1G", "-f", "4", "-n", "10")
"""Apart and late: every element is compared, by random numbers that are made on the CPU."""

STRATEGIES = "serial,baseline,prioritized,partitioned,prioritized_partitioned,ce,ce_trimmed,chunked:4,policy"

QUIET = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
}
"""NVLink multicast off in NCCL, NVSHMEM and PyTorch; a collective that fails ends its process."""

ZERO = {"NCCL_CTA_POLICY": "2"}
"""NCCL_CTA_POLICY_ZERO: copy engines where NCCL can (nccl.h of 2.28)."""

ZERO_NOTE = (
    "asks NCCL for copy engines; it uses them for registered (symmetric) buffers only, which conccl bench"
    " does not make: read it as NCCL with that policy set, not as NCCL's copy engines"
)
ONE_GPU = "rank 0's part on one GPU, collectives as copies inside its memory (emulated): see docs/gpu.md"


def steps(folder: Path, /, *, gpus: int, device: str, dry: bool) -> list[Step]:
    """All steps; ``dry``: the same on CPU processes and in the simulator."""
    pairs = write_pairs(folder, ranks=gpus, dry=dry)
    scale = 1 if not dry else 0.5
    conccl = (sys.executable, "-m", "conccl")
    found = [
        Step(name="doctor", command=(*conccl, "doctor", "--format", "json"), limit_s=40 * scale, env=QUIET),
        *_sweep(folder, conccl, gpus=gpus, dry=dry, collectives=COLLECTIVES),
    ]
    for backend in ("gloo", "conccl") if dry else ("nccl",):
        for part in ("chunked", "tracked", "torch") if backend == "nccl" else ("chunked",):
            limit_s = 70 if part == "chunked" else 35
            found.append(_worker(folder, "fused", backend, gpus=gpus, dry=dry, limit_s=limit_s, part=part))
    for part in ("stock", "conccl", "symmetric"):
        env = ZERO if part == "symmetric" else {}
        backend = "gloo" if dry else "nccl"
        found.append(_worker(folder, "fsdp", backend, gpus=gpus, dry=dry, limit_s=45, part=part, env=env))
    measured, simulated = folder / "measured", folder / "simulated"
    common = (*conccl, "characterize", str(pairs), "--device", device, "--gpus", str(gpus))
    common = (*common, "--strategies", STRATEGIES, "--format", "json")
    found += [
        Step(
            name="characterize",
            command=(*common, "--executor", "sim" if dry else "gpu", "--output", str(measured)),
            limit_s=200 * scale,
            # The executor drives one GPU: with more in sight it would not say that it emulates.
            env=QUIET if dry else {**QUIET, "CUDA_VISIBLE_DEVICES": "0"},
            result=measured / "characterize.json",
            note="simulated" if dry else ONE_GPU,
        ),
        Step(
            name="simulated",
            command=(*common, "--output", str(simulated)),
            limit_s=120 * scale,
            env=QUIET,
            result=simulated / "characterize.json",
            note="needs no GPU",
        ),
        Step(
            name="compared",
            command=(*conccl, "compare", str(simulated), str(measured), "--unlike", "--format", "json"),
            limit_s=30 * scale,
            env=QUIET,
            reads_others=True,
            note="the simulator against what characterize measured",
        ),
        *([] if dry else _sweep(folder, conccl, gpus=gpus, dry=dry, collectives=COLLECTIVES, span=LARGE)),
        *_sweep(folder, conccl, gpus=gpus, dry=dry, collectives=("broadcast", "reduce")),
    ]
    return found


def write_pairs(folder: Path, /, *, ranks: int, dry: bool) -> Path:
    """The 30 pairs of Llama 70B and 405B sizes among this many ranks; dry: two of them, small."""
    entries = json.loads(PAIRS.read_text())["pairs"]
    for one in entries:
        one["communication"]["ranks"] = ranks
    if dry:
        entries = [entries[0], entries[-1]]
        for one in entries:
            one["compute"] = {"op": "gemm", "m": 512, "n": 512, "k": 512, "dtype": "bf16"}
            one["communication"]["nbytes"] = "1M"
            one["source"] = f"tiny, in place of: {one['source']}"
    path = folder / "pairs.json"
    path.write_text(json.dumps({"pairs": entries}, indent=1) + "\n")
    return path


def _sweep(
    folder: Path,
    conccl: tuple[str, ...],
    *,
    gpus: int,
    dry: bool,
    collectives: tuple[str, ...],
    span: tuple[str, ...] = SMALL,
) -> list[Step]:
    ways = [("nccl", ("--backend", "nccl"), {}), ("nccl-zero", ("--backend", "nccl"), ZERO)]
    ways.append(("peer", ("--backend", "conccl", "--transport", "peer"), {}))
    if dry:
        ways = [("gloo", ("--backend", "gloo"), {}), ("conccl", ("--backend", "conccl"), {})]
        collectives = collectives[:2] if "all_gather" in collectives else ()
    span = ("-b", "1K", "-e", "16K", "-f", "4", "-n", "3", "-w", "1") if dry else span
    after = "-large" if span == LARGE else ""
    found = []
    for way, options, more in ways:
        for kind in collectives:
            command = (*conccl, "bench", kind, *options, "--device", "cpu" if dry else "cuda", *span)
            env = {**QUIET, **more}
            if way.startswith("nccl"):
                env |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,COLL"}
                env["NCCL_DEBUG_FILE"] = str(folder / f"nccl-{way}-{kind}.%p.log")
            found.append(
                Step(
                    name=f"bench-{way}-{kind}{after}",
                    command=(*command, "--nproc", str(gpus), "-T", "10", "--format", "json"),
                    limit_s=30,
                    env=env,
                    logs=f"nccl-{way}-{kind}.*.log" if way.startswith("nccl") else "",
                    note=ZERO_NOTE if more else "",
                )
            )
    return found


def _worker(
    folder: Path,
    script: str,
    backend: str,
    *,
    gpus: int,
    dry: bool,
    limit_s: float,
    part: str,
    env: dict[str, str] | None = None,
) -> Step:
    name = f"{script}-{backend}-{part}"
    result = folder / f"{name}.result.json"
    options = ("--backend", backend, "--ranks", str(gpus), "--result", str(result), "--part", part)
    return Step(
        name=name,
        command=(sys.executable, str(HERE / f"{script}.py"), *options, *(("--tiny",) if dry else ())),
        limit_s=limit_s,
        env={**QUIET, "OMP_NUM_THREADS": "1", **(env or {})},
        result=result,
    )
