"""What each op of a plan is on a GPU: buffers once, then launches into the current stream.

Operands are random and several sets of them take turns, so that none is found in L2. GEMMs are cuBLAS'
through PyTorch, cut into rows where a task has parts; copies go by copy engines or by a kernel of one CTA an
SM. Where one GPU stands for several, a collective is a copy inside its memory of what one rank sends.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from conccl.core.errors import InputError
from conccl.core.hardware import Device
from conccl.core.kinds import DType, Memory, Pass, RowwiseKind
from conccl.core.metrics import bus_factor
from conccl.core.ops import Attention, Collective, Copy, Elementwise, Gemm, Move, Reduce, Rowwise, Signal
from conccl.core.plan import Engine, Task
from conccl.core.units import MIB
from conccl.gpu.toolkit import launch
from conccl.strategies.heuristics import communication_sms

TYPES = {
    DType.BF16: torch.bfloat16,
    DType.FP16: torch.float16,
    DType.FP32: torch.float32,
    DType.FP64: torch.float64,
}

WHERE = "cuda"
"""The device of all buffers; tests run what needs no kernel of ours on the CPU."""

MOST_SETS = 4
MOST_NBYTES = 2048 * MIB
"""Beyond this a set of operands is not doubled: it does not fit in L2 anyway."""

COPY_THREADS = 512
COPY_SHARED = 120 * 1024
"""More than half an SM's shared memory: two CTAs never share one; packed, they are several times slower."""

WORD = 16
"""Bytes that the copy kernel moves at a time."""

TOLERANCE = 2e-2
CHECKED_ROWS = 16


class Work(abc.ABC):
    """One task's op with its buffers."""

    @abc.abstractmethod
    def launch(self, part: int, parts: int, /) -> None:
        """Put one part into the current stream."""

    def next_turn(self) -> None:  # noqa: B027 (what has one set does nothing)
        """Use the next set of operands from now on."""

    def wrong(self) -> str:
        """What is wrong with the last results; empty where they are right."""
        return ""


def work_of(task: Task, device: Device, /) -> Work:  # noqa: PLR0911 (one for each kind of op)
    """The work of a task; `InputError` where the executor cannot do it."""
    op = task.op
    match op:
        case Gemm():
            return _GemmWork(op)
        case Elementwise():
            return _ElementwiseWork(op)
        case Rowwise() if op.direction is Pass.FORWARD:
            return _RowwiseWork(op)
        case Attention() if op.direction is Pass.FORWARD:
            return _AttentionWork(op)
        case Copy():
            return _copy_work(op, task, device)
        case Collective():
            sent = round(op.nbytes * bus_factor(kind=op.kind, ranks=op.ranks))
            return _copy_work(Copy(nbytes=sent), task, device)
        case Move():
            return _copy_work(Copy(nbytes=op.source.nbytes), task, device)
        case Reduce():
            return _ReduceWork(op.destination.nbytes, sources=len(op.sources))
        case Signal():
            return _Nothing()
        case _:
            raise InputError(
                f"the GPU executor cannot run {type(op).__name__} yet (task {task.id!r}). Give a binding for"
                " it, or use --executor sim."
            )


class _Nothing(Work):
    def launch(self, _part: int, _parts: int, /) -> None:
        """Events do all of it."""


