"""Kernels and systems with round numbers, for tests whose times can be worked out by hand."""

from conccl.core.hardware import CopyEngines, Device, Link, System, Topology
from conccl.core.kinds import DType, Memory
from conccl.core.ops import Collective, Copy, Elementwise, Gemm
from conccl.core.plan import Dependency, Engine, Plan, Side, Task
from conccl.core.timeline import Span
from conccl.costs.collective import Algorithm, CollectiveCost
from conccl.costs.kernel import CtaGroup, CtaWork, Footprint, KernelCost, kernel_cost
from conccl.sim.executor import SimExecutor


def link(name: str, gbps: float, *, both: float | None = None, latency_ns: int = 0) -> Link:
    return Link(
        name=name,
        out_bandwidth=gbps * 1e9,
        in_bandwidth=gbps * 1e9,
        both_bandwidth=(both or 2 * gbps) * 1e9,
        latency_ns=latency_ns,
    )


def device(**changes) -> Device:
    """100 SMs, 1000 GB/s of HBM, 4000 of L2, 100 to peers and 50 to the host, 4 copy engines."""
    fields = {
        "name": "round",
        "vendor": "made",
        "sm_count": 100,
        "clock_hz": 1e9,
        "peak_flops": {DType.BF16: 100e12},
        "vector_flops": 10e12,
        "hbm_nbytes": 1 << 34,
        "hbm_bandwidth": 1000e9,
        "hbm_efficiency": 1.0,
        "l2_nbytes": 1 << 25,
        "l2_bandwidth": 4000e9,
        "shared_memory_nbytes": 1000,
        "threads_per_sm": 2048,
        "ctas_per_sm": 32,
        "copy_engines": CopyEngines(count=4, bandwidth=100e9, launch_ns=0),
        "host_link": link("host", 50, both=80),
        "peer_link": link("peer", 100),
        "peer_topology": Topology.SWITCH,
        "sm_group": 4,
    }
    return Device(**{**fields, **changes})


def kernel(
    name: str = "k",
    *,
    ctas: int,
    share: float = 1.0,
    fixed_ns: float = 0.0,
    made_on: Device | None = None,
    **work: float,
) -> KernelCost:
    """A kernel of equal CTAs, each of which takes this share of an SM."""
    return kernel_cost(
        name,
        device=made_on or device(),
        groups=(CtaGroup(count=ctas, work=CtaWork(**work)),),
        footprint=Footprint(threads=round(2048 * share)),
        fixed_ns=fixed_ns,
        uncertainty=0.0,
    )


def op(name: str) -> Elementwise:
    """An op that `Simulated` knows by its name."""
    return Elementwise(name=name, read_nbytes=1, written_nbytes=1)


def made_collective(op: Collective, on: Device) -> CollectiveCost:
    """A collective that fills the peer link with ten CTAs."""
    sent = op.nbytes * (op.ranks - 1) / op.ranks
    return CollectiveCost(
        algorithm=Algorithm.RING,
        time_ns=round(sent / on.peer_link.out_bandwidth * 1e9),
        link_nbytes=sent,
        ctas=10,
        uncertainty=0.0,
    )


class Simulated:
    """Runs tasks whose ops are named kernels."""

    def __init__(
        self, kernels: dict[str, KernelCost], *, gpus: int = 1, collective_cost=None, on=None, **options
    ):
        self.system = System(device=on or device(), gpus=gpus)
        self.executor = SimExecutor(
            system=self.system,
            kernels_of=lambda op, _: (kernels[op.name],),
            collective_cost=collective_cost or made_collective,
            **options,
        )

    def __call__(self, *tasks: Task, **plan) -> dict[str, Span]:
        return {span.name: span for span in self.executor.run(Plan(tasks=tasks, **plan))}


def task(id_: str, kernel_name: str | None = None, *, lane: str | None = None, after=(), **fields) -> Task:
    """A task on a lane of its own that runs the kernel of its name, after the tasks named."""
    return Task(
        id=id_,
        op=fields.pop("op", None) or op(kernel_name or id_),
        lane=lane or id_,
        after=tuple(Dependency(task=name) if isinstance(name, str) else name for name in after),
        **fields,
    )


def host_copy(id_: str, nbytes: int, *, out: bool = True, **fields) -> Task:
    """A copy-engine transfer to or from the host."""
    ends = (Memory.DEVICE, Memory.HOST) if out else (Memory.HOST, Memory.DEVICE)
    return task(
        id_,
        op=Copy(nbytes=nbytes, source=ends[0], destination=ends[1]),
        side=Side.COMMUNICATION,
        engine=fields.pop("engine", Engine.COPY_ENGINE),
        **fields,
    )


def tiled_gemms(op, on: Device) -> tuple[KernelCost, ...]:
    """GEMMs of 128 x 128 tiles, one a CTA and SM; elementwise kernels of 64 KiB a CTA."""
    if not isinstance(op, Gemm):
        ctas = max(1, op.nbytes // (64 << 10))
        work = CtaWork(least_ns=100.0, hbm_read_nbytes=op.nbytes / ctas)
        groups = (CtaGroup(count=ctas, work=work),)
        return (_made(type(op).__name__, on, groups, threads=256),)
    tiles = -(-op.m // 128) * -(-op.n // 128) * op.batch
    sm_ns = 2 * 128 * 128 * op.k * on.sm_count / on.peak_flops[op.dtype] * 1e9
    work = CtaWork(
        latency_ns=500.0,
        sm_ns=sm_ns,
        least_ns=sm_ns / 2,
        hbm_read_nbytes=op.nbytes / tiles,
        l2_nbytes=2 * 128 * op.k * op.dtype.nbytes,
    )
    return (_made("gemm", on, (CtaGroup(count=tiles, work=work),), threads=on.threads_per_sm),)


def _made(name: str, on: Device, groups: tuple[CtaGroup, ...], *, threads: int) -> KernelCost:
    return kernel_cost(
        name, device=on, groups=groups, footprint=Footprint(threads=threads), fixed_ns=0.0, uncertainty=0.0
    )
