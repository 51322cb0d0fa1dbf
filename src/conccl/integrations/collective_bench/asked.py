"""What is to be measured, and whether it can be here."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from conccl.core.errors import InputError, MissingExtraError, UnknownNameError
from conccl.core.kinds import CollectiveKind

BACKENDS = {"cpu": ("conccl", "gloo"), "cuda": ("nccl",)}
"""Device -> backends that can be measured on it, the default first."""
TRANSPORTS = ("host",)
"""What the backend conccl moves bytes by; others are known by name and refused."""
_OTHER_TRANSPORTS = {"peer": "peers' GPU memory", "nccl": "NCCL's copy-engine collectives"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """A sweep over sizes of one collective."""

    kind: CollectiveKind
    sizes: tuple[int, ...]
    ranks: int
    backend: str
    device: str = "cpu"
    dtype: str = "float"
    redop: str = ""
    """Empty where nothing is reduced."""
    root: int = 0
    iterations: int = 20
    warmup: int = 5
    check: bool = True
    timeout_s: float = 60.0
    """Of each call, and of the silence of all ranks after which they are given up."""


def settled(*, device: str, backend: str | None, transport: str | None, ranks: int | None) -> tuple[str, int]:
    """The backend and the number of ranks; refuses what cannot be measured here, saying why."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError(module="torch", extra="torch")
    if device not in BACKENDS:
        raise UnknownNameError(kind="device", name=device, known=BACKENDS)
    chosen = backend or ("nccl" if transport == "nccl" and device == "cuda" else BACKENDS[device][0])
    if chosen not in {one for row in BACKENDS.values() for one in row}:
        raise UnknownNameError(
            kind="backend", name=chosen, known=[one for row in BACKENDS.values() for one in row]
        )
    if transport is not None:
        _check_transport(transport, chosen)
    gpus = _gpus() if device == "cuda" else 0
    if chosen not in BACKENDS[device]:
        able = " or ".join(BACKENDS[device])
        why = "takes CPU tensors only" if chosen in BACKENDS["cpu"] else "takes CUDA tensors only"
        raise InputError(
            f"backend {chosen!r} {why}. Use --device {'cpu' if device == 'cuda' else 'cuda'}, or"
            f" --backend {able}."
        )
    count = ranks if ranks is not None else (gpus if device == "cuda" else 2)
    if count < 1:
        raise InputError(f"--nproc {count}; give 1 or more.")
    if device == "cuda" and count > gpus:
        raise InputError(f"--nproc {count} with {gpus} GPUs; NCCL takes one rank a GPU. Give {gpus} or less.")
    return chosen, count


def _check_transport(transport: str, backend: str) -> None:
    if transport not in (*TRANSPORTS, *_OTHER_TRANSPORTS):
        raise UnknownNameError(kind="transport", name=transport, known=(*TRANSPORTS, *_OTHER_TRANSPORTS))
    if backend == "conccl" and transport in _OTHER_TRANSPORTS:
        raise InputError(
            f"transport {transport!r} ({_OTHER_TRANSPORTS[transport]}) does not exist yet; backend"
            " 'conccl' has 'host', for CPU tensors. To measure NCCL itself use --backend nccl --device cuda."
        )
    if backend != "conccl" and not (backend == "nccl" and transport == "nccl"):
        raise InputError(
            f"--transport {transport} is of backend 'conccl'; --backend {backend} has none to choose."
        )


def _gpus() -> int:
    import torch  # noqa: PLC0415 (only where GPUs are asked for)

    if not torch.cuda.is_available():
        built = (
            "this PyTorch is built without CUDA"
            if torch.version.cuda is None
            else "it finds no driver or GPU"
        )
        raise InputError(f"--device cuda needs a CUDA GPU, and PyTorch sees none: {built}. Use --device cpu.")
    return torch.cuda.device_count()
