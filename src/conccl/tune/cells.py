"""What is run for tables: GEMMs alone, transfers alone by every way, pairs of both by every strategy.

No shape is one of a known model, so that the policy can be judged on those.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from conccl.bench.bench import Bench, failed
from conccl.core.errors import InputError
from conccl.core.hardware import Device, System
from conccl.core.measurement import Measurement, Status
from conccl.core.ops import Attention, Collective, Compute, Elementwise, Gemm
from conccl.core.pair import Pair
from conccl.core.plan import Engine, Plan, Side
from conccl.strategies.choices import Path, strategy
from conccl.strategies.heuristics import partition_sizes
from conccl.strategies.lower import isolated, lower
from conccl.strategies.transfers import FIRST, Means, transfer
from conccl.tune.features import COLLECTIVES, COPIES, LOCAL, communication_of
from conccl.tune.tables import Axis

SIZES = Axis(first=12.0, step=1.0, count=21)
"""4 KiB to 4 GiB."""

GEMM_AXES = (
    Axis(first=4.0, step=2.0, count=6),
    Axis(first=9.0, step=2.0, count=4),
    Axis(first=9.0, step=2.0, count=4),
)
"""m from 16 to 16384, n and k from 512 to 32768."""

PAIRED = tuple(
    Gemm(m=m, n=n, k=k)
    for m, shapes in (
        (16, ((3072, 3072), (10240, 2560), (5120, 10240), (20480, 5120))),
        (192, ((2560, 5120), (9216, 1536), (5632, 9728), (18432, 4608))),
        (768, ((3072, 2304), (11264, 1792), (4608, 11264), (15872, 5888))),
        (2560, ((4352, 2816), (9984, 1280), (6656, 10752), (17408, 6144))),
        (7168, ((5376, 3328), (11776, 1664), (4864, 13824), (20992, 7680))),
    )
    for n, k in shapes
)
"""GEMMs that run beside every kind of communication: their tiles fill the last wave more or less."""

RATIOS = (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0)
"""Base-2 logarithms of how long the library's communication is beside the GEMM."""

LIBRARY = "library"
CE = "ce"
NCCL_ZERO = "nccl_zero"

ELEMENTWISE = Elementwise(name="add", read_nbytes=1 << 28, written_nbytes=1 << 27, numel=1 << 26)

ATTENTION = Attention(batch=4, heads=32, kv_heads=8, queries=4096, keys=4096, head_dim=128, causal=True)


class Keeper(Protocol):
    """Where cells are kept: a store, or nothing."""

    def get(self, label: str, /) -> Measurement | None:
        """What is known of a cell."""
        ...

    def add(self, measurements: list[Measurement], /) -> None:
        """Keep these."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Measures cells, or takes them from where they are kept."""

    bench: Bench
    system: System
    keep: Keeper | None = None
    done: Callable[[], None] = lambda: None

    def ns(self, label: str, plan: Callable[[], Plan], /) -> int | None:
        """Median of a cell; None where it cannot be measured here or its strategy did not run."""
        self.done()
        known = self.keep.get(label) if self.keep is not None else None
        if known is None or known.status not in (Status.OK, Status.UNSUPPORTED):
            try:
                known = self.bench.measure(plan(), label=label)
            except InputError as error:
                known = failed(label, reason=str(error), environment=self.bench.environment)
            if self.keep is not None:
                self.keep.add([known])
        return known.median_ns if known.status is Status.OK and known.proved is not False else None

    def compute_ns(self, op: Compute, /, *, without: int = 0) -> int | None:
        """Computation alone, on so many SMs less."""
        plan = isolated(op, side=Side.COMPUTE, system=self.system)
        if without:
            (task,) = plan.tasks
            limited = dataclasses.replace(task, sms=self.system.device.sm_count - without)
            plan = dataclasses.replace(plan, tasks=(limited,))
        return self.ns(f"compute/{_text(op)}/-{without}", lambda: plan)

    def communication_ns(self, kind: str, way: str, /, *, nbytes: int, ranks: int) -> int | None:
        """Communication alone, by one of `ways_of`."""
        op = communication_of(kind, nbytes=nbytes, ranks=ranks)

        def plan() -> Plan:
            if way == LIBRARY:
                return isolated(op, side=Side.COMMUNICATION, system=self.system)
            return transfer(op, name="communication", means=_means(way), system=self.system).plan

        return self.ns(f"communication/{kind}/{ranks}/{way}/{nbytes}", plan)

    def pair_ns(self, pair: Pair, name: str, /) -> int | None:
        """Both sides together, by the strategy of this name."""
        op = pair.communication
        ranks = op.ranks if isinstance(op, Collective) else 1
        label = f"pair/{_text(pair.compute)}/{_kind_text(pair)}/{ranks}/{op_nbytes(pair)}/{name}"
        return self.ns(label, lambda: lower(pair, strategy(name), system=self.system))


