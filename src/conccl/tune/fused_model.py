"""The fused operators of a model's layer: each GEMM with the collective that it feeds or needs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from conccl.core.errors import InputError
from conccl.core.kinds import CollectiveKind
from conccl.core.ops import Collective, Gemm
from conccl.core.plan import Engine
from conccl.tune.fused_problem import Call, Problem
from conccl.workloads.layers import Group, LayerOp, Phase, backward, forward
from conccl.workloads.steps import Workload, layer_kinds

_FEEDING = {
    CollectiveKind.REDUCE_SCATTER: Call.GEMM_REDUCE_SCATTER,
    CollectiveKind.ALL_REDUCE: Call.GEMM_ALL_REDUCE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCall:
    """A call, and where in the model it is."""

    name: str
    problem: Problem


def calls_of_model(workload: Workload, /, *, mover: Engine = Engine.SM) -> tuple[NamedCall, ...]:
    """The calls of one layer of each kind, equal ones once, in the order of the program."""
    found: dict[Problem, NamedCall] = {}
    for kind in layer_kinds(workload.model):
        spread, batch = workload.parallelism, workload.batch
        passes = [forward(workload.model, layer=kind.index, parallelism=spread, batch=batch)]
        if batch.phase is Phase.TRAINING:
            passes.append(backward(workload.model, layer=kind.index, parallelism=spread, batch=batch))
        for ops in passes:
            for call in _calls(ops):
                problem = dataclasses.replace(call.problem, mover=mover)
                found.setdefault(problem, NamedCall(name=call.name, problem=problem))
    if not found:
        raise InputError(
            f"{workload.model.name} with this parallelism has no GEMM that feeds a collective or is fed by"
            " one. Give --tp above 1."
        )
    return tuple(found.values())


def _calls(ops: tuple[LayerOp, ...]) -> Iterator[NamedCall]:
    """GEMMs beside a collective of tensor parallelism; a weight's gradient in between needs neither."""
    chain = [item for item in ops if not item.weight_gradient]
    for before, after in itertools.pairwise(chain):
        if after.group is Group.TP and isinstance(before.op, Gemm) and isinstance(after.op, Collective):
            call = _FEEDING.get(after.op.kind)
            if call is not None:
                yield _named(before, before.op, call, after.op.ranks)
        gather = before.op if before.group is Group.TP and isinstance(before.op, Collective) else None
        if gather is not None and isinstance(after.op, Gemm) and gather.kind is CollectiveKind.ALL_GATHER:
            yield _named(after, after.op, Call.ALL_GATHER_GEMM, gather.ranks)


def _named(item: LayerOp, gemm: Gemm, call: Call, ranks: int) -> NamedCall:
    shape = Problem(call=call, m=gemm.m * gemm.batch, n=gemm.n, k=gemm.k, world=ranks, dtype=gemm.dtype)
    return NamedCall(name=item.name, problem=shape)