def _sets(nbytes: int) -> int:
    """So many sets that the others push one out of a 60 MiB L2, within reason."""
    if nbytes > MOST_NBYTES:
        return 1
    return max(2, min(MOST_SETS, -(-128 * MIB // max(1, nbytes))))


@dataclass(slots=True)
class _Turns(Work):
    """Sets of tensors that take turns."""

    sets: list[Any] = field(default_factory=list)
    turn: int = 0

    def next_turn(self) -> None:
        """The next set."""
        self.turn = (self.turn + 1) % len(self.sets)

    @property
    def now(self) -> Any:
        """The set whose turn it is."""
        return self.sets[self.turn]


class _GemmWork(_Turns):
    """out = a b^T, a row chunk a part."""

    def __init__(self, op: Gemm, /) -> None:
        if op.dtype not in TYPES:
            raise InputError(f"the GPU executor multiplies {', '.join(TYPES)}, not {op.dtype}.")
        kind = TYPES[op.dtype]
        sets = []
        for _ in range(_sets(op.nbytes)):
            a = torch.randn(op.batch, op.m, op.k, dtype=kind, device=WHERE)
            b = torch.randn(op.batch, op.n, op.k, dtype=kind, device=WHERE)
            sets.append((a, b, torch.empty(op.batch, op.m, op.n, dtype=kind, device=WHERE)))
        super().__init__(sets)
        self._op = op

    def launch(self, part: int, parts: int, /) -> None:
        """Its rows, in whole tiles where there are enough."""
        a, b, out = self.now
        m = self._op.m
        first, last = m * part // parts, m * (part + 1) // parts
        if last > first and self._op.batch == 1:
            torch.mm(a[0, first:last], b[0].t(), out=out[0, first:last])
        elif last > first:
            torch.bmm(a[:, first:last], b.transpose(1, 2), out=out[:, first:last])

    def wrong(self) -> str:
        """A few rows against double precision."""
        a, b, out = self.now
        rows = slice(0, min(CHECKED_ROWS, self._op.m))
        exact = a[0, rows].double() @ b[0].double().t()
        error = float((out[0, rows].double() - exact).abs().max() / exact.abs().max())
        return "" if error < TOLERANCE else f"the GEMM's rows are off by {error:.1%} of their largest value"


class _ElementwiseWork(_Turns):
    """An addition or a copy of as many bytes."""

    def __init__(self, op: Elementwise, /) -> None:
        self._adds = op.read_nbytes >= 2 * op.written_nbytes > 0
        count = max(1, op.written_nbytes // 2)
        if not self._adds and op.read_nbytes != op.written_nbytes:
            raise InputError(
                f"the GPU executor runs elementwise ops that add two inputs or copy one; {op.name!r} reads"
                f" {op.read_nbytes} bytes and writes {op.written_nbytes}."
            )
        inputs = 2 if self._adds else 1
        super().__init__(
            [
                (
                    [torch.randn(count, dtype=torch.bfloat16, device=WHERE) for _ in range(inputs)],
                    torch.empty(count, dtype=torch.bfloat16, device=WHERE),
                )
                for _ in range(_sets(op.nbytes))
            ]
        )

    def launch(self, part: int, parts: int, /) -> None:
        """Its share of the elements."""
        inputs, out = self.now
        piece = slice(len(out) * part // parts, len(out) * (part + 1) // parts)
        if self._adds:
            torch.add(inputs[0][piece], inputs[1][piece], out=out[piece])
        else:
            torch.neg(inputs[0][piece], out=out[piece])  # a kernel, where a copy might be an engine's


class _RowwiseWork(_Turns):
    def __init__(self, op: Rowwise, /) -> None:
        kind = TYPES.get(op.dtype, torch.bfloat16)
        self._op = op
        self._weight = torch.randn(op.cols, dtype=kind, device=WHERE)
        super().__init__(
            [torch.randn(op.rows, op.cols, dtype=kind, device=WHERE) for _ in range(_sets(op.nbytes))]
        )

    def launch(self, part: int, parts: int, /) -> None:
        """Its rows."""
        rows = self.now[self._op.rows * part // parts : self._op.rows * (part + 1) // parts]
        match self._op.kind:
            case RowwiseKind.RMS_NORM:
                functional.rms_norm(rows, (self._op.cols,), self._weight)
            case RowwiseKind.LAYER_NORM:
                functional.layer_norm(rows, (self._op.cols,), self._weight)
            case RowwiseKind.SOFTMAX:
                torch.softmax(rows, -1)
            case _:
                raise InputError(f"the GPU executor cannot run {self._op.kind} yet.")


class _AttentionWork(_Turns):
    def __init__(self, op: Attention, /) -> None:
        kind = TYPES.get(op.dtype, torch.bfloat16)
        self._op = op

        def random(heads: int, length: int) -> torch.Tensor:
            return torch.randn(op.batch, heads, length, op.head_dim, dtype=kind, device=WHERE)

        super().__init__(
            [
                (random(op.heads, op.queries), random(op.kv_heads, op.keys), random(op.kv_heads, op.keys))
                for _ in range(_sets(op.nbytes))
            ]
        )

    def launch(self, _part: int, parts: int, /) -> None:
        """A whole one only."""
        if parts > 1:
            raise InputError("the GPU executor runs attention as a whole; this task has parts.")
        query, key, value = self.now
        functional.scaled_dot_product_attention(
            query, key, value, is_causal=self._op.causal, enable_gqa=self._op.heads != self._op.kv_heads
        )


class _ReduceWork(Work):
    def __init__(self, nbytes: int, *, sources: int) -> None:
        count = max(1, nbytes // 2)
        self._out = torch.empty(count, dtype=torch.bfloat16, device=WHERE)
        self._sources = [
            torch.randn(count, dtype=torch.bfloat16, device=WHERE) for _ in range(max(2, sources))
        ]

    def launch(self, part: int, parts: int, /) -> None:
        """Its elements of the sum."""
        piece = slice(len(self._out) * part // parts, len(self._out) * (part + 1) // parts)
        torch.add(self._sources[0][piece], self._sources[1][piece], out=self._out[piece])
        for source in self._sources[2:]:
            self._out[piece].add_(source[piece])


def _copy_work(op: Copy, task: Task, device: Device) -> Work:
    source, destination = _bytes(op.source, op.nbytes), _bytes(op.destination, op.nbytes)
    if Memory.PEER in (op.source, op.destination):
        raise InputError("the GPU executor copies to peers in plans of several ranks only.")
    by_driver = op.source is op.destination and task.sms is None
    if task.engine is Engine.COPY_ENGINE or by_driver:
        return DriverCopyWork(destination, source)
    ctas = task.sms or communication_sms(op, device)
    return CopyKernelWork(destination, source, ctas=ctas)


def _bytes(memory: Memory, nbytes: int) -> torch.Tensor:
    """Random bytes, a whole number of words; pinned where they lie on the host."""
    whole = max(WORD, -(-nbytes // WORD) * WORD)
    if memory is Memory.HOST:
        return torch.randint(0, 255, (whole,), dtype=torch.uint8, pin_memory=WHERE == "cuda")
    return torch.randint(0, 255, (whole,), dtype=torch.uint8, device=WHERE)


@dataclass(slots=True)
class DriverCopyWork(Work):
    """``cudaMemcpyAsync``: whether a copy engine or SMs do it, the occupancy test says."""

    destination: torch.Tensor
    source: torch.Tensor

    def launch(self, part: int, parts: int, /) -> None:
        """Its share of the bytes."""
        piece = _piece(self.source, part, parts)
        self.destination[piece].copy_(self.source[piece], non_blocking=True)

    def wrong(self) -> str:
        """Every byte."""
        return _differs(self.destination, self.source)


class CopyKernelWork(Work):
    """A kernel with one CTA on each of so many SMs; it notes where and when they run."""

    def __init__(self, destination: torch.Tensor, source: torch.Tensor, /, *, ctas: int) -> None:
        self.destination, self.source, self.ctas = destination, source, ctas
        self.sm_ids = torch.full((ctas,), -1, dtype=torch.int32, device=WHERE)
        self.started = torch.zeros(1, dtype=torch.int32, device=WHERE)
        self._fresh = torch.tensor([2**62, 0, 0], dtype=torch.int64, device=WHERE)
        self.times = self._fresh.clone()

    def reset(self) -> None:
        """Forget what was noted, in the current stream."""
        self.started.zero_()
        self.times.copy_(self._fresh)

    def launch(self, part: int, parts: int, /) -> None:
        """Its share of the bytes."""
        piece = _piece(self.source, part, parts)
        into, out_of = self.destination[piece], self.source[piece]
        if not len(into):
            return
        launch(
            "conccl_copy",
            *(into.data_ptr(), out_of.data_ptr(), len(into) // WORD),
            *(self.sm_ids.data_ptr(), self.started.data_ptr(), self.times.data_ptr()),
            grid=self.ctas,
            block=COPY_THREADS,
            stream=torch.cuda.current_stream().cuda_stream,
            shared_nbytes=COPY_SHARED,
        )

    def wrong(self) -> str:
        """Every byte, and that no two CTAs shared an SM."""
        shared = self.ctas - len(set(self.sm_ids.tolist()))
        if shared:
            return f"{shared} of the copy kernel's {self.ctas} CTAs shared an SM with another"
        return _differs(self.destination, self.source)


def _piece(tensor: torch.Tensor, part: int, parts: int) -> slice:
    words = len(tensor) // WORD
    return slice(words * part // parts * WORD, words * (part + 1) // parts * WORD)


def _differs(destination: torch.Tensor, source: torch.Tensor) -> str:
    if torch.equal(destination.to(WHERE), source.to(WHERE)):
        return ""
    return "the copy's bytes differ from what was copied"
