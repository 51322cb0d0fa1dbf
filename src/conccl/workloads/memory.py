"""Whether a workload fits into a GPU's memory: weights and what trains them, activations, the KV cache.

What is counted must be there; workspaces, fragments and the framework are not, so that what is refused could
not run.
"""

from __future__ import annotations

from conccl.core.errors import InputError
from conccl.core.hardware import Device
from conccl.core.units import format_bytes
from conccl.workloads.layers import NBYTES, Phase
from conccl.workloads.models import Transformer
from conccl.workloads.parallel import TRAINING_BYTES_PER_PARAMETER
from conccl.workloads.steps import AttentionKernels, Recompute, Workload

KEPT = {Recompute.NONE: 24, Recompute.ATTENTION: 24, Recompute.FULL: 2}
"""Bytes of a layer that training keeps for each token and hidden channel. Korthikanti et al. 2022
(arXiv:2205.05198, section 4.1) count 34 with dropout masks and unfused norms; those may be absent."""

SCORES = 5
"""Bytes that unfused attention keeps for each score (the same, equation 1)."""


def needed_nbytes(workload: Workload, /) -> dict[str, int]:
    """What one GPU holds at least, by what it is for."""
    training = workload.batch.phase is Phase.TRAINING
    weights = workload.parallelism.parameters_per_gpu(workload.model)
    needed = {"weights": weights * (TRAINING_BYTES_PER_PARAMETER if training else NBYTES)}
    needed |= {"activations": _kept_nbytes(workload)} if training else {"KV cache": _cache_nbytes(workload)}
    return needed


def require_memory(workload: Workload, device: Device, /) -> None:
    """Raise an InputError that says how much is missing where it does not fit."""
    needed = needed_nbytes(workload)
    missing = sum(needed.values()) - device.hbm_nbytes
    if missing <= 0:
        return
    parts = ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in needed.items() if nbytes)
    most = max(needed, key=needed.__getitem__)
    remedy = {
        "weights": "Raise --tp, --pp or --fsdp.",
        "activations": "Lower --sequences or --length, raise --tp or --pp, or use --recompute full.",
        "KV cache": "Lower --sequences or --length, or raise --tp or --pp.",
    }[most]
    raise InputError(
        f"{workload.model.name} needs {format_bytes(sum(needed.values()))} on each GPU ({parts});"
        f" {device.name} has {format_bytes(device.hbm_nbytes)}: {format_bytes(missing)} are missing. {remedy}"
    )


def _kept_nbytes(workload: Workload) -> int:
    """Activations of all micro-batches that the first pipeline stage has under way."""
    model, spread, batch = workload.model, workload.parallelism, workload.batch
    under_way = min(spread.pp, spread.microbatches)
    each = batch.tokens * model.hidden * KEPT[workload.recompute]
    if workload.attention is AttentionKernels.UNFUSED and workload.recompute is Recompute.NONE:
        each += SCORES * model.heads * batch.tokens * batch.length
    slices = spread.tp if spread.sequence_parallel or workload.recompute is not Recompute.FULL else 1
    return under_way * model.layers * each // (spread.pp * slices)


def _cache_nbytes(workload: Workload) -> int:
    """Keys and values of all tokens so far, in bf16."""
    model, spread, batch = workload.model, workload.parallelism, workload.batch
    tokens = batch.sequences * batch.length
    return tokens * model.layers * _cached_width(model, tp=spread.tp) * NBYTES // spread.pp


def _cached_width(model: Transformer, *, tp: int) -> int:
    """Values that one GPU keeps of a token and layer; latent attention keeps the latent, whole on each."""
    if model.kv_rank:
        return model.kv_rank + model.rope_dim
    return 2 * max(1, model.kv_heads // tp) * model.head_dim
