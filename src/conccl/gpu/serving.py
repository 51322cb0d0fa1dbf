"""What runs in the process that has the GPU: it answers every plan with what measuring it gave."""

from __future__ import annotations

import subprocess
from typing import Any

import torch

from conccl.core.errors import ExecutionError, InputError
from conccl.core.hardware import Device
from conccl.core.plan import Plan
from conccl.gpu.cuda_driver import CudaDriver
from conccl.gpu.executor import GpuExecutor
from conccl.gpu.machine import Machine
from conccl.gpu.measuring import Outcome, measured
from conccl.gpu.probes.clocks import reasons
from conccl.gpu.sampling import Stopping


class Serving:
    """Answers requests on one GPU; of a plan of several ranks, the first one's part is run.

    The other ranks would do the same at the same time on GPUs of their own: what rank 0 sends and receives is
    then copied inside this GPU's memory, and the environment says "emulated".
    """

    def __init__(self, *, device: Device, gpus: int) -> None:
        if not torch.cuda.is_available():
            raise ExecutionError(f"PyTorch {torch.__version__} sees no CUDA GPU.")
        torch.cuda.init()
        self._device = device
        self._gpus = gpus

    def __call__(self, request: Any, /) -> Machine | Outcome:
        """A machine's description, or the outcome of a plan."""
        if request == "machine":
            return self._machine()
        if not isinstance(request, Plan):
            raise InputError(f"the GPU's process was asked for {request!r}; it takes plans.")
        executor = GpuExecutor(
            driver=CudaDriver(device=self._device),
            device=self._device.name,
            ranks=(request.ranks[0],) if len(request.ranks) > 1 else None,
        )
        try:
            return measured(request, executor=executor, stopping=Stopping(), slowed=_slowed)
        finally:
            torch.cuda.empty_cache()

    def _machine(self) -> Machine:
        nccl = torch.cuda.nccl.version() if torch.distributed.is_nccl_available() else ()
        versions = {
            "torch": torch.__version__,
            "cuda": str(torch.version.cuda),
            "driver": (_asked("driver_version") or ["unknown"])[0],
            "nccl": ".".join(map(str, nccl)) or "none",
        }
        return Machine(name=torch.cuda.get_device_name(0), gpus=torch.cuda.device_count(), versions=versions)


def _slowed() -> list[str]:
    return [why for line in _asked("clocks_event_reasons.active") for why in reasons(line)]


def _asked(field: str) -> list[str]:
    """What nvidia-smi says of every GPU; nothing where it is not there."""
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
