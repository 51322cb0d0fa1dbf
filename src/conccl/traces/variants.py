"""Which rows are instances of one kernel: equal name, grid, block and, where recorded, input shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from conccl.core.timeline import Ids, Times
from conccl.traces.gpu_rows import GpuRows
from conccl.traces.host_rows import HostRows
from conccl.traces.linking import Links, around

_MOST_CTAS = 1 << 62
_MOST_THREADS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Variants:
    """Parallel arrays, one entry a row."""

    variant: Ids
    ctas: Times
    threads: Ids
    operator: Ids
    """Number in `HostRows.operators`; -1: none that is kept."""


def variants_of(launch_kind: Ids, /, *, gpu: GpuRows, host: HostRows, links: Links) -> Variants:
    """The variants of rows of these kinds of launch (numbers of `GpuRows.launches`)."""
    kinds = list(gpu.launches)
    ctas = np.array([_product(grid, most=_MOST_CTAS) for *_, grid, _ in kinds], dtype=np.int64)
    threads = np.array([_product(block, most=_MOST_THREADS) for *_, block in kinds], dtype=np.int32)
    shapes = host.ops.array("shapes", dtype=np.int32)
    if len(shapes):
        everything = np.ones(len(shapes), dtype=np.bool_)
        op = around(links, host.ops, everything, threads=host.thread_numbers(host.ops))
        operator = np.where(op >= 0, host.ops.array("operator", dtype=np.int32)[op], -1).astype(np.int32)
        variant = _with_shapes(launch_kind, np.where(op >= 0, shapes[op], -1), host)
    else:
        operator, variant = np.full(len(launch_kind), -1, dtype=np.int32), launch_kind
    return Variants(variant=variant, ctas=ctas[launch_kind], threads=threads[launch_kind], operator=operator)


def _with_shapes(launch_kind: Ids, shape: Ids, host: HostRows) -> Ids:
    """Kinds of launch told apart by the shapes of the operator that launched them."""
    _, variant = np.unique(
        launch_kind.astype(np.int64) * (len(host.shapes) + 1) + shape.astype(np.int64) + 1,
        return_inverse=True,
    )
    numbers: Ids = variant.astype(np.int32)
    return numbers


def _product(sizes: tuple[Any, ...], *, most: int) -> int:
    """Of (2, 3, 4) 24; 0 where it is not known."""
    product = 1
    for size in sizes:
        if not isinstance(size, int) or size < 1:
            return 0
        product *= size
    return product if sizes and product <= most else 0
