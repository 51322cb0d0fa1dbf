"""Which way a call goes: the caller's, or the one that measurements or costs say is fastest here.

Deciding costs a few simulations, once for each kind of call in a process; later calls look it up.
"""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from conccl.advise.devices import device_named
from conccl.core.errors import InputError
from conccl.core.hardware import Device
from conccl.core.kinds import DType
from conccl.strategies.ways import AUTO, Way, way
from conccl.tune.fused_choice import Choice, choose
from conccl.tune.fused_problem import Call, Problem
from conccl.tune.fused_table import Table, merged, read_table

DTYPES = {
    torch.bfloat16: DType.BF16,
    torch.float16: DType.FP16,
    torch.float32: DType.FP32,
    torch.float64: DType.FP64,
}

UNMEASURED = ("serial", "chunked")
"""Ways taken where only costs speak: the tracking kernel has not been measured, and costs may flatter it."""

MEASURED = (*UNMEASURED, "tracked")

_tables: dict[str, Table] = {}
"""Device -> what has been measured on it."""


def use_measurements(table: Path | str | Table, /) -> None:
    """Let "auto" decide by these measured times, on the device that they name, from now on.

    ``table`` is a file as `conccl.tune.fused_table` describes it, or its content. All ranks use the same.
    """
    given = table if isinstance(table, Table) else read_table(Path(table))
    if not given.device:
        raise InputError("the table names no device: times are of one device alone.")
    known = _tables.get(given.device)
    _tables[given.device] = given if known is None else merged([known, given])
    _choice.cache_clear()


def choice_of(
    call: Call | str, /, *, m: int, n: int, k: int, world: int, dtype: torch.dtype, device: torch.device
) -> Choice:
    """What "auto" does with a call of this shape here, and why."""
    problem = Problem(call=Call(call), m=_rounded(m), n=n, k=k, world=world, dtype=DTYPES[dtype])
    return _choice(problem, _name(device))


def chosen(
    call: str,
    *,
    m: int,
    n: int,
    k: int,
    world: int,
    dtype: torch.dtype,
    device: torch.device,
    way_text: str,
) -> Way:
    """The way of a call: the caller's, or what `choice_of` says."""
    if way_text != AUTO:
        return way(way_text)
    return choice_of(call, m=m, n=n, k=k, world=world, dtype=dtype, device=device).way


@functools.lru_cache(maxsize=4096)
def _choice(problem: Problem, name: str) -> Choice:
    return choose(
        problem,
        device=_known(name),
        table=_tables.get(name),
        ways=MEASURED if name in _tables else UNMEASURED,
    )


@functools.cache
def _known(name: str) -> Device | None:
    return device_named(name)


def _name(device: torch.device) -> str:
    """What the driver calls the device; "cpu" has no costs."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _rounded(rows: int) -> int:
    """Rows to an eighth of their power of two: batches of changing length are few kinds of calls."""
    step = 1 << max(0, rows.bit_length() - 4)
    return max(1, -(-rows // step) * step)
