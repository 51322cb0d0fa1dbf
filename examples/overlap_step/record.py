"""Record a training step that streams its weights over the host link while it computes.

    python record.py --engine sm     # copies by a kernel on 8 SMs -> sm.pt.trace.json.gz
    python record.py --engine ce     # copies by the copy engines   -> ce.pt.trace.json.gz

Each recording holds steps of compute alone, of communication alone, and of both together, with the batch
chosen so that the two sides last about equally long. Needs one CUDA GPU and Triton.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from model import Shape, StreamedWeights, Transformer
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from trim import write_trimmed

HERE = Path(__file__).parent
ISOLATED_COMPUTE = "isolated compute"
ISOLATED_COMMUNICATION = "isolated communication"
CONCURRENT = "concurrent"
SIDES_DIFFER_AT_MOST = 0.05


class Step:
    """One training step of a model whose weights are streamed: compute, communication, or both."""

    def __init__(self, *, copy, shape, batch: int) -> None:
        torch.manual_seed(0)
        with torch.device("cuda"):
            self.model = Transformer(shape).to(torch.bfloat16)
        self.weights = StreamedWeights(self.model, pinned=True)
        resident = [
            p for n, p in self.model.named_parameters() if not (n.startswith("blocks") and p.dim() == 2)
        ]
        self.optimizer = torch.optim.AdamW(resident, lr=1e-4, fused=True)
        self.copy = copy
        self.shape = shape
        self.side = torch.cuda.Stream()
        self.which = 0
        self.begins, self.ends = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.model.blocks[0].register_forward_hook(lambda *_: self._stream_if_concurrent())
        self._concurrent = False
        self.set_batch(batch)

    def set_batch(self, batch: int, /) -> None:
        """Draw a new batch of this many sequences."""
        self.batch = batch
        self.tokens, self.targets = torch.randint(
            self.shape.vocabulary, (2, batch, self.shape.sequence), device="cuda"
        )

    def run(self, label: str, /) -> float:
        """Run one step as labelled and wait for it; its GPU time in ms."""
        main = torch.cuda.current_stream()
        with record_function(label):
            self.begins.record()
            if label == ISOLATED_COMMUNICATION:
                self._stream()
            else:
                self._concurrent = label == CONCURRENT
                self._compute()
            main.wait_stream(self.side)
            self.ends.record()
            torch.cuda.synchronize()
        self.which = 1 - self.which
        return self.begins.elapsed_time(self.ends)

    def _compute(self) -> None:
        self.weights.use(self.which)
        self.model(self.tokens, self.targets).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _stream_if_concurrent(self) -> None:
        """The first block is on its way to the GPU: start the transfers, as a prefetching hook does."""
        if self._concurrent:
            self._stream()

    def _stream(self) -> None:
        self.side.wait_event(self.begins)
        with torch.cuda.stream(self.side):
            for destination, source in self.weights.transfers(self.which):
                self.copy(destination, source)

    def check(self) -> str:
        """Poison every destination, run both sides together, and compare what arrived bit by bit."""
        pairs = self.weights.transfers(self.which)
        for destination, _ in pairs:
            destination.fill_(float("nan"))
        self.run(CONCURRENT)
        for destination, source in pairs:
            if not torch.equal(destination.cuda().view(torch.int16), source.cuda().view(torch.int16)):
                raise RuntimeError("a transfer arrived changed: the recording would be worthless.")
        return f"{len(pairs)} transfers of {sum(s.nbytes for _, s in pairs) / 1e6:.0f} MB arrived bit for bit"


def balance(step: Step, /) -> None:
    """Choose the batch with which compute lasts as long as communication."""
    target = median_ms(step, ISOLATED_COMMUNICATION, steps=5)
    for _ in range(4):
        compute = median_ms(step, ISOLATED_COMPUTE, steps=5)
        batch = max(1, round(step.batch * target / compute))
        if batch == step.batch or abs(compute / target - 1) <= SIDES_DIFFER_AT_MOST:
            return
        step.set_batch(batch)


def median_ms(step: Step, label: str, /, *, steps: int) -> float:
    """Median GPU time of a step after two that warm up."""
    return statistics.median([step.run(label) for _ in range(steps + 2)][2:])


def timed(step: Step, plan: list[str], /) -> dict[str, list[float]]:
    """GPU times in ms of the plan's steps, as the recording runs them but without the profiler."""
    times: dict[str, list[float]] = {label: [] for label in plan}
    for label in plan:
        times[label].append(step.run(label))
    return times


