"""Co-tuning: SMs and pieces of communication and the tile of the GEMM, chosen for the pair together.

A GEMM's best tile alone need not be the best beside a collective that holds SMs, and the fewest SMs that a
collective needs alone need not be the best beside a GEMM (Lagom, arXiv:2602.20656; GOLDYLOC for kernels).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from conccl.core.errors import InputError
from conccl.core.executor import Executor
from conccl.core.hardware import Device, System
from conccl.core.ops import Collective, Communication, Copy, Gemm, Op
from conccl.core.pair import Dependence, Pair
from conccl.core.plan import Plan, Side, Task
from conccl.costs.gemm import gemm_kernel_of, promising_tiles
from conccl.costs.kernel import KernelCost
from conccl.costs.kernels import kernels_of
from conccl.strategies.choices import Chunked, Partitioned, Prioritized, Strategy, Whole
from conccl.strategies.heuristics import KernelsOf, alone_ns, communication_sms, compute_ns_on
from conccl.strategies.lower import lower
from conccl.tune.model import Form, together_ns
from conccl.tune.search import Point, Search, Trial

Tile = tuple[int, int]

TILES = 12
"""Tiles of the GEMM that are tried: those that cost models hold for best alone."""

PIECES = (1, 2, 4, 8, 16)

PIECE_START_NS = 2_000.0
"""Assumed cost of starting a piece of communication, beside its time."""

ExecutorOf = Callable[[KernelsOf], Executor]
"""An executor whose GEMMs are those kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One way to run a pair."""

    communication_sms: int
    pieces: int
    tile: Tile
    partitioned: bool
    """Whether the communication's SMs are a group of their own rather than the first that it gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cotuned:
    """The best setting found, what the sides' own best settings give, and what it took."""

    setting: Setting
    time_ns: int
    apart: Setting
    """Each side's best setting alone, by the cost models."""
    apart_ns: int | None
    measured: int
    space: int
    """Settings in all."""


