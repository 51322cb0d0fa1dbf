"""A transformer layer as ops: what one GPU computes and communicates under a parallelism.

GEMM shapes are [tokens, out features, in features] of one GPU. With tensor parallelism (Shoeybi et al. 2019,
arXiv:1909.08053) the first matrix of each block is split by columns and the second by rows; with sequence
parallelism (Korthikanti et al. 2022, arXiv:2205.05198) norms work on a slice of the sequence, and the
all-reduce behind each block becomes a reduce-scatter behind it and an all-gather before the next.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from conccl.core.errors import InputError
from conccl.core.ops import (
    Attention,
    Collective,
    CollectiveKind,
    DType,
    Elementwise,
    Gemm,
    Op,
    Pass,
    Rowwise,
)
from conccl.workloads.models import Transformer
from conccl.workloads.parallel import Parallelism

NBYTES = DType.BF16.nbytes
"""Weights, activations and gradients are bf16."""


class Group(enum.StrEnum):
    """Whom a collective joins; ``NONE`` for computation."""

    NONE = "none"
    TP = "tp"
    FSDP = "fsdp"
    DP = "dp"
    EP = "ep"
    PP = "pp"


class Phase(enum.StrEnum):
    """What is done with the model."""

    TRAINING = "training"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one model replica works on at a time: one micro-batch."""

    sequences: int
    length: int
    """Tokens of one sequence; in decoding, those already in the cache."""
    phase: Phase = Phase.TRAINING

    def __post_init__(self) -> None:
        if self.sequences < 1 or self.length < 1:
            raise InputError(
                f"a batch of {self.sequences} sequences of {self.length}: both must be 1 or more."
            )

    @property
    def queries(self) -> int:
        """Tokens of one sequence that go through the layer."""
        return 1 if self.phase is Phase.DECODE else self.length

    @property
    def tokens(self) -> int:
        """Tokens that go through the layer."""
        return self.sequences * self.queries


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOp:
    """One op of a layer, in program order."""

    name: str
    op: Op
    direction: Pass = Pass.FORWARD
    group: Group = Group.NONE
    weight_gradient: bool = False
    """A GEMM that only a later gradient reduction waits for."""


def forward(
    model: Transformer, /, *, layer: int, parallelism: Parallelism, batch: Batch
) -> tuple[LayerOp, ...]:
    """The layer's ops on one GPU, in order."""
    shard = _Shard(model=model, parallelism=parallelism, batch=batch)
    block = shard.experts() if model.is_expert_layer(layer=layer) else shard.feed_forward()
    return (*shard.attention(), *block)


def backward(
    model: Transformer, /, *, layer: int, parallelism: Parallelism, batch: Batch
) -> tuple[LayerOp, ...]:
    """The gradients of the layer's ops, last op first: for each GEMM one by its input, one by its weight."""
    ops: list[LayerOp] = []
    for item in reversed(forward(model, layer=layer, parallelism=parallelism, batch=batch)):
        ops.extend(_gradients(item))
    return tuple(ops)


def parameter_gather(model: Transformer, /, *, layer: int, parallelism: Parallelism) -> Collective | None:
    """FSDP's all-gather of the layer's weights; None where nothing is sharded."""
    return _parameters(CollectiveKind.ALL_GATHER, model, layer=layer, parallelism=parallelism)


def gradient_scatter(model: Transformer, /, *, layer: int, parallelism: Parallelism) -> Collective | None:
    """FSDP's reduce-scatter of the layer's gradients, or the replicas' all-reduce; None where neither is."""
    if parallelism.fsdp > 1:
        return _parameters(CollectiveKind.REDUCE_SCATTER, model, layer=layer, parallelism=parallelism)
    if parallelism.dp > 1:
        nbytes = _layer_nbytes(model, layer=layer, parallelism=parallelism)
        return Collective(kind=CollectiveKind.ALL_REDUCE, nbytes=nbytes, ranks=parallelism.dp)
    return None


def _parameters(
    kind: CollectiveKind, model: Transformer, /, *, layer: int, parallelism: Parallelism
) -> Collective | None:
    if parallelism.fsdp == 1:
        return None
    nbytes = _layer_nbytes(model, layer=layer, parallelism=parallelism)
    return Collective(kind=kind, nbytes=nbytes, ranks=parallelism.fsdp)


