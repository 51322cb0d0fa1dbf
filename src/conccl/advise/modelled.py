"""Isolated times of a trace's rows by the cost models, from the work that the trace records of them.

Collectives and copies are predicted from their metadata, computation where the operator that launched it
recorded its shapes. What is not recorded (other operators, sizes, groups) is not guessed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.advise.devices import device_of
from conccl.advise.predictions import Predictions
from conccl.advise.recorded import collective_op, compute_ops, copy_op, ranks_per_node
from conccl.core.errors import ConcclError
from conccl.core.hardware import Device
from conccl.core.ops import Compute, Gemm
from conccl.core.timeline import Activity, Mask, Times
from conccl.costs.collective import collective_cost
from conccl.costs.kernel import KernelCost
from conccl.costs.kernels import kernels_of
from conccl.traces.breakdown import communicates
from conccl.traces.trace import Trace

MOST_WORKS = 300
"""Pieces of work, those with most time, that are predicted of a trace: a millisecond each at most."""

MEMSET = "memset"
"""What the cost models call the driver's fills, which a trace has as memsets and not as kernels."""

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """Rows that do the same, and what that takes."""

    rows: Rows
    family: str
    alone_ns: float
    uncertainty: float


def modelled(trace: Trace, wanted: Mask, /, *, device: str | None) -> Predictions:
    """The wanted rows whose work is recorded, on the device given or the one that the trace names."""
    recognised = device_of(trace, given=device)
    if recognised.device is None:
        return dataclasses.replace(_predictions(trace, [], None), reason=recognised.reason)
    modelling = _Modelling(
        trace=trace,
        device=recognised.device,
        duration=trace.timeline.duration_ns,
        moving=np.flatnonzero(wanted & communicates(trace.timeline.activity)),
        computing=np.flatnonzero(wanted & ~communicates(trace.timeline.activity)),
    )
    works = [*modelling.collectives(), *modelling.copies(), *modelling.computations()]
    return _predictions(trace, works, recognised.device.name)


def _predictions(trace: Trace, works: list[_Work], device: str | None, /) -> Predictions:
    count = len(trace.timeline)
    alone_ns, uncertainty = np.full((2, count), np.nan)
    family = np.full(count, -1, dtype=np.int32)
    families = tuple(dict.fromkeys(work.family for work in works))
    for work in works:
        alone_ns[work.rows], uncertainty[work.rows] = work.alone_ns, work.uncertainty
        family[work.rows] = families.index(work.family)
    return Predictions(
        alone_ns=alone_ns, uncertainty=uncertainty, family=family, families=families, device=device
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Modelling:
    """The wanted rows of one trace, priced on one device."""

    trace: Trace
    device: Device
    duration: Times
    moving: Rows
    computing: Rows

    def collectives(self) -> Iterator[_Work]:
        collective = self.trace.timeline.columns["collective"]
        for rows in self._alike(self.moving, collective[self.moving]):
            call = self.trace.collectives[collective[rows[0]]]
            op = collective_op(call, world_size=self.trace.world_size)
            if op is None:
                continue
            each = ranks_per_node(call, gpus_per_node=self.device.gpus_per_node)
            try:
                cost = collective_cost(op, self.device, ranks_per_node=each)
            except ConcclError:  # more nodes than the device has rails for
                continue
            yield _Work(rows=rows, family=str(op.kind), alone_ns=cost.time_ns, uncertainty=cost.uncertainty)

    def copies(self) -> Iterator[_Work]:
        timeline = self.trace.timeline
        rows = self.moving[timeline.columns["nbytes"][self.moving] > 0]  # a kernel has no bytes
        sizes, size = np.unique(timeline.columns["nbytes"][rows], return_inverse=True)
        for mine in self._alike(rows, timeline.name_id[rows] * len(sizes) + size.reshape(-1)):
            nbytes = int(timeline.columns["nbytes"][mine[0]])
            op = copy_op(timeline.names[timeline.name_id[mine[0]]], nbytes)
            if op is not None:
                (kernel,) = kernels_of(op, self.device)
                yield _Work(
                    rows=mine, family="copy", alone_ns=kernel.isolated_ns, uncertainty=kernel.uncertainty
                )

    def computations(self) -> Iterator[_Work]:
        operator = self.trace.timeline.columns["operator"]
        kernels = self._kernels_of_operators()
        for rows in self._alike(self.computing, operator[self.computing]):
            number = int(operator[rows[0]])
            names = self.trace.timeline.name_id[rows]
            for place, name in enumerate(kernels[number]):
                mine = rows[names == name]
                if len(mine):
                    yield from self._computation(number, name, mine, place=place, count=len(kernels[number]))

    def _kernels_of_operators(self) -> dict[int, list[int]]:
        """The names of each operator's kernels in all of the trace, the longest first."""
        timeline = self.trace.timeline
        operators, names = timeline.columns["operator"], timeline.name_id
        rows = np.flatnonzero((operators >= 0) & (timeline.activity == Activity.COMPUTE))
        keys = operators[rows].astype(np.int64) * len(timeline.names) + names[rows]
        found, which = np.unique(keys, return_inverse=True)
        which = which.reshape(-1)
        mean = np.bincount(which, weights=self.duration[rows]) / np.bincount(which)
        kernels: dict[int, list[int]] = {}
        for place in np.argsort(-mean, kind="stable"):
            operator, name = divmod(int(found[place]), len(timeline.names))
            kernels.setdefault(operator, []).append(name)
        return kernels

    def _computation(
        self, operator: int, name: int, rows: Rows, /, *, place: int, count: int
    ) -> Iterator[_Work]:
        """One kernel of an operator: GEMMs are told by name, others pair off with the model's by length."""
        ops = compute_ops(self.trace.operators[operator], self.trace.timeline.names[name])
        kernels = [_kernel(op, self.device, place=place, count=count) for op in ops]
        known = [kernel for kernel in kernels if kernel is not None]
        if not ops or len(known) < len(ops):
            return
        low, high = (each(kernel.isolated_ns for kernel in known) for each in (min, max))
        yield _Work(
            rows=rows,
            family=known[0].model or type(ops[0]).__name__.lower(),
            alone_ns=(low + high) / 2,
            uncertainty=known[0].uncertainty + (high - low) / (high + low),
        )

    def _alike(self, rows: Rows, key: npt.NDArray[np.signedinteger], /) -> list[Rows]:
        """The rows of each key that is not negative: those with most time, a bounded number."""
        rows, key = rows[key >= 0], key[key >= 0]
        keys, which = np.unique(key, return_inverse=True)
        which = which.reshape(-1)
        summed = np.bincount(which, weights=self.duration[rows], minlength=len(keys))
        order = np.argsort(which, kind="stable")
        parts = np.split(rows[order], np.cumsum(np.bincount(which, minlength=len(keys)))[:-1])
        return [
            parts[place] for place in np.argsort(-summed, kind="stable")[:MOST_WORKS] if len(parts[place])
        ]


def _kernel(op: Compute, device: Device, /, *, place: int, count: int) -> KernelCost | None:
    """The op's kernel at this place by length; None where the model has not ``count`` of them."""
    try:
        kernels = [kernel for kernel in kernels_of(op, device) if kernel.name != MEMSET]
    except ConcclError:  # no model of this op, or none of this element type on the device
        return None
    kernels.sort(key=lambda kernel: -kernel.isolated_ns)
    if isinstance(op, Gemm):
        return kernels[0] if kernels else None
    return kernels[place] if len(kernels) == count else None
