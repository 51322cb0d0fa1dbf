"""Simulated iterations beside published ones: Megatron-LM on A100s (arXiv:2205.05198, table 5).

    python benchmarks/published_iterations.py

The same models, degrees and batches; nothing in the simulator was fitted to them.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from conccl.bench.iteration import simulate_iteration
from conccl.costs.catalogue import load_device, system_of, under_load
from conccl.sim.executor import SimExecutor
from conccl.workloads.layers import Batch
from conccl.workloads.models import Transformer, model
from conccl.workloads.parallel import Parallelism
from conccl.workloads.steps import AttentionKernels, Recompute, Workload

GPT3 = dataclasses.replace(model("gpt3-175b"), vocab=51200)


def scaled(name: str, *, layers: int, hidden: int, heads: int) -> Transformer:
    """GPT-3 with other dimensions (table 3 of the paper)."""
    return dataclasses.replace(
        GPT3,
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=4 * hidden,
    )


RUNS = [
    # model, pipeline stages, interleaving, sequences of a micro-batch, micro-batches, full, selective
    (scaled("22B", layers=48, hidden=6144, heads=64), 1, 1, 4, 1, 1.42, 1.10),
    (GPT3, 8, 3, 1, 64, 18.13, 13.75),
    (model("mt-nlg-530b"), 35, 3, 1, 280, 49.05, 37.83),
    (scaled("1T", layers=128, hidden=25600, heads=160), 64, 1, 1, 512, 94.42, 71.49),
]


def main() -> None:
    """Print the table of the report."""
    device = under_load(load_device("a100-sxm"))
    print("| model | GPUs | recomputation | published s | simulated s | error |\n|---|---|---|---|---|---|")
    errors = []
    for dims, stages, interleaving, sequences, microbatches, full, selective in RUNS:
        for recompute, published in ((Recompute.FULL, full), (Recompute.ATTENTION, selective)):
            parallelism = Parallelism(
                tp=8,
                pp=stages,
                microbatches=microbatches,
                interleaving=interleaving,
                sequence_parallel=recompute is Recompute.ATTENTION,
            )
            work = Workload(
                model=dims,
                parallelism=parallelism,
                batch=Batch(sequences=sequences, length=2048),
                recompute=recompute,
                attention=AttentionKernels.UNFUSED,
            )
            executor = SimExecutor(system=system_of(device, gpus=parallelism.gpus))
            seconds = simulate_iteration(work, executor=executor, device=device).iteration_ns / 1e9
            errors.append(100 * (seconds / published - 1))
            print(
                f"| {dims.name} | {parallelism.gpus} | {recompute} | {published} | {seconds:.2f} |"
                f" {errors[-1]:+.1f} % |"
            )
    print(f"\nmean {np.mean(np.abs(errors)):.1f} %, largest {np.max(np.abs(errors)):.1f} %")


if __name__ == "__main__":
    main()
