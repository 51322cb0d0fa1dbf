"""The time of a GEMM for given tiles, as array arithmetic over shapes and candidates."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from conccl.core.hardware import Device
from conccl.costs.constants import constant
from conccl.costs.tiles import BLOCK_NBYTES, Numbers, Tiles


class Shapes(NamedTuple):
    """GEMMs, one a row: arrays of [rows, 1]."""

    m: Numbers
    n: Numbers
    k: Numbers
    batch: Numbers
    in_nbytes: Numbers
    """Bytes of an input element."""
    out_nbytes: Numbers
    matrices: Numbers = np.ones((1, 1))
    """Different B matrices that parts of m go with (grouped GEMMs)."""


class Rates(NamedTuple):
    """What a family of kernels does on a device: flop/ns, bytes/ns and ns."""

    sms: int
    sm_flops: float
    step_ns: float
    latency_ns: float
    hbm: float
    l2: float
    store: float
    """Of one SM."""
    cache_nbytes: float
    start_ns: float
    first_ns: float
    written_part: float
    paired_epilogue: float
    other_epilogue: float
    mix: float
    split_ns: float
    split: float
    burst_flops: float
    sustained_flops: float
    sustained_ns: float


class Estimate(NamedTuple):
    """Arrays of [rows, candidates]; ns and bytes."""

    total_ns: Numbers
    tiles: Numbers
    """Of all batch entries; of all parts where K is split."""
    steps: Numbers
    matrix_ns: Numbers
    """Of one step, on the SM's units alone."""
    fixed_ns: Numbers
    """Of the total, what does not shrink with more SMs or bandwidth."""
    memory_ns: Numbers
    """What HBM traffic takes by itself."""
    read_nbytes: Numbers
    written_nbytes: Numbers
    split_ns: Numbers
    """Of the total, the kernel that adds parts."""


@functools.lru_cache(maxsize=256)
def rates(device: Device, family: str, peak_flops: float, /) -> Rates:
    """The family's constants on this device, in units of time."""
    own = functools.partial(_of, device, f"gemm.{family}")
    every = functools.partial(_of, device, "gemm")
    hbm = device.hbm_bandwidth * device.hbm_efficiency / 1e9
    l2 = device.l2_bandwidth / 1e9
    return Rates(
        sms=device.sm_count,
        sm_flops=peak_flops / device.sm_count / 1e9 * own("rate_share"),
        step_ns=own("step_ns"),
        latency_ns=own("latency_ns"),
        hbm=hbm * own("hbm_share"),
        l2=l2 * every("l2_share"),
        store=l2 / device.sm_count * every("store_share"),
        cache_nbytes=device.l2_nbytes * every("cache_share"),
        start_ns=every("start_ns"),
        first_ns=every("first_ns"),
        written_part=every("written_part"),
        paired_epilogue=every("paired_epilogue"),
        other_epilogue=every("other_epilogue"),
        mix=every("mix"),
        split_ns=every("split_ns"),
        split=hbm * every("split_share"),
        burst_flops=peak_flops / 1e9 * every("burst_share"),
        sustained_flops=peak_flops / 1e9 * every("sustained_share"),
        sustained_ns=every("sustained_ns"),
    )


def _of(device: Device, prefix: str, name: str) -> float:
    return constant(device, f"{prefix}.{name}")


def estimate(shapes: Shapes, tiles: Tiles, rate: Rates, /, *, row_tiles: Numbers | None = None) -> Estimate:
    """Every shape with every candidate.

    ``row_tiles`` says how many tiles a column holds where that is not m over the tile's m (grouped GEMMs).
    """
    m, n, k, batch, in_nbytes, out_nbytes, _ = shapes
    rows = np.ceil(m / tiles.m) if row_tiles is None else row_tiles
    cols = np.ceil(n / tiles.n)
    units = rows * cols * batch * tiles.split
    block = BLOCK_NBYTES / in_nbytes
    steps = np.ceil(np.ceil(k / block) / tiles.split)
    slots = rate.sms * tiles.resident
    rounds = np.ceil(units / slots)
    active = np.minimum(units, slots)
    matrix_ns = tiles.m * tiles.n * tiles.slowdown * (2 * block / rate.sm_flops)
    sharers = np.minimum(np.maximum(np.ceil(units / rate.sms), 1), tiles.resident)
    line_nbytes = (tiles.m + tiles.n) * BLOCK_NBYTES
    step_ns = _slowest(
        matrix_ns * sharers,
        line_nbytes * (active / rate.l2),
        np.maximum(rate.latency_ns / tiles.stages, rate.step_ns),
    )
    epilogue_ns = tiles.m * tiles.n * (out_nbytes / rate.store)
    shown_ns = epilogue_ns * np.where(tiles.paired, rate.paired_epilogue, rate.other_epilogue)
    compute_ns = rounds * (steps * step_ns + shown_ns) - shown_ns
    read = _read_nbytes(shapes, tiles, rows=rows, cols=cols, active=active, cache=rate.cache_nbytes)
    written = m * n * batch * out_nbytes
    memory_ns = (read + rate.written_part * written) / rate.hbm
    body_ns = (compute_ns**rate.mix + memory_ns**rate.mix) ** (1 / rate.mix)
    fixed_ns = epilogue_ns + (rate.start_ns + rate.first_ns * memory_ns / (memory_ns + 1000))
    kernel_ns = _within_power(fixed_ns + body_ns, 2 * m * n * k * batch, rate)
    parts_ns = rate.split_ns + (m * n * batch * 4 / rate.split) * tiles.split
    split_ns = np.where(tiles.split > 1, parts_ns, 0.0)
    return Estimate(
        total_ns=kernel_ns + split_ns,
        tiles=units,
        steps=steps,
        matrix_ns=matrix_ns,
        fixed_ns=fixed_ns,
        memory_ns=memory_ns,
        read_nbytes=read,
        written_nbytes=written,
        split_ns=split_ns,
    )


