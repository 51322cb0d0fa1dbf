"""Compare captured PyTorch models with what an H200 ran: kernels in order, their times, and the iteration.

    python benchmarks/whole_models.py [--only gpt2.py,...] [--data DIR] [--verbose] [--json FILE]

Every model in the measured data is captured on this machine's CPU from the same builder, its kernels are
counted and costed, and a line says how far that is from the measurement.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import importlib.util
import itertools
import json
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from conccl.bench.step import simulate_step
from conccl.core.errors import ConcclError
from conccl.core.hardware import Device
from conccl.costs.catalogue import load_device
from conccl.costs.kernels import kernels_of
from conccl.workloads.capture.capture import capture_step
from conccl.workloads.captured import Captured
from conccl.workloads.program import placed_op

HERE = Path(__file__).parent
DATA = HERE / "data" / "h200-sxm" / "2026-11-30"

FAMILIES = {
    "gemm": "mm bmm addmm baddbmm addbmm mv addmv dot linear matmul _scaled_mm _addmm_activation",
    "attention": (
        "_cudnn_attention_forward _cudnn_attention_backward _scaled_dot_product_cudnn_attention"
        " _scaled_dot_product_cudnn_attention_backward _flash_attention_forward _flash_attention_backward"
        " _efficient_attention_forward _efficient_attention_backward"
    ),
    "convolution": (
        "convolution cudnn_convolution cudnn_convolution_transpose convolution_backward _conv_depthwise2d"
        " conv_depthwise3d"
    ),
    "recurrent": "_cudnn_rnn _cudnn_rnn_backward",
    "norm": (
        "native_layer_norm native_layer_norm_backward _fused_rms_norm _fused_rms_norm_backward"
        " native_batch_norm native_batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward"
        " native_group_norm native_group_norm_backward _softmax _softmax_backward_data _log_softmax"
        " _log_softmax_backward_data _safe_softmax"
    ),
    "reduction": "sum mean amax amin max min argmax prod any all norm linalg_vector_norm var std cumsum",
    "copy": "copy_ cat clone _to_copy _local_scalar_dense",
    "lookup": (
        "embedding gather index index_select index_put _index_put_impl_ index_copy embedding_dense_backward"
        " _embedding_bag _embedding_bag_backward _embedding_bag_dense_backward scatter scatter_ index_add_"
        " scatter_add_ topk sort"
    ),
}
"""Classes of kernels by the operator that runs them; ``_foreach_`` and ``_fused_`` are the optimizer, the
rest is elementwise."""

_FAMILY = {name: family for family, names in FAMILIES.items() for name in names.split()}


def family_of(operator: str, /) -> str:
    """The class of an operator's kernels."""
    if operator.startswith(("_foreach", "_fused_adam", "_fused_sgd", "_amp")):
        return "optimizer"
    return _FAMILY.get(operator, "elementwise")


@dataclass(kw_only=True)
class Compared:
    """One model: what was measured, and what the capture says."""

    model: str
    arguments: list[str]
    kernels: int
    captured_kernels: int
    order: float
    """How alike the sequences of classes are: 1 is equal."""
    kernel_ms: float
    captured_kernel_ms: float
    classes: dict[str, list[float]] = field(default_factory=dict)
    """Class -> measured and predicted ms, each kernel by itself."""
    iteration_ms: float = 0.0
    """Measured: by events, back to back."""
    simulated_ms: float = 0.0
    capture_s: float = 0.0
    unmodelled: dict[str, int] = field(default_factory=dict)
    """Operators without a rule or a cost model -> launches."""

    @property
    def kernels_error(self) -> float:
        """How far off the number of kernels is, in percent."""
        return 100 * (self.captured_kernels / self.kernels - 1)

    @property
    def iteration_error(self) -> float:
        """How far off the iteration is, in percent."""
        return 100 * (self.simulated_ms / self.iteration_ms - 1)

    @property
    def time_error(self) -> float:
        """How far off the sum of kernel times is, in percent."""
        return 100 * (self.captured_kernel_ms / self.kernel_ms - 1)


