"""Recurrent networks as one cuDNN call, and connectionist temporal classification."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from conccl.core.kinds import Pass, RecurrentKind
from conccl.core.ops import Recurrent, Reduction
from conccl.workloads.capture.kernels.call import AtenCall
from conccl.workloads.capture.tensors import dtype_of
from conccl.workloads.captured import Kernel

_MODES = {0: RecurrentKind.RNN, 1: RecurrentKind.RNN, 2: RecurrentKind.LSTM, 3: RecurrentKind.GRU}
"""cudnnRNNMode_t."""


def _recurrent(direction: Pass) -> Callable[[AtenCall], Iterator[Kernel]]:
    def rule(call: AtenCall) -> Iterator[Kernel]:
        tensor = call.args[0]
        packed = call.argument("batch_sizes")
        batch_first = bool(call.argument("batch_first"))
        if packed:
            steps, batch = len(packed), max(1, int(tensor.shape[0]) // len(packed))
        else:
            steps, batch = (
                int(tensor.shape[1 if batch_first else 0]),
                int(tensor.shape[0 if batch_first else 1]),
            )
        yield call.kernel(
            Recurrent(
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
        )

    return rule


def _ctc(call: AtenCall) -> Iterator[Kernel]:
    probabilities = call.inputs[0] if call.name == "_ctc_loss" else call.inputs[1]
    steps, batch = int(probabilities.shape[0]), int(probabilities.shape[1])
    yield call.kernel(Reduction(outer=batch, reduced=steps, dtype=dtype_of(probabilities)))
    if call.name == "_ctc_loss_backward":
        yield call.elementwise(name="ctc_gradient", reads=[probabilities], writes=call.outputs)


RULES: dict[str, Any] = {
    "_cudnn_rnn": _recurrent(Pass.FORWARD),
    "_cudnn_rnn_backward": _recurrent(Pass.BACKWARD),
    "_ctc_loss": _ctc,
    "_ctc_loss_backward": _ctc,
}
