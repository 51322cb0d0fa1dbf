"""GEMM as a vendor's library does it: choice of kernel, tile and split, then waves over the SMs.

A CTA loops over K in steps of 128 bytes. A step takes what the slowest of matrix units, L2 and barriers
takes; the kernel what compute and HBM traffic together take, within the power limit. The library chooses tile
and split by its own estimate; here the model's estimate chooses. The benchmarks say how often both agree and
what the difference costs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from conccl.core.errors import InputError
from conccl.core.hardware import Device
from conccl.core.kinds import DType, Layout
from conccl.core.ops import Gemm, GroupedGemm
from conccl.costs.constants import constant
from conccl.costs.gemm_model import Estimate, Shapes, estimate, promising, rates
from conccl.costs.kernel import CtaGroup, CtaWork, Footprint, KernelCost, kernel_cost, least_ns_for
from conccl.costs.streaming import Stream, streaming_kernel
from conccl.costs.tiles import BLOCK_NBYTES, MOST_OUTPUTS, Numbers, Tiles, is_wide, square_tiles, wide_tiles

MULTICAST = 2.0
"""CTAs of a cluster that share a read of L2: cuBLAS' kernels on the H200 come in clusters of two and more."""

MEMORY_BOUND = 0.7
"""Of a kernel's time, what HBM traffic takes by itself where it is what sets the pace."""

PROMISING = 64
"""Candidates that are costed fully, where there are many: those with the lowest bounds."""

ADDED_BY_CTA = 4096
"""Outputs that one CTA adds the parts of (cuBLAS' splitKreduce_kernel has 512 threads of 8)."""

ALIGNMENT = 16
"""Bytes to which rows must be aligned for the library's fast kernels (tensor-map loads, 16-byte copies)."""


def family_of(op: Gemm | GroupedGemm, device: Device, /) -> str:
    """Which of the library's kernels can do it: by element type and alignment of rows.

    ``turned`` are odd rows of which not both operands lie along k, for which there are faster kernels.
    """
    vector = op.dtype not in device.peak_flops
    alignment = _row_alignment(op)
    if alignment >= ALIGNMENT and not vector and op.dtype is not DType.TF32:
        return "aligned"
    if isinstance(op, Gemm) and min(op.m, op.n) == 1 and op.k > 1 and op.batch == 1:
        return "gemv"
    if vector:
        return "vector"
    if alignment >= ALIGNMENT:
        return "tf32"
    if alignment >= 4:
        return "narrow"
    return "scalar" if op.layout is Layout.NT else "turned"


def peak_flops(dtype: DType, device: Device, /) -> float:
    """The data sheet's rate for the element type, on matrix units where the device has them for it."""
    if dtype in device.peak_flops:
        return device.peak_flops[dtype]
    if dtype in (DType.FP32, DType.TF32):
        return device.vector_flops
    if dtype in (DType.FP8_E4M3, DType.FP8_E5M2) or dtype.nbytes > 4:
        raise InputError(
            f"{device.name} multiplies no {dtype} matrices."
            f" It does {', '.join(device.peak_flops)}; give another dtype, or set peak_flops.{dtype}."
        )
    return device.vector_flops


def _row_alignment(op: Gemm | GroupedGemm) -> int:
    """The largest power of two, up to `ALIGNMENT`, that divides the rows of all three matrices, in bytes.

    The library may turn a product round, so that a single column counts as a row.
    """
    m = op.m if isinstance(op, Gemm) else 1
    layout = op.layout.value
    inputs = (op.k if layout[0] == "n" else m) | (op.k if layout[1] == "t" else op.n)
    size = op.output_dtype.nbytes if isinstance(op, Gemm) else op.dtype.nbytes
    out = (m if op.n == 1 else op.n) * size
    combined = (inputs * op.dtype.nbytes) | out
    return min(combined & -combined, ALIGNMENT)


def _candidates(family: str, device: Device, *, splits: bool) -> Tiles:
    kind = "wide" if family == "aligned" and is_wide(device) else family
    return _known_candidates(kind, device.shared_memory_nbytes, splits)


