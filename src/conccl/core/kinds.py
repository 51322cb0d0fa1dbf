"""Element types, and the kinds that ops come in."""

from __future__ import annotations

import enum


class DType(enum.StrEnum):
    """Element types, by the names that users type."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"
    TF32 = "tf32"
    FP64 = "fp64"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return _NBYTES[self]


_NBYTES = {
    DType.BF16: 2,
    DType.FP16: 2,
    DType.FP32: 4,
    DType.TF32: 4,
    DType.FP64: 8,
    DType.FP8_E4M3: 1,
    DType.FP8_E5M2: 1,
    DType.INT8: 1,
    DType.UINT8: 1,
    DType.INT16: 2,
    DType.INT32: 4,
    DType.INT64: 8,
    DType.BOOL: 1,
}


class CollectiveKind(enum.StrEnum):
    """Collectives, by their torch.distributed names."""

    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_REDUCE = "all_reduce"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND = "send"
    RECV = "recv"
    BARRIER = "barrier"


class ReduceOp(enum.StrEnum):
    """What a reducing collective does with the ranks' values."""

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"


class Pass(enum.StrEnum):
    """Which way through the network an op goes."""

    FORWARD = "forward"
    BACKWARD = "backward"


class Memory(enum.StrEnum):
    """Where bytes lie, seen from one GPU."""

    DEVICE = "device"
    HOST = "host"
    PEER = "peer"


class RowwiseKind(enum.StrEnum):
    """Kernels that reduce along each row."""

    LAYER_NORM = "layer_norm"
    RMS_NORM = "rms_norm"
    SOFTMAX = "softmax"
    LOG_SOFTMAX = "log_softmax"
    BATCH_NORM = "batch_norm"
    GROUP_NORM = "group_norm"


class Layout(enum.StrEnum):
    """How a GEMM's operands lie in memory, in the words of a row-major ``a @ b``: T is a transposed view."""

    NT = "nt"
    """Both contiguous along k: a linear layer forward."""
    NN = "nn"
    """a along k, b along n: the gradient of a linear layer's input."""
    TN = "tn"
    """a along m, b along n: the gradient of a linear layer's weight."""
    TT = "tt"


class Access(enum.StrEnum):
    """How an elementwise kernel can go through memory."""

    CONTIGUOUS = "contiguous"
    """All tensors dense, in one order, of one element type: vector loads and stores."""
    CASTING = "casting"
    """Dense, but the element types differ: one element a load."""
    STRIDED = "strided"
    """Some tensor is broadcast or sliced: offsets are computed for each element; neighbours stay so."""
    TRANSPOSED = "transposed"
    """Neighbours in one tensor lie apart in another: every element is an access of its own."""


class RecurrentKind(enum.StrEnum):
    """Cells of a recurrent network."""

    LSTM = "lstm"
    GRU = "gru"
    RNN = "rnn"

    @property
    def gates(self) -> int:
        """Matrices of one cell: what its hidden size is multiplied by."""
        return {RecurrentKind.LSTM: 4, RecurrentKind.GRU: 3, RecurrentKind.RNN: 1}[self]


class ConvolutionPass(enum.StrEnum):
    """Which way through the network a convolution goes; a transposed one is the input's gradient."""

    FORWARD = "forward"
    INPUT_GRADIENT = "input_gradient"
    WEIGHT_GRADIENT = "weight_gradient"


class OptimizerKind(enum.StrEnum):
    """Parameter updates."""

    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAM = "adam"
    ADAMW = "adamw"
    ADAGRAD = "adagrad"
    RMSPROP = "rmsprop"


class Fusion(enum.StrEnum):
    """How many kernels an optimizer step becomes."""

    FUSED = "fused"
    """One pass over everything."""
    FOREACH = "foreach"
    """One kernel an operation, each over many tensors."""
    SINGLE = "single"
    """One kernel an operation and tensor."""


class OrderKind(enum.StrEnum):
    """Kernels whose output depends on the order of values along a row."""

    SORT = "sort"
    TOPK = "topk"
    SCAN = "scan"


class AttentionBackend(enum.StrEnum):
    """Which fused kernel does an attention."""

    DEFAULT = "default"
    """What the framework picks on the device."""
    FLASH = "flash"
    EFFICIENT = "efficient"
    CUDNN = "cudnn"
