"""From cells to tables: curves, slowdowns, and the stretch that strategies add to what those explain."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.bench.bench import Bench
from conccl.core.errors import InputError
from conccl.core.hardware import System
from conccl.core.ops import Compute
from conccl.core.pair import Pair
from conccl.tune.cells import (
    ATTENTION,
    ELEMENTWISE,
    GEMM_AXES,
    LIBRARY,
    PAIRED,
    RATIOS,
    SIZES,
    Cells,
    Keeper,
    gemm_grid,
    kinds_of,
    losses,
    lost_sms,
    rank_counts,
    strategies_for,
    way_of,
    ways_of,
)
from conccl.tune.features import Roof, communication_of, log2, roof_of
from conccl.tune.model import form_of, together_ns
from conccl.tune.tables import Axis, Curve, Floats, Slowdown, Stretch, Tables

HBM_SHARES = Axis(first=0.0, step=0.25, count=5)
WAVES = Axis(first=-2.0, step=1.5, count=5)
RATIO_AXIS = Axis(first=-5.0, step=1.0, count=9)

WIDTHS = (0.2, 1.2, 0.7)
"""How far a cell reaches along memory share, waves and ratio where cells are smoothed: about a step each."""

FAR = 1e-4
"""Added to every cell's weight, so that a node that no cell is near has the mean of all."""

SMALLEST_NBYTES = 4096

Array = npt.NDArray[np.float64]


def cells_in(system: System, /) -> int:
    """How many cells the tables of this system have at most: for a progress bar."""
    device, kinds = system.device, kinds_of(system)
    curves = sum(len(rank_counts(kind, system)) * len(ways_of(kind, device)) for kind in kinds)
    pairs = sum(len(strategies_for(kind, device)) for kind in kinds) * len(PAIRED) * len(RATIOS)
    alone = len(tuple(gemm_grid())) + 2 + len(PAIRED) * (1 + len(losses(device)))
    return alone + curves * SIZES.count + pairs