@functools.cache
def _known_candidates(kind: str, shared_memory_nbytes: int, splits: bool) -> Tiles:
    if kind == "wide":
        tiles = wide_tiles(shared_memory_nbytes)
    else:  # kernels without matrix units stage little in shared memory
        tiles = square_tiles(shared_memory_nbytes, shared=kind == "vector")
    return tiles if splits else tiles.where(tiles.split == 1)


def _may_split(op: Gemm | GroupedGemm, device: Device) -> bool:
    """Whether two parts of every output tile would still be no more than there are SMs, for large tiles."""
    outputs = op.m * op.n * op.batch if isinstance(op, Gemm) else sum(op.rows) * op.n
    return outputs < device.sm_count * MOST_OUTPUTS and op.k * op.dtype.nbytes > 4 * BLOCK_NBYTES


def gemm_ns(ops: Sequence[Gemm], device: Device, /) -> Numbers:
    """Isolated times of many GEMMs at once, as `gemm_kernels` has them one by one."""
    times = np.empty(len(ops))
    groups: dict[tuple[str, float, bool], list[int]] = {}
    for index, op in enumerate(ops):
        key = (family_of(op, device), peak_flops(op.dtype, device), _may_split(op, device))
        groups.setdefault(key, []).append(index)
    for (family, peak, splits), members in groups.items():
        if family == "gemv":
            times[members] = [_gemv(ops[index], device).isolated_ns for index in members]
            continue
        tiles = _candidates(family, device, splits=splits)
        for first in range(0, len(members), 128):
            some = members[first : first + 128]
            best, _, _ = _best(_shapes([ops[i] for i in some]), tiles, device, family=family, peak=peak)
            times[some] = best
    return times


def _shapes(ops: Sequence[Gemm]) -> Shapes:
    columns = np.array(
        [(op.m, op.n, op.k, op.batch, op.dtype.nbytes, op.output_dtype.nbytes) for op in ops],
        dtype=np.float64,
    )
    return Shapes(*(columns[:, [index]] for index in range(6)))


def _best(
    shapes: Shapes,
    tiles: Tiles,
    device: Device,
    *,
    family: str,
    peak: float,
    row_tiles: Numbers | None = None,
) -> tuple[Numbers, npt.NDArray[np.intp], Estimate]:
    """The least time of each shape, the place of its candidate, and the estimate of all."""
    rate = rates(device, family, peak)
    found = estimate(shapes, tiles, rate, row_tiles=row_tiles)
    score = found.total_ns * (1 + constant(device, "gemm.odd_tile") * tiles.odd)
    score = np.where((tiles.split == 1) | (found.tiles <= rate.sms), score, np.inf)
    chosen = score.argmin(axis=1)
    return found.total_ns[np.arange(len(chosen)), chosen], chosen, found


def gemm_kernels(op: Gemm, device: Device, /) -> tuple[KernelCost, ...]:
    """The GEMM's kernel, and the one that adds parts where its K loop is split."""
    family = family_of(op, device)
    if family == "gemv":
        return (_gemv(op, device),)
    return _kernels(op, _shapes([op]), device, family=family)


def promising_tiles(op: Gemm, device: Device, /, *, most: int) -> tuple[tuple[int, int], ...]:
    """Rows and columns of the tiles with the least estimated times, K not split; nothing for a vector.

    With fewer SMs, or beside others, it need not be the first one that is best.
    """
    family = family_of(op, device)
    if family == "gemv":
        return ()
    tiles = _candidates(family, device, splits=False)
    _, _, found = _best(_shapes([op]), tiles, device, family=family, peak=peak_flops(op.dtype, device))
    order = np.argsort(found.total_ns[0], kind="stable")[:most]
    return tuple((int(tiles.m[index]), int(tiles.n[index])) for index in order)


