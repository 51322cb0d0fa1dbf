"""Convolutions: as GEMMs over patches, with layouts converted around them where channels come first.

Each pass is a product: forward, outputs by output channels over taps and input channels; of the input's
gradient, inputs by input channels; of the weights' gradient, output channels by taps and input channels over
all outputs, cut into parts. Operands are read from memory once: patches overlap in L2. Where the kernel is a
single tap, it is a GEMM; where each channel has its own, a stream.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import NamedTuple

from conccl.core.hardware import Device
from conccl.core.kinds import ConvolutionPass, DType, Layout
from conccl.core.ops import Convolution, Gemm
from conccl.costs.constants import constant
from conccl.costs.gemm import gemm_kernels, peak_flops
from conccl.costs.kernel import CtaGroup, CtaWork, Footprint, KernelCost, kernel_cost
from conccl.costs.streaming import Stream, streaming_kernel
from conccl.costs.tiles import BLOCK_NBYTES

TILES = ((256, 128), (128, 256), (128, 192), (128, 128), (128, 64), (64, 128), (64, 64), (256, 32))
"""Tiles of cuDNN's kernels on the H200 (their names)."""

LEAST_STEPS = 4
"""Of the K loop of a weight gradient, for each CTA."""

FEW_CHANNELS = 8
"""Below so many, kernels of few channels do it."""


