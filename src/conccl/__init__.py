"""Make computation and communication on GPUs really overlap.

``import conccl`` loads nothing but this file; a public name brings in what it needs when it is first used,
so that reading traces never pays for PyTorch.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC: dict[str, str] = {
    "Analysis": "conccl.advise.analysis",
    "analyze": "conccl.advise.analyze",
    "ConcclError": "conccl.core.errors",
    "InputError": "conccl.core.errors",
    "Overlap": "conccl.core.metrics",
    "Plan": "conccl.core.plan",
    "Task": "conccl.core.plan",
    "Timeline": "conccl.core.timeline",
    "ChosenIterations": "conccl.integrations.iterations.chosen",
    "IterationRecorder": "conccl.integrations.iterations.recorder",
    "ColumnParallelLinear": "conccl.integrations.fused.linear",
    "RowParallelLinear": "conccl.integrations.fused.linear",
    "all_gather_gemm": "conccl.integrations.fused.functions",
    "gemm_all_reduce": "conccl.integrations.fused.functions",
    "gemm_all_to_all": "conccl.integrations.fused.functions",
    "gemm_offload": "conccl.integrations.fused.functions",
    "gemm_reduce_scatter": "conccl.integrations.fused.functions",
    "prefetch_gemm": "conccl.integrations.fused.functions",
    "replicated_gemm": "conccl.integrations.fused.functions",
    "BackendOptions": "conccl.integrations.process_group",
    "GemmQueue": "conccl.integrations.together.queue",
    "matmul_together": "conccl.integrations.together.matmul",
    "register_backend": "conccl.integrations.register",
    "all_gather": "conccl.integrations.functions",
    "all_reduce": "conccl.integrations.functions",
    "all_to_all": "conccl.integrations.functions",
    "barrier": "conccl.integrations.functions",
    "broadcast": "conccl.integrations.functions",
    "gather": "conccl.integrations.functions",
    "recv": "conccl.integrations.functions",
    "reduce": "conccl.integrations.functions",
    "reduce_scatter": "conccl.integrations.functions",
    "scatter": "conccl.integrations.functions",
    "send": "conccl.integrations.functions",
}
"""Public name -> the module that holds it."""

__all__ = ["__version__", *sorted(_PUBLIC)]  # noqa: PLE0604 (names are strings, the table says so)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'conccl' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
