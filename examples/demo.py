"""What conccl is for, on one page: two recorded steps side by side, and a model on GPUs that are not there.

    python demo.py report.html

The recordings differ in who copies (`overlap_step`). The model is one layer of Llama-3-70B, tensor-parallel
over 8 GPUs with its parameters sharded over 8, on simulated H200.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

import conccl
from conccl.bench.characterize import strategies_of
from conccl.bench.sweep import Sweep, Variation
from conccl.costs.catalogue import load_device
from conccl.report.characterization import render_characterization
from conccl.report.comparison import render_comparison
from conccl.report.html import write_html
from conccl.report.sections.strategies import strategies
from conccl.workloads.layers import Batch, Phase
from conccl.workloads.model_pairs import pairs_of_model
from conccl.workloads.models import model
from conccl.workloads.parallel import Parallelism
from conccl.workloads.steps import Workload

RECORDINGS = {"SM kernels": "sm", "copy engines": "ce"}
STRATEGIES = (
    "serial",
    "baseline",
    "prioritized",
    "partitioned",
    "prioritized_partitioned",
    "ce",
    "ce_trimmed",
)


def main() -> int:
    """Analyse, simulate, print, write the page; 2 where it cannot be written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=Path, help="the HTML file to write")
    page = parser.parse_args().page
    folder = Path(__file__).parent / "overlap_step"
    runs = {
        label: conccl.analyze(folder / f"{name}.pt.trace.json.gz", host_copies="communication")
        for label, name in RECORDINGS.items()
    }
    workload = Workload(
        model=model("llama3-70b"),
        parallelism=Parallelism(tp=8, fsdp=8),
        batch=Batch(sequences=1, length=4096, phase=Phase.TRAINING),
    )
    device = Variation(device=load_device("h200-sxm"))
    layer = Sweep(executor="sim", gpus=8, strategies=strategies_of(STRATEGIES)).run(
        device, pairs_of_model(workload)
    )
    try:
        write_html(
            runs,
            path=page,
            title="Streaming weights while computing; a Llama-3-70B layer",
            further=(strategies([(device, layer)]),),
        )
    except conccl.InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    console = Console()
    console.print("Two recorded steps, weights streamed by SM kernels and by copy engines", style="bold")
    console.print(render_comparison(runs))
    console.print("\nA Llama-3-70B layer, tensor parallelism 8, FSDP 8", style="bold", highlight=False)
    console.print(render_characterization(layer))
    print(f"\nThe page: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
