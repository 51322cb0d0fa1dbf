"""Time every iteration of three training runs on a GPU, twice, and once on about half of its SMs.

    python benchmarks/sample_iterations/record.py --lengths FOLDER --output FOLDER [--iterations 1000]

FOLDER of lengths: the three logs that `lengths` reads. Writes one .npz a network, and what it ran on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from lengths import LOGS
from networks import NETWORKS, Step

CLASSES = {
    "gemm": r"gemm|nvjet|cutlass|xmma|cublas",
    "recurrent": r"rnn|lstm|gru|persist",
    "convolution": r"conv|wgrad|dgrad|fprop|nhwc|nchw",
    "attention": r"sdpa|flash|fmha|attention",
    "reduction": r"reduce|norm|softmax|ctc|nll",
}


def main() -> None:
    """Record what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("this needs a CUDA GPU; torch sees none.")
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.networks.split(","):
        began = time.perf_counter()
        lengths = LOGS[name](options.lengths, iterations=options.iterations)
        step = NETWORKS[name](options.device)
        for record in recorded(step, lengths, device=options.device):
            np.savez_compressed(options.output / f"{name}.npz", length=lengths, **record)
        print(
            name,
            f"{len(np.unique(lengths, axis=0))} lengths,",
            f"{time.perf_counter() - began:.0f} s",
            flush=True,
        )
    (options.output / "environment.json").write_text(json.dumps(environment(options), indent=2))


def recorded(step: Step, lengths: np.ndarray, *, device: str) -> Iterator[dict[str, np.ndarray]]:
    """More and more of: both runs' times in ms, kernels by length, times on half the SMs."""
    distinct = np.unique(lengths, axis=0)
    warm_up(step, distinct)
    record = {"first_ms": timed_run(step, lengths, device=device)}
    yield record
    record["second_ms"] = timed_run(step, lengths, device=device)
    yield record
    record |= kernels(step, distinct, device=device)
    yield record
    with half_of_the_sms(device) as sms:
        warm_up(step, distinct)
        record["half_ms"] = timed_run(step, lengths, device=device)
        record["half_sms"] = np.array(sms)
    yield record


def warm_up(step: Step, distinct: np.ndarray) -> None:
    """Plans, workspaces and allocations of each length, outside the timed runs."""
    for length in distinct:
        step(tuple(map(int, length)))


def timed_run(step: Step, lengths: np.ndarray, *, device: str) -> np.ndarray:
    """Wall time of each iteration, the device idle before and after it."""
    times = np.empty(len(lengths))
    for index, length in enumerate(lengths):
        synchronize(device)
        began = time.perf_counter_ns()
        step(tuple(map(int, length)))
        synchronize(device)
        times[index] = (time.perf_counter_ns() - began) / 1e6
    return times


def kernels(step: Step, distinct: np.ndarray, *, device: str) -> dict[str, np.ndarray]:
    """For each length: how many kernels, and their time by class in us."""
    if device != "cuda":
        return {}
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415

    rows = []
    for length in distinct:
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            step(tuple(map(int, length)))
            synchronize(device)
        row = dict.fromkeys(("count", *CLASSES, "other"), 0.0)
        for event in profiler.profiler.kineto_results.events():
            if "CUDA" in str(event.device_type()):
                row["count"] += 1
                row[kernel_class(event.name())] += event.duration_ns() / 1e3
        rows.append(row)
    table = {f"kernels_{key}": np.array([row[key] for row in rows]) for key in rows[0]}
    return {"distinct": distinct, **table}


def kernel_class(name: str) -> str:
    """The class whose pattern the kernel's name has."""
    for kind, pattern in CLASSES.items():
        if re.search(pattern, name, re.IGNORECASE):
            return kind
    return "other"


@contextlib.contextmanager
def half_of_the_sms(device: str) -> Iterator[int]:
    """Run on a stream of a green context of about half the SMs; yields how many it has."""
    if device != "cuda":
        yield 0
        return
    from cuda.bindings import driver  # noqa: PLC0415

    def done(result: tuple[Any, ...]) -> Any:
        if int(result[0]) != 0:
            raise RuntimeError(f"the driver answered {result[0]}")
        return result[1] if len(result) == 2 else result[1:]

    wanted = torch.cuda.get_device_properties(0).multi_processor_count // 2 // 8 * 8
    gpu = done(driver.cuDeviceGet(0))
    everything = done(driver.cuDeviceGetDevResource(gpu, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
    groups = done(driver.cuDevSmResourceSplitByCount(1, everything, 0, wanted))[0]
    description = done(driver.cuDevResourceGenerateDesc(groups[:1], 1))
    flags = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
    context = done(driver.cuGreenCtxCreate(description, gpu, flags))
    handle = done(driver.cuGreenCtxStreamCreate(context, driver.CUstream_flags.CU_STREAM_NON_BLOCKING, 0))
    with torch.cuda.stream(torch.cuda.ExternalStream(int(handle))):
        yield groups[0].sm.smCount
        torch.cuda.current_stream().synchronize()


def synchronize(device: str) -> None:
    """Wait for the work of the current stream."""
    if device == "cuda":
        torch.cuda.current_stream().synchronize()


def environment(options: Any) -> dict[str, Any]:
    """What it ran on."""
    properties = torch.cuda.get_device_properties(0) if options.device == "cuda" else None
    return {
        "device": properties.name if properties else options.device,
        "sms": properties.multi_processor_count if properties else 0,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "date": time.strftime("%Y-%m-%d"),
        "iterations": options.iterations,
    }


if __name__ == "__main__":
    main()
