"""Measured times of fused operators: a JSON file of rows, and what it says of a call.

::

    {"schema": "conccl.fused/1", "device": "h200-sxm", "rows": [
      {"call": "gemm_reduce_scatter", "m": 8192, "n": 8192, "k": 3584, "world": 8, "dtype": "bf16",
       "way": "serial", "us": 995.0}]}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conccl.core.errors import InputError
from conccl.core.files import write_file
from conccl.core.kinds import DType
from conccl.strategies.ways import Serial, Way, way
from conccl.tune.fused_problem import Call, Problem

SCHEMA = "conccl.fused/1"

NEAR = 2.0
"""A measured shape speaks for one whose sizes are up to so many times larger or smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One call by one way, and how long it took (the median)."""

    call: Call
    m: int
    n: int
    k: int
    world: int
    dtype: DType
    way: Way
    ns: int

    def distance(self, problem: Problem, /) -> float:
        """The largest ratio between the sizes of the two; infinite where it is another call."""
        mine = (self.call, self.world, self.dtype)
        if mine != (problem.call, problem.world, problem.dtype):
            return math.inf
        sizes = ((self.m, problem.m), (self.n, problem.n), (self.k, problem.k))
        return max(max(a / b, b / a) for a, b in sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What has been measured on a device."""

    device: str = ""
    rows: tuple[Row, ...] = ()

    def nearest(self, problem: Problem, /) -> tuple[Row, ...]:
        """The rows of the nearest shape that was measured serially and otherwise; none where none is near."""
        found: dict[tuple[int, int, int], list[Row]] = {}
        for row in self.rows:
            if row.distance(problem) <= NEAR:
                found.setdefault((row.m, row.n, row.k), []).append(row)
        complete: list[list[Row]] = [
            rows for rows in found.values() if len(rows) > 1 and any(isinstance(r.way, Serial) for r in rows)
        ]
        if not complete:
            return ()
        distances = [rows[0].distance(problem) for rows in complete]
        return tuple(complete[distances.index(min(distances))])


def read_table(path: Path, /) -> Table:
    """The table of a file; an error says which row is wrong and how."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}. Give a table of fused operators.") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}.") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f'{path} is no table of fused operators: it has no "schema": "{SCHEMA}".')
    rows = document.get("rows")
    if not isinstance(rows, list):
        raise InputError(f"{path}: rows is {rows!r}; it must be a list.")
    return Table(
        device=str(document.get("device", "")),
        rows=tuple(_row(row, where=f"row {index} of {path.name}") for index, row in enumerate(rows)),
    )


def write_table(path: Path, table: Table, /) -> None:
    """The table as a file."""
    rows = [
        {
            "call": row.call.value,
            "m": row.m,
            "n": row.n,
            "k": row.k,
            "world": row.world,
            "dtype": row.dtype.value,
            "way": str(row.way),
            "us": row.ns / 1000,
        }
        for row in table.rows
    ]
    text = json.dumps({"schema": SCHEMA, "device": table.device, "rows": rows}, indent=1) + "\n"
    write_file(path, [text.encode()])


def merged(tables: Iterable[Table], /) -> Table:
    """Several tables of one device; later rows replace earlier ones of the same call and way."""
    device, rows = "", dict[Any, Row]()
    for table in tables:
        if device and table.device and table.device != device:
            raise InputError(f"tables of {device} and of {table.device}: measurements are of one device.")
        device = device or table.device
        for row in table.rows:
            rows[row.call, row.m, row.n, row.k, row.world, row.dtype, row.way] = row
    return Table(device=device, rows=tuple(rows.values()))


def _row(row: object, *, where: str) -> Row:
    if not isinstance(row, Mapping):
        raise InputError(f"{where} is {row!r}; it must be an object.")
    try:
        sizes = {name: int(row[name]) for name in ("m", "n", "k", "world")}
        found = Row(
            call=Call(row["call"]),
            dtype=DType(row["dtype"]),
            way=way(str(row["way"])),
            ns=round(1000 * float(row["us"])),
            **sizes,
        )
    except KeyError as error:
        raise InputError(f"{where} has no {error}.") from error
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: {error}.") from error
    if min(*sizes.values(), found.ns) < 1:
        raise InputError(f"{where}: sizes and us must be above 0.")
    return found
