"""The options with which commands take a model, and how it is spread over GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from conccl.workloads.steps import Workload

Tp = Annotated[int, typer.Option("--tp", help="Tensor-parallel ranks.")]
Pp = Annotated[int, typer.Option("--pp", help="Pipeline stages.")]
Dp = Annotated[int, typer.Option("--dp", help="Replicas.")]
Fsdp = Annotated[int, typer.Option("--fsdp", help="Ranks that parameters are sharded over.")]
Ep = Annotated[int, typer.Option("--ep", help="Ranks that experts are spread over.")]
Microbatches = Annotated[int, typer.Option("--microbatches", help="Micro-batches of one step.")]
Sequences = Annotated[int, typer.Option("--sequences", help="Sequences of one micro-batch of a replica.")]
Length = Annotated[
    int, typer.Option("--length", help="Tokens of a sequence; decoding: already in the cache.")
]
Interleaving = Annotated[int, typer.Option("--interleaving", help="Virtual pipeline stages of each GPU.")]
RecomputeName = Annotated[
    str, typer.Option("--recompute", help="none, attention or full: computed again going backward.")
]
AttentionName = Annotated[str, typer.Option("--attention", help="fused or unfused kernels.")]
PhaseName = Annotated[str, typer.Option("--phase", help="training, prefill or decode.")]


def workload_of(
    name: str,
    /,
    *,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    fsdp: int = 1,
    ep: int = 1,
    microbatches: int = 1,
    interleaving: int = 1,
    recompute: str = "none",
    attention: str = "fused",
    sequences: int = 1,
    length: int = 4096,
    phase: str = "training",
    gpus: int | None = None,
) -> Workload:
    """The model of this name or configuration file, spread as asked for; errors say which sizes fit."""
    from conccl.core.errors import UnknownNameError  # noqa: PLC0415
    from conccl.workloads.layers import Batch, Phase  # noqa: PLC0415
    from conccl.workloads.models import model  # noqa: PLC0415
    from conccl.workloads.parallel import Parallelism  # noqa: PLC0415
    from conccl.workloads.steps import AttentionKernels, Recompute, Workload  # noqa: PLC0415

    if phase not in set(Phase):
        raise UnknownNameError(kind="phase", name=phase, known=[one.value for one in Phase])
    if recompute not in set(Recompute):
        raise UnknownNameError(kind="recomputation", name=recompute, known=[one.value for one in Recompute])
    if attention not in set(AttentionKernels):
        raise UnknownNameError(
            kind="attention", name=attention, known=[one.value for one in AttentionKernels]
        )
    found = model(name)
    parallelism = Parallelism(
        tp=tp, pp=pp, dp=dp, fsdp=fsdp, ep=ep, microbatches=microbatches, interleaving=interleaving
    )
    parallelism.require_fits(found, gpus=gpus)
    return Workload(
        model=found,
        parallelism=parallelism,
        batch=Batch(sequences=sequences, length=length, phase=Phase(phase)),
        recompute=Recompute(recompute),
        attention=AttentionKernels(attention),
    )
