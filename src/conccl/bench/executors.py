"""The executors that a command can ask for, each opened when it is asked for."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import conccl
from conccl.bench.bench import Bench, ExactBench
from conccl.core.errors import InputError, UnknownNameError
from conccl.core.hardware import Device
from conccl.core.measurement import Environment
from conccl.costs.catalogue import changed_fields, fields_of, load_device, system_of

Open = Callable[[Device, int], Bench]
"""(device, GPUs) -> a bench on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """An executor by name: whether this installation has it, and how to open it."""

    is_available: Callable[[], bool]
    open: Open


def open_bench(name: str, /, *, device: Device, gpus: int) -> Bench:
    """The bench of an executor; an error where this installation has none of that name."""
    if name not in BACKENDS:
        raise UnknownNameError(kind="executor", name=name, known=BACKENDS)
    backend = BACKENDS[name]
    if not backend.is_available():
        raise InputError(f"this installation has no executor {name!r}. Use --executor sim.")
    return backend.open(device, gpus)


def _simulated(device: Device, gpus: int) -> Bench:
    from conccl.sim.executor import SimExecutor  # noqa: PLC0415 (backends are loaded when asked for)

    environment = Environment(
        executor="sim",
        device=device.name,
        gpus=gpus,
        versions={"conccl": conccl.__version__, "device": device_digest(device)},
    )
    return ExactBench(executor=SimExecutor(system=system_of(device, gpus=gpus)), environment=environment)


def device_digest(device: Device, /) -> str:
    """A short name of all numbers of a device: results for others must not be mixed with these."""
    return hashlib.sha256(json.dumps(fields_of(device), sort_keys=True).encode()).hexdigest()[:12]


def settings_of(device: Device, /) -> dict[str, object]:
    """The fields in which a device differs from the known one of its name; none where there is none."""
    try:
        known = load_device(device.name)
    except InputError:
        return {}
    return dict(changed_fields(device, known))


def _measured(device: Device, gpus: int) -> Bench:
    opened: Bench = importlib.import_module("conccl.gpu.bench").open_bench(device=device, gpus=gpus)
    return opened


def _has_gpu_executor() -> bool:
    return (
        importlib.util.find_spec("conccl.gpu") is not None
        and importlib.util.find_spec("conccl.gpu.bench") is not None
    )


BACKENDS: Mapping[str, Backend] = {
    "sim": Backend(is_available=lambda: True, open=_simulated),
    "gpu": Backend(is_available=_has_gpu_executor, open=_measured),
}
"""Executors by the names that commands take."""
