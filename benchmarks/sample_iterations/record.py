"""Time every iteration of three training runs on a GPU, twice, and once on about half of its SMs.

    python benchmarks/sample_iterations/record.py --lengths FOLDER --output FOLDER [--seconds 240]
    python benchmarks/sample_iterations/record.py --lengths FOLDER --output FOLDER --device cpu --tiny

FOLDER of lengths: the three logs that `lengths` reads. Writes one .npz a network, and what it ran on. After
``--seconds`` it stops and says so; the same command goes on where it was, until everything is there. What is
not measured yet is NaN. ``--tiny`` shows on a CPU that everything runs: small networks, short lengths.
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
from networks import NETWORKS, Size, Step

CLASSES = {
    "gemm": r"gemm|nvjet|cutlass|xmma|cublas",
    "recurrent": r"rnn|lstm|gru|persist",
    "convolution": r"conv|wgrad|dgrad|fprop|nhwc|nchw",
    "attention": r"sdpa|flash|fmha|attention",
    "reduction": r"reduce|norm|softmax|ctc|nll",
}

KEPT_EVERY_S = 15.0
"""So much is lost at most when the process is killed."""

TINY = 16
"""What lengths are divided by."""


def main() -> int:
    """Record what the command line asks for, or as much of it as the time allows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long")
    parser.add_argument("--tiny", action="store_true", help="small networks and lengths")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("this needs a CUDA GPU; torch sees none.")
    deadline = time.monotonic() + options.seconds
    options.output.mkdir(parents=True, exist_ok=True)
    note_environment(options)
    for name in options.networks.split(","):
        lengths = LOGS[name](options.lengths, iterations=options.iterations)
        if options.tiny:
            lengths = np.maximum(lengths // TINY, 16 if name == "speech" else 1)
        state = State(options.output / f"{name}.npz", lengths, device=options.device)
        if not state.missing():
            print(f"{name}: complete", flush=True)
            continue
        step = NETWORKS[name](options.device, Size.TINY if options.tiny else Size.FULL)
        record(step, state, device=options.device, deadline=deadline)
        print(f"{name}: {state.missing() or 'complete'}", flush=True)
        if state.missing():
            print("out of time: give the same command again.", flush=True)
            return 3
    return 0


class State:
    """What is measured of one network, NaN where it is not yet; kept in a file."""

    def __init__(self, path: Path, lengths: np.ndarray, *, device: str) -> None:
        self.path = path
        self.lengths = lengths
        self.distinct = np.unique(lengths, axis=0)
        self.kept_at = time.monotonic()
        blank = np.full(len(lengths), np.nan)
        self.arrays = {"length": lengths, "half_sms": np.array(-1)}
        self.arrays |= {f"{run}_ms": blank.copy() for run in ("first", "second", "half")}
        if device == "cuda":
            self.arrays["distinct"] = self.distinct
            for key in ("count", *CLASSES, "other"):
                self.arrays[f"kernels_{key}"] = np.full(len(self.distinct), np.nan)
        if path.exists():
            kept = dict(np.load(path))
            if kept.keys() != self.arrays.keys() or not np.array_equal(kept["length"], lengths):
                sys.exit(f"{path} is of another run. Move it away, or give the iterations that it has.")
            self.arrays = kept

    def missing(self) -> str:
        """What is not measured yet, in words; empty: nothing."""
        rows = {key: int(np.isnan(a).sum()) for key, a in self.arrays.items() if a.dtype.kind == "f"}
        return ", ".join(f"{count} of {key}" for key, count in rows.items() if count)

    def keep(self, *, now: bool = False) -> None:
        """Write the file every few seconds, in whole or not at all."""
        if now or time.monotonic() - self.kept_at > KEPT_EVERY_S:
            part = self.path.with_suffix(".part.npz")
            np.savez_compressed(part, **self.arrays)
            part.replace(self.path)
            self.kept_at = time.monotonic()


def record(step: Step, state: State, *, device: str, deadline: float) -> None:
    """Measure what is missing, stage by stage, until the time is up."""
    try:
        if np.isnan(state.arrays["first_ms"]).any() or np.isnan(state.arrays["second_ms"]).any():
            warm: set[tuple[int, ...]] = set()
            for run in ("first_ms", "second_ms"):
                timed_run(step, state, run, warm, device=device, deadline=deadline)
        if device == "cuda":
            kernels(step, state, device=device, deadline=deadline)
        if np.isnan(state.arrays["half_ms"]).any() and time.monotonic() < deadline:
            with half_of_the_sms(device) as sms:
                state.arrays["half_sms"] = np.array(sms)
                timed_run(step, state, "half_ms", set(), device=device, deadline=deadline)
    finally:
        state.keep(now=True)


def timed_run(
    step: Step, state: State, run: str, warm: set[tuple[int, ...]], *, device: str, deadline: float
) -> None:
    """Wall time of each iteration, the device idle before and after it.

    Each length runs once untimed first, in every call: plans, workspaces and allocations are made then.
    """
    times = state.arrays[run]
    for index in np.flatnonzero(np.isnan(times)):
        if time.monotonic() > deadline:
            return
        length = tuple(map(int, state.lengths[index]))
        if length not in warm:
            step(length)
            warm.add(length)
        synchronize(device)
        began = time.perf_counter_ns()
        step(length)
        synchronize(device)
        times[index] = (time.perf_counter_ns() - began) / 1e6
        state.keep()


def kernels(step: Step, state: State, *, device: str, deadline: float) -> None:
    """For each length: how many kernels, and their time by class in us."""
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415

    for index in np.flatnonzero(np.isnan(state.arrays["kernels_count"])):
        if time.monotonic() > deadline:
            return
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            step(tuple(map(int, state.distinct[index])))
            synchronize(device)
        row = dict.fromkeys(("count", *CLASSES, "other"), 0.0)
        for event in profiler.profiler.kineto_results.events():
            if "CUDA" in str(event.device_type()):
                row["count"] += 1
                row[kernel_class(event.name())] += event.duration_ns() / 1e3
        for key, value in row.items():
            state.arrays[f"kernels_{key}"][index] = value
        state.keep()


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


def note_environment(options: Any) -> None:
    """What each call ran on: the machine may be another one."""
    path = options.output / "environment.json"
    calls = json.loads(path.read_text()) if path.exists() else []
    properties = torch.cuda.get_device_properties(0) if options.device == "cuda" else None
    calls.append(
        {
            "device": properties.name if properties else options.device,
            "sms": properties.multi_processor_count if properties else 0,
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "date": time.strftime("%Y-%m-%d %H:%M"),
            "networks": options.networks,
            "iterations": options.iterations,
        }
    )
    path.write_text(json.dumps(calls, indent=2))


if __name__ == "__main__":
    sys.exit(main())
