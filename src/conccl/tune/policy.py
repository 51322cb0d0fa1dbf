"""Which strategy a pair should run by: a choice in microseconds, from tables measured before.

    choice = choose(pair, device)      # pure: the same tables give the same answer, nothing is run
    plan = lower(pair, choice.strategy, system=system)

For each strategy the tables give the communication's time by that strategy's way, the computation's slowdown
without the SMs that it takes, and what both cost each other beside that (`model`). The strategy with the
least time is chosen, serial where none is expected to gain. Interpolation is linear in logarithms.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from conccl.core.errors import InputError
from conccl.core.hardware import Device, System
from conccl.core.ops import Collective, Communication, Compute, Gemm
from conccl.core.pair import Dependence, Pair
from conccl.strategies.choices import SERIAL, Strategy, strategy
from conccl.strategies.choosing import choose as choose_from_costs
from conccl.tune.cells import LIBRARY, lost_sms, way_of
from conccl.tune.features import kind_of, log2, roof_of
from conccl.tune.model import Form, form_of
from conccl.tune.shapes import Shape, modelled
from conccl.tune.tables import Axis, Curve, Floats, Tables, find_tables

WORTH = 0.99
"""A strategy must be expected to take less than this share of serial time."""

CAUTION = 0.5
"""Spreads that are added to a strategy's expected time: of equals, the one that is known better."""

GATE = 1.5
"""Spreads by which a strategy must be expected to beat serial: nobody should lose by asking."""

UNMEASURED_SPREAD = 0.15
"""Relative error assumed where the tables hold only a neighbour of what is asked for."""

_NO_SLOWDOWNS: Mapping[int, float] = {}

