"""Chosen iterations from the document that `conccl sample iterations` printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from conccl.core.errors import InputError
from conccl.core.files import regular
from conccl.sampling.seqpoint import Length, SeqPoint

SCHEMA = "conccl.sample.iterations/"


def read_seqpoints(path: Path, /) -> tuple[SeqPoint, ...]:
    """The SeqPoints of a document; `InputError` where it is none, or says what cannot be."""
    try:
        document = json.loads(regular(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}. Give a file that you may read.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}). {_ADVICE}") from error
    if not isinstance(document, dict) or not str(document.get("schema")).startswith(SCHEMA):
        raise InputError(f"{path} is no document of conccl sample iterations. {_ADVICE}")
    try:
        points = tuple(_seqpoint(row) for row in document["seqpoints"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} holds a broken SeqPoint ({error!r}). {_ADVICE}") from error
    if not points or len({len(point.length) for point in points}) > 1:
        raise InputError(f"{path} has no SeqPoints, or of different dimensions. {_ADVICE}")
    return points


_ADVICE = "Make it with: conccl sample iterations LOG --format json > chosen.json"


def _seqpoint(row: Any) -> SeqPoint:
    length = row["length"] if isinstance(row["length"], list) else [row["length"]]
    return SeqPoint(length=_whole(length), iteration=int(row["iteration"]), weight=_whole([row["weight"]])[0])


def _whole(values: list[Any]) -> Length:
    if not values or not all(type(value) is int and value > 0 for value in values):
        raise ValueError(values)
    return tuple(values)
