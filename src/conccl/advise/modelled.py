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
from conccl.advise.predict import Predictions
from conccl.advise.recorded import collective_op, compute_ops, copy_op, ranks_per_node
from conccl.core.errors import ConcclError
from conccl.core.hardware import Device
from conccl.core.ops import Compute, Gemm
from conccl.core.timeline import Mask
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
    works = [
        *_collectives(trace, wanted, recognised.device),
        *_copies(trace, wanted, recognised.device),
        *_computations(trace, wanted, recognised.device),
    ]
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


def _collectives(trace: Trace, wanted: Mask, device: Device, /) -> Iterator[_Work]:
    timeline = trace.timeline
    for rows in _alike(trace, wanted & communicates(timeline.activity), timeline.columns["collective"]):
        call = trace.collectives[timeline.columns["collective"][rows[0]]]
        op = collective_op(call, world_size=trace.world_size)
        if op is None:
            continue
        try:
            cost = collective_cost(
                op, device, ranks_per_node=ranks_per_node(call, gpus_per_node=device.gpus_per_node)
            )
        except ConcclError:  # more nodes than the device has rails for
            continue
        yield _Work(rows=rows, family=str(op.kind), alone_ns=cost.time_ns, uncertainty=cost.uncertainty)


def _copies(trace: Trace, wanted: Mask, device: Device, /) -> Iterator[_Work]:
    timeline = trace.timeline
    nbytes = timeline.columns["nbytes"]
    # Copies are few kinds by few sizes; a kernel has no bytes.
    sizes, size = np.unique(nbytes, return_inverse=True)
    key = np.where(nbytes > 0, timeline.name_id * len(sizes) + size.reshape(-1), -1)
    for rows in _alike(trace, wanted & communicates(timeline.activity), key):
        op = copy_op(timeline.names[timeline.name_id[rows[0]]], int(nbytes[rows[0]]))
        if op is not None:
            (kernel,) = kernels_of(op, device)
            yield _Work(rows=rows, family="copy", alone_ns=kernel.isolated_ns, uncertainty=kernel.uncertainty)


def _computations(trace: Trace, wanted: Mask, device: Device, /) -> Iterator[_Work]:
    timeline = trace.timeline
    wanted = wanted & ~communicates(timeline.activity)
    for rows in _alike(trace, wanted, timeline.columns["operator"]):
        yield from _of_operator(trace, rows, device)


def _of_operator(trace: Trace, rows: Rows, device: Device, /) -> Iterator[_Work]:
    """The kernels of one operator: GEMMs are told by name, others pair off with the model's by length."""
    timeline = trace.timeline
    operator = trace.operators[timeline.columns["operator"][rows[0]]]
    names = timeline.name_id[rows]
    of_name = [rows[names == name] for name in np.unique(names)]
    of_name.sort(key=lambda mine: -float(np.median(timeline.duration_ns[mine])))
    for place, mine in enumerate(of_name):
        ops = compute_ops(operator, timeline.names[timeline.name_id[mine[0]]])
        kernels = [
            kernel
            for op in ops
            if (kernel := _kernel(op, device, place=place, count=len(of_name))) is not None
        ]
        if not ops or len(kernels) < len(ops):
            continue
        low, high = (each(kernel.isolated_ns for kernel in kernels) for each in (min, max))
        yield _Work(
            rows=mine,
            family=type(ops[0]).__name__.lower(),
            alone_ns=(low + high) / 2,
            uncertainty=kernels[0].uncertainty + (high - low) / (high + low),
        )


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


def _alike(trace: Trace, wanted: Mask, key: npt.NDArray[np.signedinteger], /) -> list[Rows]:
    """The wanted rows of each key that is not negative: those with most time, a bounded number."""
    rows = np.flatnonzero(wanted & (key >= 0))
    keys, which = np.unique(key[rows], return_inverse=True)
    which = which.reshape(-1)
    summed = np.bincount(which, weights=trace.timeline.duration_ns[rows], minlength=len(keys))
    order = np.argsort(which, kind="stable")
    parts = np.split(rows[order], np.cumsum(np.bincount(which, minlength=len(keys)))[:-1])
    return [parts[place] for place in np.argsort(-summed, kind="stable")[:MOST_WORKS]]