def fraction_of_ideal(*, compute: float, communication: float, concurrent: float) -> float:
    """(speedup - 1) / (ideal speedup - 1), as conccl.core.metrics defines it."""
    serial = compute + communication
    return (serial / concurrent - 1) / (serial / max(compute, communication) - 1)


def record(step: Step, plan: list[str], /) -> Path:
    """Profile one step for each label of the plan; the path of the raw trace."""
    raw = Path(tempfile.mkdtemp()) / "raw.json"
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=0, warmup=2, active=len(plan), repeat=1),
        on_trace_ready=lambda p: p.export_chrome_trace(str(raw)),
        record_shapes=True,
    ) as profiler:
        for label in [CONCURRENT, CONCURRENT, *plan]:
            step.run(label)
            profiler.step()
    return raw


def traced_ms(rows: list[dict], label: str, /) -> float:
    """Median over the steps of a label: from the first GPU row that it launched to the end of the last."""
    launches = {
        r["args"]["correlation"]: r["ts"] for r in rows if r.get("cat") in ("cuda_runtime", "cuda_driver")
    }
    spans = []
    for mark in (r for r in rows if r.get("cat") == "user_annotation" and r["name"] == label):
        ran = [
            r
            for r in rows
            if r.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
            and mark["ts"] <= launches.get(r["args"]["correlation"], -1) <= mark["ts"] + mark["dur"]
        ]
        spans.append(max(r["ts"] + r["dur"] for r in ran) - min(r["ts"] for r in ran))
    return statistics.median(spans) / 1e3


def figures(measure: Callable[[str], float], /) -> dict[str, float]:
    """Isolated and concurrent times in ms, and what follows from them."""
    compute, communication, concurrent = (
        measure(label) for label in (ISOLATED_COMPUTE, ISOLATED_COMMUNICATION, CONCURRENT)
    )
    serial = compute + communication
    return {
        "compute_ms": round(compute, 3),
        "communication_ms": round(communication, 3),
        "concurrent_ms": round(concurrent, 3),
        "ideal_speedup": round(serial / max(compute, communication), 3),
        "speedup": round(serial / concurrent, 3),
        "fraction_of_ideal": round(
            fraction_of_ideal(compute=compute, communication=communication, concurrent=concurrent), 3
        ),
    }


def main() -> int:
    """Record one engine; 2 where there is no GPU to record on."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=("sm", "ce"), required=True)
    parser.add_argument("--output", type=Path, default=HERE, help="folder for the trace and its figures")
    parser.add_argument(
        "--steps", type=int, default=4, help="steps of each isolated side; 6 more of both together"
    )
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("this records on a GPU, and PyTorch finds no CUDA device here.", file=sys.stderr)
        return 2
    from copies import EngineCopies, SmCopies  # noqa: PLC0415 - Triton is needed only where there is a GPU

    copy = SmCopies() if arguments.engine == "sm" else EngineCopies()
    step = Step(copy=copy, shape=Shape(), batch=12)
    arrived = step.check()
    balance(step)
    plan = [ISOLATED_COMPUTE, ISOLATED_COMMUNICATION] * arguments.steps + [CONCURRENT] * (arguments.steps + 2)
    outside = timed(step, plan * 3)
    raw = record(step, plan)
    arrived_again = step.check()
    trace = arguments.output / f"{arguments.engine}.pt.trace.json.gz"
    rows = write_trimmed(raw=raw, trimmed=trace)
    result = {
        "engine": arguments.engine,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "batch": step.batch,
        "sequence": step.shape.sequence,
        "nbytes_each_step": step.weights.nbytes,
        "correct": [arrived, arrived_again, copy.check()],
        "cuda_events": figures(lambda label: statistics.median(outside[label])),
        "trace": figures(lambda label: traced_ms(rows, label)),
        "trace_nbytes": trace.stat().st_size,
    }
    (arguments.output / f"{arguments.engine}.figures.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