def kinds_of(system: System, /) -> tuple[str, ...]:
    """Kinds of communication that so many GPUs have."""
    return (*((kind.value for kind in COLLECTIVES) if system.gpus > 1 else ()), *COPIES)


def rank_counts(kind: str, system: System, /) -> tuple[int, ...]:
    """Ranks that curves of this kind are measured for: 2, 4 and 8 of a node; a copy has one."""
    return (1,) if kind in COPIES else tuple(ranks for ranks in (2, 4, 8) if ranks <= system.gpus)


def sm_counts(device: Device, /) -> tuple[int, ...]:
    """SMs that a communication kernel may be given."""
    fewest = 4 if device.sm_group > 4 else device.sm_group
    return tuple(size for size in (fewest, 8, 16, 32, 64) if size <= device.sm_count // 2)


def strategies_for(kind: str, device: Device, /) -> tuple[str, ...]:
    """Names of the strategies that may be chosen; serial needs no measuring.

    Copies inside the GPU's memory have no copy engine on devices where those run on SMs.
    """
    if kind == LOCAL and not device.copy_engines.local_copies:
        return _by_sms(device)
    return (*_by_sms(device), "ce", "ce_trimmed", "nccl_zero")


def _by_sms(device: Device) -> tuple[str, ...]:
    most = device.sm_count // 2
    first = tuple(f"prioritized:{sms}" for sms in sm_counts(device) if sms <= most)
    groups = tuple(f"partitioned:{sms}" for sms in partition_sizes(device) if sms <= 64)
    return ("baseline", *first, *groups)


def way_of(name: str, /) -> str:
    """How a strategy of this name carries its communication out."""
    word, _, number = name.partition(":")
    if number and word in ("prioritized", "partitioned", "prioritized_partitioned"):
        return f"sms:{number}"
    return {"ce": CE, "ce_trimmed": CE, "nccl_zero": NCCL_ZERO}.get(word, LIBRARY)


def ways_of(kind: str, device: Device, /) -> tuple[str, ...]:
    """Every way in which communication is measured alone."""
    return tuple(dict.fromkeys(way_of(name) for name in strategies_for(kind, device)))


def lost_sms(name: str, /) -> int:
    """SMs that computation does without where the strategy of this name takes them."""
    _, _, number = name.partition(":")
    return int(number) if number else 0


def losses(device: Device, /) -> tuple[int, ...]:
    """Every number of SMs that some strategy takes from the computation."""
    return tuple(sorted({lost_sms(name) for name in _by_sms(device)} - {0}))


def op_nbytes(pair: Pair, /) -> int:
    """Bytes of the pair's communication."""
    return int(pair.communication.nbytes)


def _means(way: str) -> Means:
    if way.startswith("sms:"):
        return Means(engine=Engine.SM, sms=int(way[4:]), priority=FIRST)
    return Means(engine=Engine.COPY_ENGINE, path=Path.LIBRARY if way == NCCL_ZERO else Path.PLANNED)


def _kind_text(pair: Pair) -> str:
    op = pair.communication
    return op.kind.value if isinstance(op, Collective) else f"{op.source}-{op.destination}"  # type: ignore[union-attr]


def _text(op: Compute) -> str:
    return f"{op.m}x{op.n}x{op.k}" if isinstance(op, Gemm) else type(op).__name__.lower()


def gemm_grid() -> Iterator[Gemm]:
    """GEMMs whose isolated times the tables interpolate; k changes fastest."""
    for m, n, k in itertools.product(*(axis.points() for axis in GEMM_AXES)):
        yield Gemm(m=round(2**m), n=round(2**n), k=round(2**k))