def _filled(channels: int, in_nbytes: int) -> int:
    """Channels are filled up to 16 bytes."""
    return max(channels, 16 // in_nbytes)


TILED_DEPTHWISE = 0.36
"""Instructions of cuDNN's depthwise kernel, which PyTorch takes for fp16 at stride 1 and channels first, over
those of PyTorch's own (MobileNet V2 on the H200, 2026-11-30)."""

SHORT = {
    ConvolutionPass.FORWARD: "forward",
    ConvolutionPass.INPUT_GRADIENT: "dgrad",
    ConvolutionPass.WEIGHT_GRADIENT: "wgrad",
}


class Product(NamedTuple):
    """The product that a pass is, for each group of channels."""

    m: int
    n: int
    taps: float
    """Of the K loop: positions of the kernel, each with `depth` channels."""
    depth: int
    reads: int
    """Elements of both operands."""
    writes: int


def convolution_kernels(op: Convolution, device: Device, /) -> tuple[KernelCost, ...]:
    """Conversions of layouts, the product, and the sum of its parts."""
    if op.groups == op.in_channels > 1:
        return (_depthwise(op, device),)
    if op.dtype is DType.FP32 and DType.TF32 in device.peak_flops:
        op = replace(op, dtype=DType.TF32)  # as cuDNN is allowed to, unless told otherwise
    if _is_product(op):
        return _plain(op, device)
    product = _product(op)
    kernels = [_conversion(numel, op, device) for numel in _converted(op)]
    before = 2 if len(kernels) > 1 else len(kernels)
    kind = f"convolution_{SHORT[op.direction]}" + ("_tf32" if op.dtype is DType.TF32 else "")
    if min(op.in_channels, op.out_channels) < FEW_CHANNELS:
        kind = f"convolution_{SHORT[op.direction]}_few"
    main = _tiled_kernel(kind, op, product, device)
    added = [_sum_of_parts(product, op, device)] if op.direction is ConvolutionPass.WEIGHT_GRADIENT else []
    return (*kernels[:before], main, *added, *kernels[before:])


def _is_product(op: Convolution) -> bool:
    """A kernel of one tap, whose rows are of even length: a GEMM over the tensor as it lies in memory."""
    single = prod(op.kernel_size) == prod(op.stride) == op.groups == 1 and not any(op.padding)
    aligned = op.channels_last or prod(op.in_size) % 2 == 0
    return single and aligned


def _plain(op: Convolution, device: Device) -> tuple[KernelCost, ...]:
    """One GEMM over all images where channels come last; otherwise one for each image, in one call."""
    positions, inner, outer = prod(op.in_size), op.in_channels, op.out_channels
    weights = op.direction is ConvolutionPass.WEIGHT_GRADIENT
    if op.direction is ConvolutionPass.INPUT_GRADIENT:
        inner, outer = outer, inner
    if not op.channels_last:
        if weights:
            gemm = Gemm(m=outer, n=inner, k=positions, batch=op.batch, dtype=op.dtype, out_dtype=DType.FP32)
            read, written = 4 * op.batch * op.weight_numel, op.dtype.nbytes * op.weight_numel
            stream = Stream(
                read_nbytes=read, written_nbytes=written, ctas=-(-op.weight_numel // 128), threads=128
            )
            added = streaming_kernel("convolution_sum", stream, device)
            return (*gemm_kernels(gemm, device), added)
        layout = Layout.NN if op.direction is ConvolutionPass.FORWARD else Layout.TN
        gemm = Gemm(m=outer, n=positions, k=inner, batch=op.batch, dtype=op.dtype, layout=layout)
        return gemm_kernels(gemm, device)
    if weights:
        gemm = Gemm(m=outer, n=inner, k=op.batch * positions, dtype=op.dtype, layout=Layout.TN)
    else:
        layout = Layout.NT if op.direction is ConvolutionPass.FORWARD else Layout.NN
        gemm = Gemm(m=op.batch * positions, n=outer, k=inner, dtype=op.dtype, layout=layout)
    return gemm_kernels(gemm, device)


def _product(op: Convolution) -> Product:
    outputs, inputs = op.batch * prod(op.out_size), op.batch * prod(op.in_size)
    taps = float(prod(op.kernel_size))
    inner, outer = op.in_channels // op.groups, op.out_channels // op.groups
    if op.direction is ConvolutionPass.FORWARD:
        read = op.input_numel * min(1.0, taps / prod(op.stride))  # strides may step over some
        return Product(outputs, outer, taps, inner, round(read) + op.weight_numel, op.output_numel)
    if op.direction is ConvolutionPass.INPUT_GRADIENT:
        met = taps / prod(op.stride)  # outputs that an input meets; below 1: only so many meet one
        rows = max(1, round(inputs * min(met, 1.0)))
        read = op.output_numel + op.weight_numel
        return Product(rows, inner, max(met, 1.0), outer, read, op.input_numel)
    return Product(
        outer, round(taps * inner), 1.0, outputs, op.input_numel + op.output_numel, op.weight_numel
    )


def _converted(op: Convolution) -> tuple[int, ...]:
    """Elements of the tensors whose layout changes: two before, one after; few channels are filled up."""
    filled = _filled(op.in_channels, _in_nbytes(op)) / op.in_channels
    inputs, weights = round(op.input_numel * filled), round(op.weight_numel * filled)
    if op.channels_last:
        if filled == 1:
            return ()
        return (weights, inputs) if op.direction is ConvolutionPass.INPUT_GRADIENT else (inputs, weights)
    tensors = {
        ConvolutionPass.FORWARD: (inputs, weights, op.output_numel),
        ConvolutionPass.INPUT_GRADIENT: (op.output_numel, weights, inputs),
        ConvolutionPass.WEIGHT_GRADIENT: (op.output_numel, inputs, weights),
    }
    return tensors[op.direction]


def _in_nbytes(op: Convolution) -> int:
    return 4 if op.dtype is DType.TF32 else op.dtype.nbytes


def _conversion(numel: int, op: Convolution, device: Device) -> KernelCost:
    """A kernel that turns channels first into channels last, or back, in blocks of 32 x 32."""
    nbytes = numel * max(op.dtype.nbytes, 2)
    if op.dtype is DType.TF32:
        nbytes = numel * 4
    stream = Stream(
        read_nbytes=nbytes,
        written_nbytes=nbytes,
        ctas=-(-numel // 1024),
        threads=256,
        elements=numel,
        shared_memory_nbytes=4224,
    )
    return streaming_kernel("convolution_layout", stream, device)


def _depthwise(op: Convolution, device: Device) -> KernelCost:
    """Each channel by itself: instructions for each output and tap."""
    kind = f"depthwise_{SHORT[op.direction]}_{'last' if op.channels_last else 'first'}"
    weights = op.direction is ConvolutionPass.WEIGHT_GRADIENT
    produced = op.input_numel if op.direction is ConvolutionPass.INPUT_GRADIENT else op.output_numel
    nbytes = (op.input_numel + op.output_numel) * op.dtype.nbytes
    written = 0 if weights else produced * op.dtype.nbytes
    tiled = not op.channels_last and op.dtype is DType.FP16 and max(op.stride) == 1
    stream = Stream(
        read_nbytes=nbytes - written,
        written_nbytes=written,
        ctas=max(1, produced // 1024),
        threads=256,
        elements=produced * prod(op.kernel_size) * (TILED_DEPTHWISE if tiled and not weights else 1.0),
    )
    return streaming_kernel(kind, stream, device)


def _tiled_kernel(kind: str, op: Convolution, product: Product, device: Device) -> KernelCost:
    """The product by the tile with which it ends first."""
    weights = op.direction is ConvolutionPass.WEIGHT_GRADIENT
    in_nbytes = _in_nbytes(op)
    depth = BLOCK_NBYTES // in_nbytes
    filled = _filled(product.depth, in_nbytes)
    steps = product.taps * -(-filled // depth)
    if product.depth < depth:  # several taps in one step
        steps = product.taps * filled / depth
    share = constant(device, f"{kind}.rate_share")
    issued = peak_flops(op.dtype, device) * share / device.sm_count / 1e9
    step_ns, cta_ns = constant(device, f"{kind}.step_ns"), constant(device, f"{kind}.cta_ns")

    def cost(tile: tuple[int, int]) -> tuple[float, int, float]:
        m, n = tile
        tiles = op.groups * -(-product.m // m) * -(-product.n // n)
        block_ns = max(2 * m * n * depth / issued, step_ns)
        if weights:  # each CTA takes an equal part of all tiles' K loops
            count = max(1, min(device.sm_count, int(tiles * steps / LEAST_STEPS)))
            return tiles * steps / count * block_ns + cta_ns, count, tiles * steps / count
        waves = -(-tiles // device.sm_count)
        return waves * (steps * block_ns + cta_ns), tiles, steps

    tile = min(TILES, key=lambda each: cost(each)[0])
    _, count, own_steps = cost(tile)
    body_ns = own_steps * max(2 * tile[0] * tile[1] * depth / issued, step_ns)
    work = CtaWork(
        latency_ns=cta_ns,
        sm_ns=body_ns,
        hbm_read_nbytes=product.reads * in_nbytes / count,
        hbm_write_nbytes=product.writes * (4 if weights else in_nbytes) / count,
        l2_nbytes=own_steps * (tile[0] + tile[1]) * BLOCK_NBYTES / 2,
        flops=op.flops / count,
    )
    stages = 4 * (tile[0] + tile[1]) * BLOCK_NBYTES
    return kernel_cost(
        kind,
        device=device,
        groups=(CtaGroup(count=count, work=work),),
        footprint=Footprint(
            threads=384,
            registers=device.registers_per_sm,
            shared_memory_nbytes=min(stages, device.shared_memory_nbytes),
        ),
        ctas_per_sm=1,
        fixed_ns=constant(device, f"{kind}.start_ns"),
        uncertainty=constant(device, f"{kind}.uncertainty"),
        model=kind,
        l2_footprint_nbytes=min(float(op.nbytes), device.l2_nbytes),
    )


def _sum_of_parts(product: Product, op: Convolution, device: Device) -> KernelCost:
    """Adds the parts of a weight gradient."""
    numel = product.m * product.n * op.groups
    parts = max(1, device.sm_count // max(1, -(-numel // 128**2)))
    stream = Stream(
        read_nbytes=4 * numel * parts,
        written_nbytes=op.dtype.nbytes * numel,
        ctas=-(-numel // 1024),
        threads=128,
    )
    return streaming_kernel("convolution_sum", stream, device)