def _layer_nbytes(model: Transformer, /, *, layer: int, parallelism: Parallelism) -> int:
    block = model.ffn_parameters(layer=layer)
    if model.is_expert_layer(layer=layer):
        block //= parallelism.ep
    return (model.attention_parameters + block) // parallelism.tp * NBYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shard:
    """One GPU's share of a layer."""

    model: Transformer
    parallelism: Parallelism
    batch: Batch

    def attention(self) -> tuple[LayerOp, ...]:
        """Norm, projections, attention, output projection, residual."""
        width = self._heads * self.model.head_dim
        return (
            self._norm("attention.norm"),
            *self._enter("attention"),
            *self._projections(),
            LayerOp(name="attention.core", op=self._core()),
            LayerOp(name="attention.output", op=self._gemm(n=self.model.hidden, k=width)),
            *self._leave("attention"),
        )

    def feed_forward(self) -> tuple[LayerOp, ...]:
        """Norm, up (and gate), activation, down, residual."""
        inner = self.model.ffn // self.parallelism.tp
        return (
            self._norm("ffn.norm"),
            *self._enter("ffn"),
            LayerOp(name="ffn.up", op=self._gemm(n=self._up_matrices * inner, k=self.model.hidden)),
            self._activation("ffn.activation", numel=self.batch.tokens * inner),
            LayerOp(name="ffn.down", op=self._gemm(n=self.model.hidden, k=inner)),
            *self._leave("ffn"),
        )

    def experts(self) -> tuple[LayerOp, ...]:
        """Norm, router, dispatch, the local experts as a batch of GEMMs, combine, residual."""
        model, tokens = self.model, self.batch.tokens
        routed = tokens * model.experts_per_token
        local = model.experts // self.parallelism.ep
        rows = max(1, routed * self.parallelism.ep // model.experts)
        inner = max(1, model.expert_ffn // self.parallelism.tp)
        up = Gemm(m=rows, n=self._up_matrices * inner, k=model.hidden, batch=local)
        down = Gemm(m=rows, n=model.hidden, k=inner, batch=local)
        return (
            self._norm("ffn.norm"),
            *self._enter("ffn"),
            LayerOp(name="experts.router", op=self._gemm(n=model.experts, k=model.hidden)),
            self._touch("experts.permute", numel=routed * model.hidden),
            *self._exchange("experts.dispatch", routed=routed),
            LayerOp(name="experts.up", op=up),
            self._activation("experts.activation", numel=local * rows * inner),
            LayerOp(name="experts.down", op=down),
            *self._exchange("experts.combine", routed=routed),
            self._touch("experts.unpermute", numel=routed * model.hidden),
            *self._shared_experts(),
            *self._leave("ffn"),
        )

    def _shared_experts(self) -> tuple[LayerOp, ...]:
        if not self.model.shared_experts:
            return ()
        inner = max(1, self.model.shared_experts * self.model.expert_ffn // self.parallelism.tp)
        return (
            LayerOp(name="shared.up", op=self._gemm(n=self._up_matrices * inner, k=self.model.hidden)),
            self._activation("shared.activation", numel=self.batch.tokens * inner),
            LayerOp(name="shared.down", op=self._gemm(n=self.model.hidden, k=inner)),
        )

    @property
    def _heads(self) -> int:
        return self.model.heads // self.parallelism.tp

    @property
    def _kv_heads(self) -> int:
        return max(1, self.model.kv_heads // self.parallelism.tp)

    @property
    def _up_matrices(self) -> int:
        return 2 if self.model.gated else 1

    @property
    def _sliced(self) -> bool:
        """Whether norms see a slice of the sequence (nothing to slice while decoding)."""
        return (
            self.parallelism.tp > 1
            and self.parallelism.sequence_parallel
            and self.batch.phase is not Phase.DECODE
        )

    def _gemm(self, *, n: int, k: int) -> Gemm:
        return Gemm(m=self.batch.tokens, n=max(1, n), k=max(1, k))

    def _projections(self) -> tuple[LayerOp, ...]:
        model = self.model
        if model.kv_rank:
            wide = model.head_dim + model.rope_dim
            latent = model.query_rank + model.kv_rank + model.rope_dim
            return (
                LayerOp(name="attention.latent", op=self._gemm(n=latent, k=model.hidden)),
                LayerOp(
                    name="attention.query",
                    op=self._gemm(n=self._heads * wide, k=model.query_rank or model.hidden),
                ),
                LayerOp(
                    name="attention.key_value",
                    op=self._gemm(n=self._heads * 2 * model.head_dim, k=model.kv_rank),
                ),
                self._touch("attention.rope", numel=self.batch.tokens * self._heads * model.rope_dim),
            )
        columns = (self._heads + 2 * self._kv_heads) * model.head_dim
        rope = self.batch.tokens * (self._heads + self._kv_heads) * model.head_dim
        qkv = LayerOp(name="attention.qkv", op=self._gemm(n=columns, k=model.hidden))
        return (qkv,) if model.positions else (qkv, self._touch("attention.rope", numel=rope))

    def _core(self) -> Attention:
        return Attention(
            batch=self.batch.sequences,
            heads=self._heads,
            kv_heads=self._heads if self.model.kv_rank else self._kv_heads,
            queries=self.batch.queries,
            keys=self.batch.length,
            head_dim=self.model.head_dim + self.model.rope_dim,
            causal=self.model.causal and self.batch.phase is not Phase.DECODE,
        )

    def _norm(self, name: str) -> LayerOp:
        rows = self.batch.tokens // (self.parallelism.tp if self._sliced else 1)
        return LayerOp(name=name, op=Rowwise(kind=self.model.norm, rows=max(1, rows), cols=self.model.hidden))

    def _activation(self, name: str, *, numel: int) -> LayerOp:
        read = self._up_matrices * numel * NBYTES
        return LayerOp(
            name=name,
            op=Elementwise(name="activation", read_nbytes=read, written_nbytes=numel * NBYTES, numel=numel),
        )

    def _touch(self, name: str, *, numel: int) -> LayerOp:
        nbytes = numel * NBYTES
        return LayerOp(
            name=name,
            op=Elementwise(
                name=name.rpartition(".")[2], read_nbytes=nbytes, written_nbytes=nbytes, numel=numel
            ),
        )

    def _enter(self, block: str) -> tuple[LayerOp, ...]:
        """What tensor parallelism does before a block's first GEMM."""
        return (self._over_tp(f"{block}.gather", CollectiveKind.ALL_GATHER),) if self._sliced else ()

    def _leave(self, block: str) -> tuple[LayerOp, ...]:
        """What it does behind the last one, and the residual addition."""
        rows = self.batch.tokens // (self.parallelism.tp if self._sliced else 1)
        nbytes = max(1, rows) * self.model.hidden * NBYTES
        residual = LayerOp(
            name=f"{block}.residual",
            op=Elementwise(name="add", read_nbytes=2 * nbytes, written_nbytes=nbytes, numel=nbytes // NBYTES),
        )
        if self.parallelism.tp == 1:
            return (residual,)
        kind = CollectiveKind.REDUCE_SCATTER if self._sliced else CollectiveKind.ALL_REDUCE
        return (self._over_tp(f"{block}.reduce", kind), residual)

    def _over_tp(self, name: str, kind: CollectiveKind) -> LayerOp:
        nbytes = self.batch.tokens * self.model.hidden * NBYTES
        return LayerOp(
            name=name, op=Collective(kind=kind, nbytes=nbytes, ranks=self.parallelism.tp), group=Group.TP
        )

    def _exchange(self, name: str, *, routed: int) -> tuple[LayerOp, ...]:
        if self.parallelism.ep == 1:
            return ()
        nbytes = routed * self.model.hidden * NBYTES
        op = Collective(kind=CollectiveKind.ALL_TO_ALL, nbytes=nbytes, ranks=self.parallelism.ep)
        return (LayerOp(name=name, op=op, group=Group.EP),)


_MIRROR = {
    CollectiveKind.ALL_GATHER: CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.REDUCE_SCATTER: CollectiveKind.ALL_GATHER,
}
"""The gradient of gathering is scattering the sum, and the other way round; the others mirror themselves."""


def _gradients(item: LayerOp) -> tuple[LayerOp, ...]:
    op = item.op
    if isinstance(op, Gemm):
        by_input = Gemm(m=op.m, n=op.k, k=op.n, batch=op.batch, dtype=op.dtype)
        by_weight = Gemm(m=op.n, n=op.k, k=op.m, batch=op.batch, dtype=op.dtype)
        return (
            LayerOp(name=f"{item.name}.dgrad", op=by_input, direction=Pass.BACKWARD),
            LayerOp(name=f"{item.name}.wgrad", op=by_weight, direction=Pass.BACKWARD, weight_gradient=True),
        )
    return (LayerOp(name=f"{item.name}.grad", op=_gradient(op), direction=Pass.BACKWARD, group=item.group),)


def _gradient(op: Op) -> Op:
    if isinstance(op, Attention):
        return Attention(
            batch=op.batch,
            heads=op.heads,
            kv_heads=op.kv_heads,
            queries=op.queries,
            keys=op.keys,
            head_dim=op.head_dim,
            causal=op.causal,
            direction=Pass.BACKWARD,
            dtype=op.dtype,
        )
    if isinstance(op, Rowwise):
        return Rowwise(kind=op.kind, rows=op.rows, cols=op.cols, direction=Pass.BACKWARD, dtype=op.dtype)
    if isinstance(op, Collective):
        return Collective(
            kind=_MIRROR.get(op.kind, op.kind), nbytes=op.nbytes, ranks=op.ranks, dtype=op.dtype
        )
    if isinstance(op, Elementwise):
        # reads the incoming gradient beside what forward read, and writes as much as forward read
        return Elementwise(
            name=f"{op.name}_backward",
            read_nbytes=op.read_nbytes + op.written_nbytes,
            written_nbytes=op.read_nbytes,
            flops=op.flops,
            numel=op.numel,
        )
    return op
