"""Pairs in files: a JSON list of computation beside communication, each side a row as `costs.rows` has it.

::

    {"pairs": [{"compute": {"m": 8192, "n": 28672, "k": 8192, "dtype": "bf16"},
                "communication": {"op": "all_gather", "nbytes": "896M", "ranks": 8},
                "dependence": "none", "source": "llama3-70b FSDP, MLP up"}]}

A copy is ``{"op": "copy", "nbytes": ..., "source": "device", "destination": "host"}``. One pair that cannot
be read does not lose the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conccl.core.errors import InputError
from conccl.core.files import regular
from conccl.core.kinds import Memory
from conccl.core.ops import Collective, Communication, Compute, Copy, Elementwise, Gemm, Op
from conccl.core.pair import Dependence, Pair
from conccl.core.records import to_json_value
from conccl.core.units import format_bytes, parse_size
from conccl.costs.rows import ops_of_row


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """An entry that is no pair, and why."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFile:
    """What a file of pairs holds."""

    pairs: tuple[Pair, ...]
    unreadable: tuple[Unreadable, ...] = ()


def holds_pairs(path: Path, /) -> bool:
    """Whether this is meant as a file of pairs: a JSON file that is not a model's configuration."""
    if path.suffix != ".json":
        return False
    try:
        document = json.loads(regular(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True  # reading it again says what is wrong
    configures = isinstance(document, dict) and ("model_type" in document or "vocab_size" in document)
    return not configures or "pairs" in document


def read_pairs(path: Path, /) -> PairFile:
    """The pairs of a file; an error where it holds no list of them at all."""
    try:
        document = json.loads(regular(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}. Give a file of pairs, or a model."
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not JSON: {error}.") from error
    entries = document.get("pairs") if isinstance(document, dict) else document
    if not isinstance(entries, list):
        raise InputError(
            f"{path} holds no list of pairs. Write a list, or an object whose 'pairs' is one; each has"
            " 'compute' and 'communication'."
        )
    if not entries:
        raise InputError(f"{path} lists no pairs. Each has 'compute' and 'communication'.")
    pairs, unreadable = [], []
    for index, entry in enumerate(entries):
        try:
            pairs.append(pair_of(entry))
        except InputError as error:
            unreadable.append(Unreadable(place=f"pair {index} of {path.name}", reason=str(error)))
    return PairFile(pairs=tuple(pairs), unreadable=tuple(unreadable))


def pair_of(entry: object, /) -> Pair:
    """The pair that a JSON value says."""
    if not isinstance(entry, Mapping):
        raise InputError(f"a pair is an object with 'compute' and 'communication'; this is {entry!r}.")
    strange = entry.keys() - {"compute", "communication", "dependence", "source"}
    if strange:
        raise InputError(
            f"a pair has no {sorted(strange)[0]!r}; it has compute, communication, dependence and source."
        )
    compute = _op(entry, "compute")
    communication = _op(entry, "communication")
    if not isinstance(communication, (Collective, Copy)):
        raise InputError(
            f"communication is a {type(communication).__name__}; it must be a collective or a copy."
        )
    if isinstance(compute, (Collective, Copy)):
        raise InputError(f"compute is a {type(compute).__name__}; it must be computation.")
    dependence = entry.get("dependence", Dependence.NONE)
    if dependence not in list(Dependence):
        raise InputError(f"dependence is {dependence!r}; it must be one of {', '.join(Dependence)}.")
    return Pair(
        compute=compute,  # type: ignore[arg-type]  # what is left of Op is computation
        communication=communication,
        dependence=Dependence(dependence),
        source=str(entry.get("source", "")),
    )


def _op(entry: Mapping[str, Any], side: str) -> Op:
    row = entry.get(side)
    if not isinstance(row, Mapping):
        raise InputError(f"a pair needs {side!r}, an object with the op's sizes; this has {row!r}.")
    row = {
        key: parse_size(value) if key == "nbytes" and isinstance(value, str) else value
        for key, value in row.items()
    }
    if row.get("op") == "copy" and "nbytes" in row:
        return _copy(row)
    ops = ops_of_row(row)
    if len(ops) != 1:
        raise InputError(f"{side} {row.get('op')!r} is {len(ops)} ops; a side of a pair is one.")
    return ops[0]


def _copy(row: Mapping[str, Any]) -> Copy:
    ends = {}
    for end in ("source", "destination"):
        memory = row.get(end, Memory.DEVICE)
        if memory not in list(Memory):
            raise InputError(f"a copy's {end} is {memory!r}; it must be one of {', '.join(Memory)}.")
        ends[end] = Memory(memory)
    if Memory.DEVICE not in ends.values():
        raise InputError("a copy whose two ends are both off the GPU. One end must be 'device'.")
    if not isinstance(row["nbytes"], int):
        raise InputError(f"a copy's nbytes is {row['nbytes']!r}; it must be an integer or text like 64M.")
    return Copy(nbytes=row["nbytes"], **ends)


def row_of(op: Compute | Communication, /) -> dict[str, Any]:
    """An op as the row that names it: what results show, and what `pair_of` reads back."""
    match op:
        case Gemm():
            batch = {"batch": op.batch} if op.batch > 1 else {}
            return {"op": "gemm", "m": op.m, "n": op.n, "k": op.k, **batch, "dtype": str(op.dtype)}
        case Collective():
            return {"op": str(op.kind), "nbytes": op.nbytes, "ranks": op.ranks, "dtype": str(op.dtype)}
        case Copy():
            return {
                "op": "copy",
                "nbytes": op.nbytes,
                "source": str(op.source),
                "destination": str(op.destination),
            }
        case Elementwise():
            return {"op": op.name, "read_nbytes": op.read_nbytes, "written_nbytes": op.written_nbytes}
        case _:
            value = to_json_value(op)
            return {"op": value.pop("type").lower(), **value}


def op_text(op: Op, /) -> str:
    """An op in a few characters."""
    match op:
        case Gemm():
            batch = f"{op.batch} x " if op.batch > 1 else ""
            return f"{batch}{op.m}x{op.n}x{op.k} {op.dtype}"
        case Collective():
            return f"{op.kind} {format_bytes(op.nbytes)} x{op.ranks}"
        case Copy():
            return f"{op.source}-{op.destination} {format_bytes(op.nbytes)}"
        case _:
            return type(op).__name__
