"""How many kernels and memsets the calls of cuBLAS, cuDNN and CUB are, as profiles of an H200 show them.

These are counts, not times: they decide what a launch costs the host. Rules without another source were read
off the kernels in ``benchmarks/data/h200-sxm/2026-11-30`` (cuBLAS 13.0, cuDNN 9.19, PyTorch 2.11).
"""

from __future__ import annotations

from math import prod

from conccl.core.hardware import Device
from conccl.core.kinds import ConvolutionPass, DType, Pass
from conccl.core.ops import Attention, Convolution, Gemm, Recurrent
from conccl.costs.kernels import kernels_of

TILE_NUMEL = 40_000
"""Output elements of cuBLAS's usual tile: what tells 1090 of 1117 measured products right."""

STATIC_TILES = 2 * 132
"""With more tiles CTAs draw them from a counter in memory, which is cleared first."""

ALIGNMENT = 16
"""Bytes to which rows must be aligned for the fast kernels."""


def gemm_launches(op: Gemm, device: Device, /) -> int:
    """The kernel, and the one that adds parts where the library splits the K loop."""
    return len(kernels_of(op, device))


def counts_tiles(op: Gemm, /) -> bool:
    """Whether a memset of four bytes stands before the kernel."""
    aligned = (op.n * op.output_dtype.nbytes) % ALIGNMENT == 0
    wide = op.dtype not in (DType.FP32, DType.FP64)
    return wide and aligned and op.m * op.n * op.batch > STATIC_TILES * TILE_NUMEL


def attention_launches(op: Attention, /) -> int:
    """Beside the kernel: random state, a cleared counter, and backward what prepares and converts."""
    if op.direction is Pass.BACKWARD:
        return 4 + 2 * (op.kv_heads < op.heads)
    if op.queries == 1:  # no counter; few heads are split along the keys and joined by a second kernel
        return 2 if op.batch * op.heads < 132 else 1
    return 2 + op.dropout


def convolution_launches(op: Convolution, /) -> int:
    """The kernel with what stands around it: layout changes, padding, counters, parts that are added."""
    if op.groups == op.in_channels > 1:
        return 2 if op.direction is ConvolutionPass.WEIGHT_GRADIENT and op.channels_last else 1
    if min(op.in_channels, op.out_channels) < 8:
        return _narrow_launches(op)
    if op.channels_last and op.dtype is not DType.FP32:
        return _channels_last_launches(op)
    return _channels_first_launches(op)


def _narrow_launches(op: Convolution) -> int:
    """Three channels: padded to eight where tensor cores are used."""
    large = max(op.kernel_size) > 4
    if op.direction is ConvolutionPass.FORWARD:
        return 5 if op.channels_last else 4 if large else 1
    if op.direction is ConvolutionPass.WEIGHT_GRADIENT:
        return 6 if op.channels_last else 7 if op.dtype is not DType.FP32 or large else 2
    return 7 if op.channels_last else 2


def _counts(op: Convolution) -> bool:
    """Whether a counter of tiles is cleared first."""
    if op.direction is ConvolutionPass.INPUT_GRADIENT and max(op.stride) > 1:
        return True
    return prod(op.kernel_size) > 1 and _tiles(op) > STATIC_TILES


def _tiles(op: Convolution) -> int:
    if op.direction is ConvolutionPass.INPUT_GRADIENT:
        pixels, channels = op.batch * prod(op.in_size), op.in_channels
    else:
        pixels, channels = op.batch * prod(op.out_size), op.out_channels
    return -(-pixels // 128) * -(-channels // 128)


def _channels_last_launches(op: Convolution) -> int:
    if op.direction is ConvolutionPass.WEIGHT_GRADIENT:
        return 2
    return 1 + _counts(op)


def _channels_first_launches(op: Convolution) -> int:
    """Kernels want channels last: input and weight are converted, the result converted back."""
    pointwise = prod(op.kernel_size) == 1 and max(op.stride) == 1
    aligned = prod(op.in_size) % 2 == 0
    if op.direction is ConvolutionPass.WEIGHT_GRADIENT:
        return 5 if not pointwise else 2 if aligned else 3
    if pointwise:
        many = op.dtype is DType.FP32 and prod(op.in_size) >= 784
        return (1 if aligned else 3) + (many and _tiles(op) > STATIC_TILES)
    return 4 + _counts(op)


PERSISTENT_HIDDEN = 128
"""fp32 layers up to this size stay in one kernel for all steps."""

SPLIT_GATES = 3072
"""Gates times hidden size from which on the backward GEMM of a step is two kernels in half precision."""


def recurrent_launches(op: Recurrent, /) -> int:
    """Two kernels a step, layer and way forward; two or three backward."""
    single = op.dtype is DType.FP32
    if single and op.hidden_size <= PERSISTENT_HIDDEN:
        return op.layers * op.ways * (3 if op.direction is Pass.FORWARD else 10)
    cells = op.steps * op.layers * op.ways
    stacked = 10 * op.layers if op.layers > 1 else 4
    if op.direction is Pass.FORWARD:
        return 2 * cells + stacked + (0 if single else 4 * op.layers * op.ways)
    gates = op.kind.gates * op.hidden_size
    if single:
        split = op.hidden_size > 256 and op.batch > 1
    else:
        split = gates >= SPLIT_GATES or op.hidden_size % 8 != 0
    return (3 if split else 2) * cells + 2 * stacked


SINGLE_TILE_KEYS = 1 << 12
"""CUB sorts up to about this many keys in one kernel."""


def sort_launches(keys: int, /, *, key_bits: int) -> int:
    """CUB's radix sort: a histogram and its sum, then a memset and a kernel for each 8 bits of a key."""
    return 1 if keys < SINGLE_TILE_KEYS else 4 + 2 * -(-key_bits // 8)
