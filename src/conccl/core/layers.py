"""Ops of networks beside GEMM and attention: convolution, recurrence, lookup, pooling, order, updates."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from conccl.core.checks import require_not_negative, require_positive
from conccl.core.errors import InputError
from conccl.core.kinds import ConvolutionPass, DType, Fusion, OptimizerKind, OrderKind, Pass, RecurrentKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution over one to three spatial dimensions; sizes are those of the forward pass."""

    batch: int
    in_channels: int
    out_channels: int
    in_size: tuple[int, ...]
    """Spatial sizes of the input."""
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    direction: ConvolutionPass = ConvolutionPass.FORWARD
    dtype: DType = DType.BF16
    channels_last: bool = False
    """NHWC in memory; the fast kernels want it and others convert."""

    def __post_init__(self) -> None:
        require_positive(self, "batch", "in_channels", "out_channels", "groups")
        shapes = (self.kernel_size, self.stride, self.padding, self.dilation)
        if not self.in_size or any(len(shape) != len(self.in_size) for shape in shapes):
            raise InputError(
                f"Convolution: in_size has {len(self.in_size)} dimensions; kernel_size, stride, padding and"
                " dilation need a number for each."
            )
        if min(*self.kernel_size, *self.stride, *self.dilation) < 1 or min(self.padding) < 0:
            raise InputError(
                f"Convolution: kernel {self.kernel_size}, stride {self.stride} and dilation {self.dilation}"
                f" must be 1 or more, padding {self.padding} 0 or more."
            )
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise InputError(
                f"Convolution: {self.in_channels} and {self.out_channels} channels do not divide"
                f" into {self.groups} groups."
            )
        if min(self.out_size) < 1:
            raise InputError(
                f"Convolution: an input of {self.in_size} is smaller than its kernel {self.kernel_size}."
            )

    @property
    def out_size(self) -> tuple[int, ...]:
        """Spatial sizes of the output."""
        return tuple(
            (size + 2 * pad - step * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, pad, step in zip(
                self.in_size, self.kernel_size, self.stride, self.padding, self.dilation, strict=True
            )
        )

    @property
    def input_numel(self) -> int:
        """Elements of the input."""
        return self.batch * self.in_channels * prod(self.in_size)

    @property
    def weight_numel(self) -> int:
        """Elements of the weight."""
        return self.out_channels * self.in_channels // self.groups * prod(self.kernel_size)

    @property
    def output_numel(self) -> int:
        """Elements of the output."""
        return self.batch * self.out_channels * prod(self.out_size)

    @property
    def flops(self) -> int:
        """Those of the GEMM that it is, in every direction."""
        return 2 * self.output_numel * self.in_channels // self.groups * prod(self.kernel_size)

    @property
    def nbytes(self) -> int:
        """Input, weight and output, or their gradients, once each."""
        return (self.input_numel + self.weight_numel + self.output_numel) * self.dtype.nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent:
    """A recurrent network over whole sequences, as one call of the vendor's library."""

    kind: RecurrentKind
    batch: int
    steps: int
    input_size: int
    hidden_size: int
    layers: int = 1
    ways: int = 1
    """2 where it also runs backwards through time (bidirectional)."""
    direction: Pass = Pass.FORWARD
    dtype: DType = DType.BF16

    def __post_init__(self) -> None:
        require_positive(self, "batch", "steps", "input_size", "hidden_size", "layers", "ways")

    @property
    def weight_numel(self) -> int:
        """Elements of all weight matrices."""
        first = self.input_size + self.hidden_size
        other = self.ways * self.hidden_size + self.hidden_size
        return self.ways * self.kind.gates * self.hidden_size * (first + (self.layers - 1) * other)

    @property
    def flops(self) -> int:
        """Every weight times every step and sequence; twice that backward."""
        passes = 1 if self.direction is Pass.FORWARD else 2
        return passes * 2 * self.weight_numel * self.batch * self.steps

    @property
    def nbytes(self) -> int:
        """Weights, inputs and each layer's outputs once, twice that backward."""
        passes = 1 if self.direction is Pass.FORWARD else 2
        outputs = self.layers * self.ways * self.hidden_size
        values = self.weight_numel + self.batch * self.steps * (self.input_size + outputs)
        return passes * values * self.dtype.nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Gather:
    """Rows looked up in a table (embedding, index_select); backward: added into one (index_add)."""

    rows: int
    """Rows looked up."""
    cols: int
    """Elements of a row."""
    table_rows: int
    direction: Pass = Pass.FORWARD
    dtype: DType = DType.BF16

    def __post_init__(self) -> None:
        require_positive(self, "rows", "cols", "table_rows")

    @property
    def flops(self) -> int:
        """An addition an element backward."""
        return 0 if self.direction is Pass.FORWARD else self.rows * self.cols

    @property
    def nbytes(self) -> int:
        """Indices and rows read, rows written."""
        return self.rows * (8 + 2 * self.cols * self.dtype.nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling:
    """Maximum or average over windows."""

    batch: int
    channels: int
    in_size: tuple[int, ...]
    out_size: tuple[int, ...]
    window: int
    """Elements of one window."""
    direction: Pass = Pass.FORWARD
    dtype: DType = DType.BF16
    channels_last: bool = False
    name: str = "max_pool"
    """What is taken of a window: "max_pool", "avg_pool"; "upsample" where outputs are more than inputs."""

    def __post_init__(self) -> None:
        require_positive(self, "batch", "channels", "window")
        if (
            not self.in_size
            or len(self.in_size) != len(self.out_size)
            or min(*self.in_size, *self.out_size) < 1
        ):
            raise InputError(
                f"Pooling from {self.in_size} to {self.out_size}: give equally many sizes above 0."
            )

    @property
    def flops(self) -> int:
        """One operation for each element of each window."""
        return self.batch * self.channels * prod(self.out_size) * self.window

    @property
    def nbytes(self) -> int:
        """Input read and output written, or the other way round."""
        return self.batch * self.channels * (prod(self.in_size) + prod(self.out_size)) * self.dtype.nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A sort, top-k or scan along each of ``rows`` rows."""

    kind: OrderKind
    rows: int
    cols: int
    dtype: DType = DType.FP32
    interleaved: bool = False
    """Whether rows lie interleaved in memory, as columns do: a thread then goes down each of them."""

    def __post_init__(self) -> None:
        require_positive(self, "rows", "cols")

    @property
    def flops(self) -> int:
        """One operation an element."""
        return self.rows * self.cols

    @property
    def nbytes(self) -> int:
        """Read once, written once."""
        return 2 * self.rows * self.cols * self.dtype.nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ForEach:
    """One elementwise operation over many tensors by few kernels (torch._foreach_*, a fused optimizer)."""

    name: str
    numel: int
    """Elements of all tensors of one list."""
    tensors: int
    """Tensors of one list."""
    reads: int
    """Lists read."""
    writes: int
    """Lists written; 0: a norm, which writes a number a tensor."""
    dtype: DType = DType.FP32

    def __post_init__(self) -> None:
        require_positive(self, "tensors")
        require_not_negative(self, "numel", "reads", "writes")

    @property
    def flops(self) -> int:
        """One operation for each element read."""
        return self.reads * self.numel

    @property
    def nbytes(self) -> int:
        """Every list once."""
        return (self.reads + self.writes) * self.numel * self.dtype.nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStep:
    """One update of ``numel`` parameters that lie in so many tensors."""

    kind: OptimizerKind
    numel: int
    tensors: int = 1
    fusion: Fusion = Fusion.FOREACH
    dtype: DType = DType.FP32
    """Of parameters and gradients."""
    state_dtype: DType = DType.FP32

    def __post_init__(self) -> None:
        require_positive(self, "tensors")
        require_not_negative(self, "numel")

    @property
    def states(self) -> int:
        """Values kept for each parameter."""
        return _STATES[self.kind]

    @property
    def flops(self) -> int:
        """About a dozen operations a parameter."""
        return 12 * self.numel

    @property
    def nbytes(self) -> int:
        """In one pass: gradient read, parameter and states read and written."""
        return self.numel * (3 * self.dtype.nbytes + 2 * self.states * self.state_dtype.nbytes)


_STATES = {
    OptimizerKind.SGD: 0,
    OptimizerKind.MOMENTUM: 1,
    OptimizerKind.ADAM: 2,
    OptimizerKind.ADAMW: 2,
    OptimizerKind.ADAGRAD: 1,
    OptimizerKind.RMSPROP: 1,
}
