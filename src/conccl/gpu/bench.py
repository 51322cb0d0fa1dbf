"""The bench on a GPU: each cell in a process that a fault may cost, and the sweep goes on."""

from __future__ import annotations

import functools
from typing import Any

import conccl
from conccl.core.errors import ConcclError, InputError, MissingExtraError, WaitTimeoutError
from conccl.core.hardware import Device
from conccl.core.measurement import Environment, Measurement, Status
from conccl.core.plan import Plan
from conccl.gpu.machine import Machine
from conccl.gpu.measuring import Outcome
from conccl.gpu.worker import Worker, WorkerDiedError

SECONDS = 60.0
"""What one cell may take, its allocations and warm-up included."""


class GpuBench:
    """Measures plans by asking a worker that has the GPU."""

    def __init__(self, *, worker: Worker, environment: Environment, seconds: float = SECONDS) -> None:
        self._worker = worker
        self._environment = environment
        self._seconds = seconds

    @property
    def environment(self) -> Environment:
        """Where and with what."""
        return self._environment

    def measure(self, plan: Plan, /, *, label: str) -> Measurement:
        """All samples of the plan's span; failures are statuses, and cost the worker's process at most."""
        try:
            outcome: Outcome = self._worker.ask(plan, seconds=self._seconds)
        except InputError as error:
            return self._failed(label, Status.UNSUPPORTED, str(error))
        except WaitTimeoutError as error:
            self._worker.close()  # what hangs may still hold the GPU
            return self._failed(label, Status.TIMEOUT, str(error))
        except WorkerDiedError as error:
            return self._failed(label, Status.CRASHED, str(error))
        except ConcclError as error:
            self._worker.close()  # after a fault a CUDA context answers every call with it
            status = Status.OUT_OF_MEMORY if _is_out_of_memory(error) else Status.CRASHED
            return self._failed(label, status, str(error)[:500])
        return Measurement(
            label=label,
            samples_ns=outcome.samples_ns,
            environment=self._environment,
            status=outcome.status,
            reason=outcome.reason,
            proved=outcome.proved,
            proof=outcome.proof,
        )

    def _failed(self, label: str, status: Status, reason: str) -> Measurement:
        return Measurement(
            label=label, samples_ns=(), environment=self._environment, status=status, reason=reason
        )


def _is_out_of_memory(error: Exception) -> bool:
    return "out of memory" in str(error).lower()


def open_bench(*, device: Device, gpus: int) -> GpuBench:
    """The bench on this machine's GPU; an error where there is none, or another one than asked for."""
    worker = Worker(functools.partial(_start, device=device, gpus=gpus))
    try:
        machine: Machine = worker.ask("machine", seconds=SECONDS)
    except MissingExtraError:
        worker.close()
        raise
    except ConcclError as error:
        worker.close()
        raise InputError(f"no GPU can be used here: {error} Use --executor sim.") from error
    require_device(machine.name, device)
    return GpuBench(
        worker=worker,
        environment=Environment(
            executor="gpu",
            device=device.name,
            gpus=gpus,
            versions={"conccl": conccl.__version__, **machine.versions},
            emulated=gpus > 1,
        ),
    )


def require_device(found: str, device: Device, /) -> None:
    """Refuse to file one GPU's times under another one's name ("NVIDIA H200" is h200-sxm)."""
    model = device.name.partition("-")[0]
    if model.lower() not in found.lower().replace(" ", ""):
        raise InputError(
            f"this machine has {found}, not {device.name}. Give --device its own name, or a TOML file with"
            " a name that begins with the model."
        )


def _start(*, device: Device, gpus: int) -> Any:
    """In the worker: what answers a plan with an outcome."""
    try:
        from conccl.gpu.serving import Serving  # noqa: PLC0415 (loads PyTorch, in the worker only)
    except ModuleNotFoundError as error:
        raise MissingExtraError(module=error.name or "torch", extra="gpu") from error
    return Serving(device=device, gpus=gpus)