def axes(pair: Pair, device: Device, /) -> tuple[tuple[int, ...], tuple[int, ...], tuple[Tile, ...]]:
    """SMs for communication, pieces, tiles: what is tried, each axis in order."""
    gemm = _gemm(pair)
    group = device.sm_group
    sizes = sorted(
        {group * factor for factor in (1, 2, 3, 4, 6, 8) if group * factor <= device.sm_count // 2}
    )
    pieces = tuple(count for count in PIECES if count <= gemm.m)
    tiles = promising_tiles(gemm, device, most=TILES)
    if not tiles:
        raise InputError(
            f"a GEMM of {gemm.m} x {gemm.n} has no tiles to choose from. Give one with m, n > 1."
        )
    return tuple(sizes), pieces, tiles


def cotune(
    pair: Pair, /, *, system: System, executor_of: ExecutorOf, search: Search | None = None
) -> Cotuned:
    """Find about the best setting; without ``search`` at most a tenth of all is measured."""
    settings = _settings(pair, system.device)
    search = search or Search(most=max(1, len(settings) // 10))
    trying = _Trying(pair=pair, system=system, executor_of=executor_of)
    trials = search.run(
        tuple(settings),
        predicted_ns=lambda point: trying.predicted_ns(settings[point]),
        measured_ns=lambda point: trying.measured_ns(settings[point]),
    )
    return _result(pair, system.device, settings, trials, trying)


def exhaust(pair: Pair, /, *, system: System, executor_of: ExecutorOf) -> Cotuned:
    """Measure every setting: what `cotune` is judged by."""
    settings = _settings(pair, system.device)
    trying = _Trying(pair=pair, system=system, executor_of=executor_of)
    timed = ((point, trying.measured_ns(setting)) for point, setting in settings.items())
    trials = tuple(Trial(point=point, time_ns=time_ns) for point, time_ns in timed if time_ns is not None)
    return _result(pair, system.device, settings, trials, trying)


def _settings(pair: Pair, device: Device) -> dict[Point, Setting]:
    sizes, pieces, tiles = axes(pair, device)
    found: dict[Point, Setting] = {}
    for point in itertools.product(range(len(sizes)), range(len(pieces)), range(len(tiles)), (0, 1)):
        found[point] = Setting(
            communication_sms=sizes[point[0]],
            pieces=pieces[point[1]],
            tile=tiles[point[2]],
            partitioned=bool(point[3]),
        )
    return found


def _result(
    pair: Pair,
    device: Device,
    settings: dict[Point, Setting],
    trials: tuple[Trial, ...],
    trying: _Trying,
) -> Cotuned:
    if not trials:
        raise InputError("no setting of this pair could be run.")
    best = min(trials, key=lambda trial: trial.time_ns)
    apart = _apart(pair, device)
    return Cotuned(
        setting=settings[best.point],
        time_ns=best.time_ns,
        apart=apart,
        apart_ns=trying.measured_ns(apart),
        measured=len(trials),
        space=len(settings),
    )


def _apart(pair: Pair, device: Device) -> Setting:
    """The tile that is best alone, and as many SMs as communication needs for its full pace."""
    sizes, _, tiles = axes(pair, device)
    needed = communication_sms(pair.communication, device)
    enough = next((size for size in sizes if size >= needed), sizes[-1])
    dependent = pair.dependence is not Dependence.NONE
    return Setting(communication_sms=enough, pieces=8 if dependent else 1, tile=tiles[0], partitioned=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trying:
    """Predicts and measures settings of one pair."""

    pair: Pair
    system: System
    executor_of: ExecutorOf

    def measured_ns(self, setting: Setting) -> int | None:
        try:
            plan = plan_of(self.pair, setting, system=self.system)
            return self.executor_of(tiled(setting.tile)).run(plan).span_ns
        except InputError:
            return None

    def predicted_ns(self, setting: Setting) -> float:
        """By the cost models alone: nothing is run."""
        device, pieces = self.system.device, setting.pieces
        sms, op = setting.communication_sms, self.pair.communication
        piece = _sized(op, max(1, op.nbytes // pieces))
        slow = max(1.0, communication_sms(piece, device) / sms)
        communication_ns = alone_ns(piece, device) * slow + PIECE_START_NS
        if self.pair.dependence is Dependence.NONE:
            whole_ns = compute_ns_on(
                _gemm(self.pair), device, sms=device.sm_count, kernels_of=tiled(setting.tile)
            )
            less_ns = self._compute_ns(setting, _gemm(self.pair), sms=device.sm_count - sms)
            form = Form.FOR_GOOD if setting.partitioned else Form.WHILE_IT_RUNS
            return together_ns(
                form,
                compute_ns=whole_ns,
                communication_ns=pieces * communication_ns,
                slow=max(1.0, less_ns / whole_ns),
            )
        chunk = dataclasses.replace(_gemm(self.pair), m=max(1, _gemm(self.pair).m // pieces))
        first_ns = self._compute_ns(setting, chunk, sms=device.sm_count - (sms if setting.partitioned else 0))
        next_ns = self._compute_ns(setting, chunk, sms=device.sm_count - sms)
        if self.pair.dependence is Dependence.COMMUNICATION_FEEDS_COMPUTE:
            return pieces * communication_ns + next_ns + (pieces - 1) * max(0.0, next_ns - communication_ns)
        return first_ns + (pieces - 1) * max(next_ns, communication_ns) + communication_ns

    def _compute_ns(self, setting: Setting, op: Gemm, *, sms: int) -> float:
        return compute_ns_on(op, self.system.device, sms=sms, kernels_of=tiled(setting.tile))


def plan_of(pair: Pair, setting: Setting, /, *, system: System) -> Plan:
    """The pair as the setting has it: pieces follow each other, or the part of the GEMM that they need."""
    sharing = Partitioned if setting.partitioned else Prioritized
    dependent = pair.dependence is not Dependence.NONE
    strategy = Strategy(
        sharing=sharing(communication_sms=setting.communication_sms),
        granularity=Chunked(count=setting.pieces) if dependent and setting.pieces > 1 else Whole(),
    )
    plan = lower(pair, strategy, system=system, kernels_of=tiled(setting.tile))
    if dependent or setting.pieces == 1:
        return plan
    tasks = tuple(piece for task in plan.tasks for piece in _pieces(task, setting.pieces))
    return dataclasses.replace(plan, tasks=tasks)


def tiled(tile: Tile, /) -> KernelsOf:
    """Kernels of ops, GEMMs with this tile."""

    def of(op: Op, device: Device, /) -> tuple[KernelCost, ...]:
        if isinstance(op, Gemm):
            return (gemm_kernel_of(op, device, tile=tile),)
        return tuple(kernels_of(op, device))

    return of


def _pieces(task: Task, count: int) -> Iterator[Task]:
    """A communication as several, one after the other on its lane."""
    if task.side is not Side.COMMUNICATION or not isinstance(task.op, (Collective, Copy)):
        yield task
        return
    bounds = [task.op.nbytes * index // count for index in range(count + 1)]
    for index, (start, stop) in enumerate(itertools.pairwise(bounds)):
        yield dataclasses.replace(task, id=f"{task.id}.{index}", op=_sized(task.op, stop - start))


def _sized(op: Communication, nbytes: int) -> Communication:
    if not isinstance(op, (Collective, Copy)):
        raise InputError(f"a pair communicates by a Collective or a Copy, not by a {type(op).__name__}.")
    return dataclasses.replace(op, nbytes=nbytes)


def _gemm(pair: Pair) -> Gemm:
    if not isinstance(pair.compute, Gemm):
        raise InputError(
            f"co-tuning chooses a GEMM's tile; this pair computes {type(pair.compute).__name__}."
        )
    return pair.compute