def build(target: str, arguments: Iterable[str]) -> Callable[[], Any]:
    """Call a builder ``file.py:function`` with the GPU as the current device."""
    name, function = target.split(":")
    spec = importlib.util.spec_from_file_location(Path(name).stem, HERE / "models" / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with torch.device("cuda"):
        step: Callable[[], Any] = getattr(module, function)(*arguments)
    return step


def captured_of(row: dict[str, Any], device: Device) -> Captured:
    """The measured run's model, captured."""
    return capture_step(lambda: build(row["model"], row["arguments"]), device=device)


def compare(row: dict[str, Any], device: Device) -> tuple[Compared, Captured]:
    """Capture one measured run and hold both beside each other."""
    begin = time.perf_counter()
    captured = captured_of(row, device)
    capture_s = time.perf_counter() - begin
    measured = [(str(k[7]).removeprefix("aten::"), k[1]) for k in row["kernels"]]
    classes: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for operator, us in measured:
        classes[family_of(operator)][0] += us / 1e3
    unmodelled: Counter[str] = Counter()
    sequence: list[str] = []
    for call in captured.kernels:
        kernel = call.kernel
        family = family_of(kernel.name)
        sequence += [family] * kernel.launches
        try:
            ns = sum(cost.isolated_ns for cost in kernels_of(placed_op(call), device))
        except ConcclError:
            unmodelled[kernel.name] += kernel.launches
            ns = 0
        classes[family][1] += ns / 1e6
    step = simulate_step(captured, device=device)
    result = Compared(
        model=row["model"],
        arguments=row["arguments"],
        kernels=len(measured),
        captured_kernels=captured.launches,
        order=_likeness([family_of(operator) for operator, _ in measured], sequence),
        kernel_ms=row["kernel_ms"],
        captured_kernel_ms=step.kernel_ns / 1e6,
        classes=dict(classes),
        iteration_ms=row["iter_ms"],
        simulated_ms=step.iteration_ns / 1e6,
        capture_s=capture_s,
        unmodelled=dict(unmodelled),
    )
    return result, captured


def _likeness(one: list[str], other: list[str]) -> float:
    """Runs of one class count once: a library call may be one kernel or several."""
    runs = [[key for key, _ in itertools.groupby(names)] for names in (one, other)]
    return difflib.SequenceMatcher(None, *runs, autojunk=False).ratio()


def differences(row: dict[str, Any], captured: Captured) -> list[tuple[str, int, int]]:
    """Operators whose numbers of kernels differ."""
    measured = Counter(str(k[7]).removeprefix("aten::").removesuffix("_") for k in row["kernels"])
    ours: Counter[str] = Counter()
    for call in captured.kernels:
        ours[call.kernel.name.removesuffix("_")] += call.kernel.launches
    names = sorted(measured | ours)
    return [(name, measured[name], ours[name]) for name in names if measured[name] != ours[name]]


def read(data: Path) -> list[dict[str, Any]]:
    """The measured runs."""
    rows: list[dict[str, Any]] = json.loads(gzip.decompress((data / "models.json.gz").read_bytes()))["rows"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="files of models, separated by commas")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--device", default="h200-sxm")
    parser.add_argument("--verbose", action="store_true", help="operators and classes that differ")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = load_device(options.device)
    only = [name for name in options.only.split(",") if name]
    found = []
    print(
        f"{'model':<34}{'kernels':>8}{'captured':>9}{'':>7}{'order':>6}"
        f"{'sum ms':>9}{'captured':>9}{'':>8}{'iter ms':>9}{'simulated':>10}"
    )
    for row in read(options.data):
        if only and not any(row["model"].startswith(name) for name in only):
            continue
        one, captured = compare(row, device)
        found.append(one)
        label = f"{one.model} {' '.join(one.arguments)}"
        print(
            f"{label:<34}{one.kernels:>8}{one.captured_kernels:>9}{one.kernels_error:>6.1f}%{one.order:>6.2f}"
            f"{one.kernel_ms:>9.2f}{one.captured_kernel_ms:>9.2f}{one.time_error:>7.1f}%"
            f"{one.iteration_ms:>9.2f}{one.simulated_ms:>10.2f}{one.iteration_error:>7.1f}%"
            f"  {one.capture_s:.1f} s {one.unmodelled or ''}",
            flush=True,
        )
        if options.verbose:
            for name, measured, ours in differences(row, captured):
                print(f"    {name:<40}{measured:>6}{ours:>6}")
            for family, (measured_ms, ours_ms) in sorted(one.classes.items()):
                print(f"    {family:<40}{measured_ms:>9.3f}{ours_ms:>9.3f}")
    within = sum(abs(one.kernels_error) <= 5 for one in found)
    print(f"number of kernels within 5 %: {within} of {len(found)}")
    for what, errors in (
        ("sum of kernel times", [abs(one.time_error) for one in found]),
        ("iteration", [abs(one.iteration_error) for one in found]),
    ):
        counts = ", ".join(f"{sum(e <= most for e in errors)} within {most} %" for most in (5, 10))
        print(f"{what}: median error {statistics.median(errors):.1f} %, {counts}")
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=1))


if __name__ == "__main__":
    main()