def promising(shapes: Shapes, tiles: Tiles, rate: Rates, /, *, most: int) -> npt.NDArray[np.intp]:
    """The candidates with the lowest bounds for the one shape, in their order."""
    m, n, k, batch, in_nbytes, *_ = (float(value[0, 0]) for value in shapes)
    block = BLOCK_NBYTES / in_nbytes
    units = np.ceil(m / tiles.m) * np.ceil(n / tiles.n) * (tiles.split * batch)
    steps = np.ceil(math.ceil(k / block) / tiles.split)
    outputs = tiles.m * tiles.n
    step_ns = np.maximum(
        outputs * tiles.slowdown * (2 * block / rate.sm_flops),
        np.maximum(rate.latency_ns / tiles.stages, rate.step_ns),
    )
    active = np.minimum(units, rate.sms)
    step_ns = np.maximum(step_ns, (tiles.m + tiles.n) * active * (BLOCK_NBYTES / rate.l2))
    bound = np.ceil(units / (rate.sms * tiles.resident)) * steps * step_ns + outputs / rate.store
    bound = (bound**rate.mix + ((m + n) * k * batch * in_nbytes / rate.hbm) ** rate.mix) ** (1 / rate.mix)
    bound[(tiles.split > 1) & (units > rate.sms)] = np.inf
    bound += np.where(tiles.split > 1, rate.split_ns + tiles.split * (m * n * batch * 4 / rate.split), 0.0)
    found: npt.NDArray[np.intp] = np.sort(np.argpartition(bound, most)[:most])
    return found


def _slowest(first: Numbers, second: Numbers, third: Numbers) -> Numbers:
    """What a step takes that waits for three things: their power mean (exponent 6), near the longest."""
    total: Numbers = first * first * first
    total = total * total
    for time in (second, third):
        cube = time * time * time
        total = total + cube * cube
    mean: Numbers = np.cbrt(np.sqrt(total))
    return mean


def _read_nbytes(
    shapes: Shapes, tiles: Tiles, *, rows: Numbers, cols: Numbers, active: Numbers, cache: float
) -> Numbers:
    """HBM reads: operands once where they fit into L2, else what each wave's block of tiles needs."""
    line = shapes.k * shapes.in_nbytes
    once = (shapes.m + shapes.n * shapes.matrices) * line
    again = np.minimum(np.maximum(once / cache - 1, 0), 1)
    if not again.any():
        return np.broadcast_to(shapes.batch * once, np.broadcast_shapes(once.shape, tiles.m.shape))
    high = np.minimum(np.maximum(np.sqrt(active * tiles.n / tiles.m), 1), rows)
    wide = np.minimum(np.maximum(active / high, 1), cols)
    high = np.minimum(np.maximum(active / wide, 1), rows)
    waves = np.maximum(rows * cols * shapes.batch * tiles.split / active, 1) / shapes.batch
    in_waves = (high * tiles.m + wide * tiles.n) * line * waves
    read: Numbers = shapes.batch * (once + again * np.maximum(in_waves - once, 0))
    return read


def _within_power(time_ns: Numbers, flops: Numbers, rate: Rates) -> Numbers:
    """Clocks fall until the power limit holds: at once a little, in long kernels more."""
    eased = 1 / (1 + time_ns / rate.sustained_ns)
    allowed_ns = flops / (rate.sustained_flops + (rate.burst_flops - rate.sustained_flops) * eased)
    longer = np.maximum(time_ns, allowed_ns)
    ratio = np.minimum(time_ns, allowed_ns) / longer
    ratio *= ratio
    ratio *= ratio
    limited: Numbers = longer * np.sqrt(np.sqrt(np.sqrt(1 + ratio * ratio)))
    return limited