def gemm_kernel_of(op: Gemm, device: Device, /, *, tile: tuple[int, int]) -> KernelCost:
    """The GEMM's kernel with a tile of so many rows and columns, K not split."""
    family = family_of(op, device)
    tiles = _candidates(family, device, splits=False)
    found = tiles.where((tiles.m == tile[0]) & (tiles.n == tile[1]))
    if not len(found):
        raise InputError(f"no kernel of {device.name}'s library has tiles of {tile[0]} x {tile[1]}.")
    _, _, estimated = _best(_shapes([op]), found, device, family=family, peak=peak_flops(op.dtype, device))
    return _main_kernel(op, device, found, 0, estimated, family=family)


@functools.lru_cache(maxsize=1 << 14)
def gemm_kernels_tuned_for(op: Gemm, device: Device, part: int, /) -> tuple[KernelCost, ...]:
    """What a library tuned on 1/``part`` of the SMs and of L2 would run, costed on the whole device.

    Resource-constrained tuning of GOLDYLOC (arXiv:2409.02227): such kernels take less each, so that several
    of them together are faster, though each alone may be slower.
    """
    family = family_of(op, device)
    if part == 1 or family == "gemv":
        return gemm_kernels(op, device)
    small = dataclasses.replace(
        device, sm_count=max(1, device.sm_count // part), l2_nbytes=max(1, device.l2_nbytes // part)
    )
    peak = peak_flops(op.dtype, device)
    tiles = _candidates(family, device, splits=_may_split(op, small))
    shapes = _shapes([op])
    _, chosen, _ = _best(shapes, tiles, small, family=family, peak=peak * small.sm_count / device.sm_count)
    tile = tiles.where(chosen)
    found = estimate(shapes, tile, rates(device, family, peak))
    return _chosen_kernels(op, device, tile, 0, found, family=family)


def _gemv(op: Gemm, device: Device) -> KernelCost:
    """A matrix times a vector: the matrix streams through, a few rows a CTA."""
    stream = Stream(
        read_nbytes=op.nbytes - op.m * op.n * op.output_dtype.nbytes,
        written_nbytes=op.m * op.n * op.output_dtype.nbytes,
        ctas=-(-max(op.m, op.n) // 8),
        threads=128,
        elements=op.flops / 2,
        steps=op.k * 8 / 2048,
    )
    return streaming_kernel("gemv", stream, device)


def grouped_gemm_kernels(op: GroupedGemm, device: Device, /) -> tuple[KernelCost, ...]:
    """One kernel over the tiles of all groups; nothing where no group has rows."""
    rows = np.array([count for count in op.rows if count], dtype=np.float64)
    if not len(rows):
        return ()
    whole_m = float(rows.sum())
    in_nbytes = float(op.dtype.nbytes)
    sizes = (whole_m, op.n, op.k, 1.0, in_nbytes, in_nbytes, float(len(rows)))
    shapes = Shapes(*(np.array([[each]]) for each in sizes))
    return _kernels(op, shapes, device, family=family_of(op, device), group_rows=rows[:, None])


def _kernels(
    op: Gemm | GroupedGemm,
    shapes: Shapes,
    device: Device,
    *,
    family: str,
    group_rows: Numbers | None = None,
) -> tuple[KernelCost, ...]:
    peak = peak_flops(op.dtype, device)
    tiles = _candidates(family, device, splits=_may_split(op, device))
    row_tiles = None
    if group_rows is None and len(tiles) > 2 * PROMISING:
        tiles = tiles.where(promising(shapes, tiles, rates(device, family, peak), most=PROMISING))
    if group_rows is not None:
        row_tiles = np.ceil(group_rows / tiles.m).sum(axis=0, keepdims=True)
    _, chosen, found = _best(shapes, tiles, device, family=family, peak=peak, row_tiles=row_tiles)
    return _chosen_kernels(op, device, tiles, int(chosen[0]), found, family=family)


def _chosen_kernels(
    op: Gemm | GroupedGemm, device: Device, tiles: Tiles, tile: int, found: Estimate, *, family: str
) -> tuple[KernelCost, ...]:
    kernel = _main_kernel(op, device, tiles, tile, found, family=family)
    if tiles.split[tile] == 1:
        return (kernel,)
    return (kernel, _adding_kernel(op, device, found, tile, split=int(tiles.split[tile]), family=family))


def _main_kernel(
    op: Gemm | GroupedGemm, device: Device, tiles: Tiles, tile: int, found: Estimate, *, family: str
) -> KernelCost:
    """CTAs of one tile each, which take as long as the estimate says with the whole device."""
    count = round(_pick(found.tiles, tile))
    fixed_ns = _pick(found.fixed_ns, tile)
    body_ns = _pick(found.total_ns, tile) - _pick(found.split_ns, tile) - fixed_ns
    read, written = _pick(found.read_nbytes, tile), _pick(found.written_nbytes, tile)
    memory_ns = min(_pick(found.memory_ns, tile), body_ns)
    steps = _pick(found.steps, tile)
    line_nbytes = float(tiles.m[tile] + tiles.n[tile]) * BLOCK_NBYTES
    resident = int(tiles.resident[tile])
    slots = device.sm_count * resident
    l2_nbytes = max(read / count, steps * line_nbytes / MULTICAST)
    sm_ns = steps * _pick(found.matrix_ns, tile)
    if memory_ns > MEMORY_BOUND * body_ns:
        # then it is memory that a CTA waits for, and where few are left each of them is faster
        memory_ns = body_ns
        load = constant(device, "gemm.load_cycle_nbytes") * device.light_clock_hz / 1e9
        least_ns = min(body_ns / -(-count // slots), max(sm_ns, l2_nbytes / load) * resident)
    else:
        least_ns = least_ns_for(body_ns, count=count, slots=slots, memory_ns=memory_ns)
    reached = device.hbm_bandwidth * device.hbm_efficiency / 1e9
    work = CtaWork(
        least_ns=least_ns,
        sm_ns=min(sm_ns, least_ns / resident),
        hbm_read_nbytes=read / count,
        hbm_write_nbytes=written / count,
        hbm_share=(read + written) / (memory_ns * reached),
        l2_nbytes=l2_nbytes,
        flops=op.flops / count,
    )
    footprint = Footprint(
        threads=min(384 if is_wide(device) else 256, device.threads_per_sm // resident),
        registers=device.registers_per_sm // resident,
        shared_memory_nbytes=min(
            round(float(tiles.stages[tile]) * line_nbytes), device.shared_memory_nbytes // resident
        ),
    )
    return kernel_cost(
        f"gemm_{family}_{tiles.m[tile]:.0f}x{tiles.n[tile]:.0f}",
        device=device,
        groups=(CtaGroup(count=count, work=work),),
        footprint=footprint,
        ctas_per_sm=resident,
        fixed_ns=fixed_ns,
        uncertainty=constant(device, f"gemm.{family}.uncertainty"),
        model="gemm",
        l2_footprint_nbytes=min(steps * line_nbytes * min(count, slots), op.nbytes),
        workers=min(count, slots) if is_wide(device) and family == "aligned" else 0,
    )


def _adding_kernel(
    op: Gemm | GroupedGemm, device: Device, found: Estimate, tile: int, *, split: int, family: str
) -> KernelCost:
    """A pass over the parts of a split K loop: read, added, written."""
    outputs = op.m * op.n * op.batch if isinstance(op, Gemm) else sum(op.rows) * op.n
    count = -(-outputs // ADDED_BY_CTA)
    footprint = Footprint(threads=512, registers=512 * 32)
    time_ns = _pick(found.split_ns, tile)
    start_ns = min(time_ns, 1000.0)
    slots = footprint.fit(device) * device.sm_count
    work = CtaWork(
        least_ns=least_ns_for(time_ns - start_ns, count=count, slots=slots, memory_ns=0.0),
        l2_nbytes=4 * split * outputs / count / 2,
        flops=split * outputs / count,
    )
    return kernel_cost(
        "gemm_add_parts",
        device=device,
        groups=(CtaGroup(count=count, work=work),),
        footprint=footprint,
        fixed_ns=start_ns,
        uncertainty=constant(device, f"gemm.{family}.uncertainty"),
        model="gemm",
    )


def _pick(values: Numbers, tile: int) -> float:
    """One candidate's value of an array that may be the same for all."""
    return float(values.flat[tile if values.size > 1 else 0])
