"""Recurrent networks as one cuDNN call, single cells, and connectionist temporal classification."""

from __future__ import annotations

from collections.abc import Iterator

from conccl.core.kinds import Access, Pass, RecurrentKind
from conccl.core.ops import Elementwise, Recurrent, Reduction
from conccl.workloads.capture.kernels.call import AtenCall, Rule
from conccl.workloads.capture.kernels.libraries import recurrent_launches
from conccl.workloads.capture.tensors import dtype_of, touched_nbytes
from conccl.workloads.captured import Kernel

_MODES = {0: RecurrentKind.RNN, 1: RecurrentKind.RNN, 2: RecurrentKind.LSTM, 3: RecurrentKind.GRU}
"""cudnnRNNMode_t."""


def _recurrent(direction: Pass) -> Rule:
    def rule(call: AtenCall) -> Iterator[Kernel]:
        tensor = call.args[0]
        packed = call.argument("batch_sizes")
        if packed:
            steps, batch = len(packed), max(1, int(tensor.shape[0]) // len(packed))
        else:
            first = bool(call.argument("batch_first"))
            steps, batch = int(tensor.shape[1 if first else 0]), int(tensor.shape[0 if first else 1])
        op = Recurrent(
            kind=_MODES[int(call.argument("mode"))],
            batch=batch,
            steps=steps,
            input_size=int(tensor.shape[-1]),
            hidden_size=int(call.argument("hidden_size")),
            layers=int(call.argument("num_layers")),
            ways=2 if call.argument("bidirectional") else 1,
            direction=direction,
            dtype=dtype_of(tensor),
        )
        yield call.kernel(op, launches=recurrent_launches(op))

    return rule


def _cell(call: AtenCall) -> Iterator[Kernel]:
    yield call.elementwise(access=Access.CONTIGUOUS)


def _cell_backward(call: AtenCall) -> Iterator[Kernel]:
    """One kernel, and the bias's gradient as a sum."""
    gates = call.outputs[0]
    yield call.elementwise(writes=call.outputs[:2], access=Access.CONTIGUOUS)
    op = Reduction(outer=1, reduced=int(gates.shape[0]), inner=int(gates.shape[-1]), dtype=dtype_of(gates))
    yield call.kernel(op)


def _ctc(call: AtenCall) -> Iterator[Kernel]:
    """Steps follow each other within a kernel: alpha forward, beta and the collection backward."""
    backward = call.name == "_ctc_loss_backward"
    probabilities = call.inputs[1 if backward else 0]
    steps, batch = int(probabilities.shape[0]), int(probabilities.shape[1])
    yield call.kernel(Reduction(outer=batch, reduced=32 * steps, dtype=dtype_of(probabilities)))
    if backward:
        nbytes = touched_nbytes(probabilities)
        op = Elementwise(
            name="ctc_gradient",
            read_nbytes=4 * nbytes,
            written_nbytes=nbytes,
            numel=probabilities.numel(),
            access=Access.TRANSPOSED,
        )
        yield call.kernel(op, launches=3)


RULES: dict[str, Rule] = {
    "_cudnn_rnn": _recurrent(Pass.FORWARD),
    "_cudnn_rnn_backward": _recurrent(Pass.BACKWARD),
    "_thnn_fused_lstm_cell": _cell,
    "_thnn_fused_gru_cell": _cell,
    "_thnn_fused_lstm_cell_backward_impl": _cell_backward,
    "_thnn_fused_gru_cell_backward": _cell_backward,
    "_ctc_loss": _ctc,
    "_ctc_loss_backward": _ctc,
}