_SQRT_HALF = math.sqrt(0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to run, and what is expected of it."""

    name: str
    strategy: Strategy
    predicted_ns: int
    serial_ns: int
    """One after the other, the communication by the library."""
    confidence: float
    """Probability that it is no slower than serial, by the tables' errors on shapes they were not made of."""
    reason: str = ""
    """Why nothing but serial was weighed; empty where all was."""

    @property
    def gain(self) -> float:
        """Share of serial time that is expected to be saved."""
        return 1.0 - self.predicted_ns / self.serial_ns if self.serial_ns else 0.0


def choose(pair: Pair, device: Device, /, *, tables: Tables | None = None) -> Choice:
    """The strategy for a pair on a device, by this machine's tables, else by shipped (simulated) ones.

    Raises `InputError` where there are no tables for the device, `StoreError` where they are unreadable.
    """
    policy = _policy(device) if tables is None else _policy_from(tables, device)
    return policy.choose(pair)


def prepare(computes: Iterable[Compute], device: Device, /) -> None:
    """Let `choose` know the isolated times and slowdowns of these ops, by the cost models (about 1 ms each).

    Without it a GEMM's time is interpolated between those of the tables and its slowdown is that of GEMMs
    alike, which does not see how its tiles fill the last wave.
    """
    policy = _policy(device)
    for op in computes:
        policy.learn(modelled(op, device))


def strategy_for(pair: Pair, system: System, /) -> Strategy:
    """What `characterize` runs as "policy": `choose` with the pair's shape told, on this system's device.

    Where tables say nothing (an unknown or changed device, a dependent pair, a collective that they do not
    have) the cost models choose (`strategies.choosing`).
    """
    try:
        policy = _policy(system.device)
    except InputError:
        return choose_from_costs(pair, system)
    if pair.dependence is not Dependence.NONE or not policy.knows(pair.communication):
        return choose_from_costs(pair, system)
    policy.learn(modelled(pair.compute, system.device))
    return policy.choose(pair).strategy


@functools.lru_cache(maxsize=64)
def _policy(device: Device) -> Policy:
    return Policy(tables=find_tables(device), device=device)


@functools.lru_cache(maxsize=8)
def _policy_from(tables: Tables, device: Device) -> Policy:
    return Policy(tables=tables, device=device)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """One strategy for one kind of communication at one node."""

    name: str
    strategy: Strategy
    form: Form
    way: int
    sms: int
    """SMs that it takes from the computation."""
    slow: float
    stretch: Floats
    spread: float


class Policy:
    """Tables laid out so that a choice touches few numbers."""

    def __init__(self, *, tables: Tables, device: Device) -> None:
        self._roof = roof_of(device)
        self._shapes: dict[Compute, tuple[float, int, Mapping[int, float]]] = {}
        self._most_ranks = device.gpus_per_node
        self._gemm = tables.gemm
        self._gemm_axes = tables.gemm_axes
        self._memory_excess, self._compute_excess = tables.memory_excess, tables.compute_excess
        self._sizes, self._shares, self._waves = tables.sizes, tables.hbm_shares, tables.waves
        self._ratio_first, self._ratio_last = tables.ratios.first, tables.ratios.count - 1
        self._ratio_step = tables.ratios.step
        self._curves = {
            kind: _by_ranks(tables, kind) for kind in dict.fromkeys(c.kind for c in tables.curves)
        }
        self._options = {kind: _options_of(tables, kind) for kind in self._curves}

    def learn(self, shape: Shape, /) -> None:
        """Take this op's time and slowdowns for what they are."""
        self._shapes[shape.op] = (shape.time_ns, self._node(shape.op, shape.time_ns), shape.slow)

    def knows(self, op: Communication, /) -> bool:
        """Whether the tables have this kind of communication, within one node."""
        ranks = op.ranks if isinstance(op, Collective) else 1
        return kind_of(op) in self._curves and ranks <= self._most_ranks

    def choose(self, pair: Pair, /) -> Choice:
        """The strategy for one pair."""
        compute_ns, node, slow = self._computation(pair.compute)
        kind = kind_of(pair.communication)
        times_ns, is_known = self._communication(kind, pair)
        if times_ns is None:
            return _serial(compute_ns, reason=f"the tables know nothing about {kind} of so many ranks")
        serial_ns = compute_ns + times_ns[0]
        if pair.dependence is not Dependence.NONE:
            return _serial(
                serial_ns, reason="one side needs the other: fused and chunked are not in the tables"
            )
        best, best_ns, best_score = None, serial_ns, math.inf
        worth_ns = WORTH * serial_ns
        for option in self._options[kind][node]:
            time_ns = self._expected_ns(option, compute_ns, times_ns[option.way], slow)
            score = time_ns * (1.0 + CAUTION * option.spread)
            if score < best_score and time_ns * (1.0 + GATE * option.spread) < worth_ns:
                best, best_ns, best_score = option, time_ns, score
        if best is None:
            return _serial(serial_ns)
        spread = best.spread if is_known else best.spread + UNMEASURED_SPREAD
        return Choice(
            name=best.name,
            strategy=best.strategy,
            predicted_ns=round(best_ns),
            serial_ns=round(serial_ns),
            confidence=_not_slower(best_ns / serial_ns, spread),
        )

    def predictions(self, pair: Pair, /) -> dict[str, float]:
        """Expected time in ns of every strategy that the tables have for the pair, serial among them."""
        compute_ns, node, slow = self._computation(pair.compute)
        kind = kind_of(pair.communication)
        times_ns, _ = self._communication(kind, pair)
        if times_ns is None or pair.dependence is not Dependence.NONE:
            return {}
        found = {"serial": compute_ns + times_ns[0]}
        for option in self._options[kind][node]:
            found[option.name] = self._expected_ns(option, compute_ns, times_ns[option.way], slow)
        return found

    def _computation(self, op: Compute) -> tuple[float, int, Mapping[int, float]]:
        """Isolated time in ns, the node that the op is nearest to, and slowdowns by SMs taken if known."""
        known = self._shapes.get(op)
        if known is not None:
            return known
        operations_ns, memory_ns = self._roof.least_ns(op)
        if isinstance(op, Gemm):
            time_ns = max(operations_ns, memory_ns) * 2.0 ** self._gemm_excess(op)
        else:
            time_ns = max(operations_ns * self._compute_excess, memory_ns * self._memory_excess, 1.0)
        return time_ns, self._node(op, time_ns), _NO_SLOWDOWNS

    def _node(self, op: Compute, time_ns: float) -> int:
        share = _nearest(self._shares, self._roof.least_ns(op)[1] / time_ns if time_ns > 0 else 0.0)
        waves = _nearest(self._waves, math.log2(self._roof.waves(op)))
        return share * self._waves.count + waves

    def _gemm_excess(self, op: Gemm) -> float:
        """Trilinear in the logarithms of rows (of all batches), columns and depth."""
        m_axis, n_axis, k_axis = self._gemm_axes
        mi, mf = _place(m_axis, log2(op.m * op.batch))
        ni, nf = _place(n_axis, log2(op.n))
        ki, kf = _place(k_axis, log2(op.k))
        gemm, deep = self._gemm, k_axis.count
        wide = n_axis.count * deep
        at = mi * wide + ni * deep + ki
        planes = []
        for start in (at, at + wide):
            low = gemm[start] + kf * (gemm[start + 1] - gemm[start])
            high = gemm[start + deep] + kf * (gemm[start + deep + 1] - gemm[start + deep])
            planes.append(low + nf * (high - low))
        return planes[0] + mf * (planes[1] - planes[0])

    def _communication(self, kind: str, pair: Pair) -> tuple[list[float] | None, bool]:
        """Isolated times by way (the library's first), and whether the number of ranks was measured."""
        curves = self._curves.get(kind)
        op = pair.communication
        ranks = op.ranks if isinstance(op, Collective) else 1
        if curves is None or ranks > self._most_ranks:
            return None, False
        rows = curves.get(ranks)
        is_known = rows is not None
        if rows is None:
            rows = curves[min(curves, key=lambda known: abs(math.log2(known / ranks)))]
        x = (log2(op.nbytes) - self._sizes.first) / self._sizes.step
        index = 0 if x < 0.0 else min(int(x), self._sizes.count - 2)
        share = max(x - index, 0.0)  # above 1 past the largest size: bandwidth stays as it is
        low, high = rows[index], rows[index + 1]
        return [2.0 ** (a + share * (b - a)) for a, b in zip(low, high, strict=True)], is_known

    def _expected_ns(
        self, option: _Option, compute_ns: float, communication_ns: float, slow: Mapping[int, float]
    ) -> float:
        x = (math.log2(communication_ns / compute_ns) - self._ratio_first) / self._ratio_step
        x = 0.0 if x < 0.0 else min(x, self._ratio_last - 1e-9)
        index = int(x)
        stretch = option.stretch
        factor = stretch[index] + (x - index) * (stretch[index + 1] - stretch[index])
        if option.sms:
            slowdown = slow.get(option.sms, option.slow)
            if option.form is Form.FOR_GOOD:
                compute_ns *= slowdown
            else:
                compute_ns += communication_ns * (1.0 - 1.0 / slowdown)
        return factor * (compute_ns if compute_ns > communication_ns else communication_ns)


def _serial(serial_ns: float, *, reason: str = "") -> Choice:
    time_ns = round(serial_ns)
    return Choice(
        name="serial",
        strategy=SERIAL,
        predicted_ns=time_ns,
        serial_ns=time_ns,
        confidence=1.0,
        reason=reason,
    )


def _not_slower(ratio: float, spread: float) -> float:
    """Probability that the true ratio is at most 1, the error being normal with this relative spread."""
    return 0.5 * (1.0 + math.erf((1.0 / ratio - 1.0) / max(spread, 1e-3) * _SQRT_HALF))


def _place(axis: Axis, value: float) -> tuple[int, float]:
    """The point below a value on an axis, and how far it is on the way to the next."""
    x = (value - axis.first) / axis.step
    if x <= 0.0:
        return 0, 0.0
    if x >= axis.count - 1:
        return axis.count - 2, 1.0
    index = int(x)
    return index, x - index


def _nearest(axis: Axis, value: float) -> int:
    x = round((value - axis.first) / axis.step)
    return 0 if x < 0 else min(x, axis.count - 1)


def _by_ranks(tables: Tables, kind: str) -> dict[int, tuple[Floats, ...]]:
    """Ranks -> size -> times by way, all ways in the order of `_ways`."""
    ways = _ways(tables, kind)
    return {
        curve.ranks: tuple(zip(*(_times(curve, way) for way in ways), strict=True))
        for curve in tables.curves
        if curve.kind == kind and LIBRARY in curve.ways
    }


def _ways(tables: Tables, kind: str) -> Sequence[str]:
    """The ways that every curve of a kind has, the library's first."""
    curves = [curve for curve in tables.curves if curve.kind == kind]
    common = [way for way in curves[0].ways if all(way in curve.ways for curve in curves)]
    return sorted(common, key=lambda way: way != LIBRARY)


def _times(curve: Curve, way: str) -> Floats:
    return curve.log_ns[curve.ways.index(way)]


def _options_of(tables: Tables, kind: str) -> tuple[tuple[_Option, ...], ...]:
    """For each node, the strategies that the tables have for a kind of communication."""
    ways = _ways(tables, kind)
    slow = {one.sms: one.factors for one in tables.slowdowns}
    mine = [
        one
        for one in tables.stretches
        if one.kind == kind and way_of(one.strategy) in ways and lost_sms(one.strategy) in (0, *slow)
    ]
    return tuple(
        tuple(
            _Option(
                name=one.strategy,
                strategy=strategy(one.strategy),
                form=form_of(one.strategy),
                way=ways.index(way_of(one.strategy)),
                sms=lost_sms(one.strategy),
                slow=slow[lost_sms(one.strategy)][node] if lost_sms(one.strategy) else 1.0,
                stretch=one.factors[node],
                spread=one.spreads[node],
            )
            for one in mine
        )
        for node in range(tables.nodes)
    )
