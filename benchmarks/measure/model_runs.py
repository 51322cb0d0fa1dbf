"""Whole models, eager: time of a step, every kernel of it, and what launching cost the host."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from launches import KERNEL_FIELDS, Launches
from rows import RowFile, leave_if_broken
from torch.profiler import ProfilerActivity, profile, record_function

MODELS = Path(__file__).parent.parent / "models"
TIMED_MS = 500.0
"""Steps are timed for about this long in all."""
STEPS = (5, 30)
"""Fewest and most."""

RUNS: tuple[tuple[str, ...], ...] = (
    ("gpt2.py:train", "small", "8", "1024"),
    ("llama.py:train", "4", "1", "2048"),
    ("resnet.py:train", "64", "autocast"),
    ("bert.py:train", "32", "128"),
    ("llama.py:decode", "8", "16", "1024"),
    ("gpt2.py:train_bf16", "medium", "4", "1024"),
    ("vit.py:train", "64"),
    ("lstm_lm.py:train", "32", "35"),
    ("mlp.py:train", "foreach"),
    ("mlp.py:train", "fused"),
    ("t5.py:train", "16", "256", "64"),
    ("resnet.py:infer", "32"),
    ("mixtral.py:train", "2", "4", "1024"),
    ("deepspeech.py:train", "16", "400"),
    ("dlrm.py:train", "2048"),
    ("unet.py:train", "16", "128"),
    ("mobilenet.py:infer", "64"),
    ("dcgan.py:train", "128"),
    ("gpt2.py:infer", "small", "8", "1024"),
    ("llama.py:prefill", "8", "1", "4096"),
    ("bert.py:infer", "1", "128"),
    ("resnet.py:train", "64", "fp32"),
    ("gpt2.py:train_bf16", "large", "2", "1024"),
    ("bert.py:train", "8", "512"),
    ("llama.py:decode", "8", "1", "4096"),
    ("resnet.py:infer", "1"),
    ("dcgan.py:train", "32"),
    ("mlp.py:train", "forloop"),
    ("gpt2.py:infer", "medium", "1", "512"),
    ("vit.py:train", "16"),
    ("lstm_lm.py:train", "64", "70"),
    ("dlrm.py:train", "8192"),
    ("t5.py:train", "4", "512", "128"),
    ("unet.py:train", "4", "256"),
)
"""Builders in ``benchmarks/models`` and their arguments, the most wanted first."""

SMALL_RUNS: tuple[tuple[str, ...], ...] = (
    ("mlp.py:train", "foreach", "8", "64", "2"),
    ("gpt2.py:infer", "small", "1", "16"),
    ("lstm_lm.py:train", "2", "3"),
)
"""What a dry run without a GPU takes."""


def measure_models(*, file: RowFile, device: str, seconds: float, small: bool) -> None:
    """One record a run, until the time is up."""
    end = time.monotonic() + seconds
    for run in SMALL_RUNS if small else RUNS:
        if time.monotonic() > end:
            print(f"no time for {' '.join(run)} and those after it", flush=True)
            break
        if " ".join(run) in file.done:
            continue
        file.begin(" ".join(run))
        record: dict[str, object] = {"id": " ".join(run), "model": run[0], "arguments": list(run[1:])}
        try:
            record |= _measure(run, device=device)
        except Exception as error:
            record["error"] = f"{type(error).__name__}: {error}"[:500]
        file.append(record)
        print(
            record["id"],
            {k: v for k, v in record.items() if k in ("iter_ms", "kernel_ms", "error")},
            flush=True,
        )
        gc.collect()
        if device == "cuda":
            leave_if_broken(device)
            torch.cuda.empty_cache()


def build(target: str, *arguments: str, device: str) -> Callable[[], object]:
    """Call the builder ``file.py:function`` with new tensors on the device; the step that it returns."""
    name, function = target.split(":")
    spec = importlib.util.spec_from_file_location(Path(name).stem, MODELS / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    with torch.device(device):
        return getattr(module, function)(*arguments)


def _measure(run: tuple[str, ...], *, device: str) -> dict[str, object]:
    step = build(*run, device=device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    first_ms = _until_idle_ms(step, device=device)
    for _ in range(2):
        third_ms = _until_idle_ms(step, device=device)
    steps = round(min(max(TIMED_MS / third_ms, STEPS[0]), STEPS[1])) if device == "cuda" else 2
    result: dict[str, object] = {"first_ms": round(first_ms, 1), **_times(step, steps=steps, device=device)}
    return {**result, **_kernels(step, device=device)}


def _until_idle_ms(step: Callable[[], object], *, device: str) -> float:
    begin = time.perf_counter()
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3


def _times(step: Callable[[], object], *, steps: int, device: str) -> dict[str, object]:
    """Steps back to back, by GPU events and the wall clock; alone, until the host is free and until idle."""
    host, alone = [], []
    for _ in range(5):
        begin = time.perf_counter()
        step()
        host.append((time.perf_counter() - begin) * 1e3)
        if device == "cuda":
            torch.cuda.synchronize()
        alone.append((time.perf_counter() - begin) * 1e3)
    result: dict[str, object] = {
        "host_ms": round(statistics.median(host), 4),
        "alone_ms": round(statistics.median(alone), 4),
        "steps": steps,
    }
    if device != "cuda":
        return result
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    begin = time.perf_counter()
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    wall_ms = (time.perf_counter() - begin) * 1e3 / steps
    samples = [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]
    return result | {
        "iter_ms": round(statistics.median(samples), 4),
        "iter_ms_min": round(min(samples), 4),
        "iter_ms_max": round(max(samples), 4),
        "wall_ms": round(wall_ms, 4),
        "peak_nbytes": torch.cuda.max_memory_allocated(),
    }


def _kernels(step: Callable[[], object], *, device: str) -> dict[str, object]:
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
    raw = Path(tempfile.mkdtemp()) / "raw.json"
    with profile(activities=activities, record_shapes=True) as profiler:
        for mark in ("step 0", "step 1"):
            with record_function(mark):
                step()
            if device == "cuda":
                torch.cuda.synchronize()
    profiler.export_chrome_trace(str(raw))
    launches = Launches(raw)
    raw.unlink()
    kernels = launches.by_annotation(operators=True)["step 1"]
    return {
        "kernel_ms": round(sum(k[1] for k in kernels) / 1e3, 5),
        "n_kernels": len(kernels),
        "host_calls": launches.host_calls("step 1"),
        "kernel_fields": KERNEL_FIELDS,
        "kernels": kernels,
    }