def build_tables(
    bench: Bench,
    /,
    *,
    system: System,
    keep: Keeper | None = None,
    done: Callable[[], None] = lambda: None,
) -> Tables:
    """Measure every cell that is not kept yet, and condense; ``done`` is called once a cell."""
    cells = Cells(bench=bench, system=system, keep=keep, done=done)
    roof = roof_of(system.device)
    gemm = _filled([_excess(cells.compute_ns(op), op, roof) for op in gemm_grid()])
    curves = tuple(
        _curve(cells, kind, ranks=ranks) for kind in kinds_of(system) for ranks in rank_counts(kind, system)
    )
    computed = _computations(cells, roof)
    slowdowns = [_slowdown(computed, sms=sms) for sms in losses(system.device)]
    stretches = [
        _stretch(cells, curve, name, computed=computed)
        for curve in curves
        if curve.ranks == max(rank_counts(curve.kind, system)) and LIBRARY in curve.ways
        for name in strategies_for(curve.kind, system.device)
        if way_of(name) in curve.ways
    ]
    return Tables(
        environment=bench.environment,
        gemm_axes=GEMM_AXES,
        gemm=gemm,
        memory_excess=2.0 ** (_excess(cells.compute_ns(ELEMENTWISE), ELEMENTWISE, roof) or 0.0),
        compute_excess=2.0 ** (_excess(cells.compute_ns(ATTENTION), ATTENTION, roof) or 1.0),
        sizes=SIZES,
        hbm_shares=HBM_SHARES,
        waves=WAVES,
        ratios=RATIO_AXIS,
        curves=curves,
        slowdowns=tuple(slowdown for slowdown in slowdowns if slowdown is not None),
        stretches=tuple(stretch for stretch in stretches if stretch is not None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Computation:
    """A GEMM that pairs are made with."""

    index: int
    op: Compute
    alone_ns: int
    hbm_share: float
    log_waves: float
    slow: Mapping[int, float]
    """SMs taken -> how many times as long it lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """What one cell says about a node near it."""

    computation: _Computation
    log_ratio: float
    value: float


def _excess(time_ns: int | None, op: Compute, roof: Roof) -> float | None:
    return None if not time_ns else math.log2(time_ns / max(roof.least_ns(op)))


def _filled(values: Sequence[float | None]) -> Floats:
    """Cells that could not be measured take the mean of the others."""
    known = [value for value in values if value is not None]
    if not known:
        raise InputError("no GEMM could be measured, so there is nothing to make tables of.")
    mean = sum(known) / len(known)
    return tuple(round(mean if value is None else value, 4) for value in values)


def _computations(cells: Cells, roof: Roof) -> tuple[_Computation, ...]:
    taken = losses(cells.system.device)
    found = []
    for index, op in enumerate(PAIRED):
        alone_ns = cells.compute_ns(op)
        if alone_ns is None:
            continue
        slowed = {sms: cells.compute_ns(op, without=sms) for sms in taken}
        found.append(
            _Computation(
                index=index,
                op=op,
                alone_ns=alone_ns,
                hbm_share=min(1.0, roof.least_ns(op)[1] / alone_ns),
                log_waves=math.log2(roof.waves(op)),
                slow={sms: max(0.5, ns / alone_ns) for sms, ns in slowed.items() if ns},
            )
        )
    return tuple(found)


def _curve(cells: Cells, kind: str, *, ranks: int) -> Curve:
    """By each way that this kind of communication can go; a way that fails at one size is left out."""
    found = {}
    for way in ways_of(kind, cells.system.device):
        times = [
            cells.communication_ns(kind, way, nbytes=round(2**size), ranks=ranks) for size in SIZES.points()
        ]
        if None not in times:
            found[way] = tuple(round(log2(time_ns or 0), 4) for time_ns in times)
    return Curve(kind=kind, ranks=ranks, ways=tuple(found), log_ns=tuple(found.values()))


def _slowdown(computed: Sequence[_Computation], *, sms: int) -> Slowdown | None:
    """None where no computation could be kept off so many SMs."""
    points = [
        _Point(computation=one, log_ratio=0.0, value=math.log2(one.slow[sms]))
        for one in computed
        if sms in one.slow
    ]
    if not points:
        return None
    factors = tuple(round(float(2.0 ** _smooth(points, node)[0]), 4) for node in _nodes())
    return Slowdown(sms=sms, factors=factors)


def _stretch(cells: Cells, curve: Curve, name: str, *, computed: Sequence[_Computation]) -> Stretch | None:
    """Pairs of one kind by one strategy; None where the strategy cannot be had."""
    points = list(_points(cells, curve, name, computed=computed))
    if not points:
        return None
    factors = tuple(tuple(np.round(2.0 ** _smooth(points, node), 4).tolist()) for node in _nodes())
    errors = _errors(points)
    return Stretch(
        kind=curve.kind,
        strategy=name,
        factors=factors,
        spread=round(_root_mean_square(errors, np.ones(len(points))), 4),
        spreads=tuple(round(_root_mean_square(errors, _near(points, node)), 4) for node in _nodes()),
    )


def _points(cells: Cells, curve: Curve, name: str, *, computed: Sequence[_Computation]) -> Iterator[_Point]:
    library = curve.log_ns[curve.ways.index(LIBRARY)]
    by_way = curve.log_ns[curve.ways.index(way_of(name))]
    form, taken = form_of(name), lost_sms(name)
    for one, ratio in itertools.product(computed, RATIOS):
        size = _size_for(library, math.log2(one.alone_ns) + ratio)
        nbytes = max(SMALLEST_NBYTES, round(2**size) // 256 * 256)
        communication = communication_of(curve.kind, nbytes=nbytes, ranks=curve.ranks)
        both_ns = cells.pair_ns(Pair(compute=one.op, communication=communication), name)
        if both_ns is None:
            continue
        communication_ns = 2.0 ** float(np.interp(math.log2(nbytes), SIZES.points(), by_way))
        expected_ns = together_ns(
            form,
            compute_ns=one.alone_ns,
            communication_ns=communication_ns,
            slow=one.slow.get(taken, 1.0),
        )
        yield _Point(
            computation=one,
            log_ratio=math.log2(communication_ns / one.alone_ns),
            value=math.log2(both_ns / expected_ns),
        )


def _size_for(log_ns: Floats, wanted: float) -> float:
    """Base-2 logarithm of the bytes that take so long."""
    points = SIZES.points()
    index = min(max(bisect.bisect_left(log_ns, wanted), 1), len(points) - 1)
    low, high = log_ns[index - 1], log_ns[index]
    share = (wanted - low) / (high - low) if high > low else 0.0
    return points[index - 1] + SIZES.step * min(max(share, 0.0), 1.0)


def _nodes() -> Iterator[tuple[float, float]]:
    """Memory share and waves of each node; waves change fastest."""
    return itertools.product(HBM_SHARES.points(), WAVES.points())


def _smooth(points: Sequence[_Point], node: tuple[float, float]) -> Array:
    """Values along the ratio axis at a node: weighted means of the cells around."""
    values = np.array([point.value for point in points])
    ratios = np.array([point.log_ratio for point in points])
    along = (np.array(RATIO_AXIS.points())[:, None] - ratios[None, :]) / WIDTHS[2]
    weights = _near(points, node)[None, :] * np.exp(-0.5 * along**2) + 1e-12
    smoothed: Array = (weights @ values) / weights.sum(axis=1)
    return smoothed


def _near(points: Sequence[_Point], node: tuple[float, float]) -> Array:
    """How much each cell counts at a node, by memory share and waves."""
    shares = np.array([point.computation.hbm_share for point in points])
    waves = np.array([point.computation.log_waves for point in points])
    away = ((shares - node[0]) / WIDTHS[0]) ** 2 + ((waves - node[1]) / WIDTHS[1]) ** 2
    weights: Array = np.exp(-0.5 * away) + FAR
    return weights


def _errors(points: Sequence[_Point]) -> Array:
    """How far each cell is from what the cells of all other GEMMs say in its place."""
    errors = np.ones(len(points))  # of a GEMM that has no others: anything may be
    for left_out in {point.computation.index for point in points}:
        others = [point for point in points if point.computation.index != left_out]
        mine = [i for i, point in enumerate(points) if point.computation.index == left_out]
        if others:
            one = points[mine[0]].computation
            guess = _smooth(others, (one.hbm_share, one.log_waves))
            at = np.interp([points[i].log_ratio for i in mine], RATIO_AXIS.points(), guess)
            errors[mine] = 2.0 ** (np.array([points[i].value for i in mine]) - at) - 1.0
    return errors


def _root_mean_square(errors: Array, weights: Array) -> float:
    return math.sqrt(float((weights * errors**2).sum() / weights.sum()))
