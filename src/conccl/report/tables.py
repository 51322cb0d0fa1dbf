"""An analysis as CSV files, one a table, with the keys of the JSON document as columns.

Times are integer ns; a figure without meaning is an empty field. A text that a spreadsheet would take for a
formula gets an apostrophe before it, since names come from other people's programs.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from conccl.advise.analysis import Analysis
from conccl.advise.document import to_document
from conccl.core.files import write_file

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What spreadsheets evaluate (OWASP, CSV injection)."""


def write_csv(analysis: Analysis, /, *, folder: str | Path) -> tuple[Path, ...]:
    """Write a file for each table that has rows; `OutputError` where the folder cannot be written."""
    paths = []
    for name, rows in csv_tables(analysis).items():
        path = Path(folder) / f"{name}.csv"
        # A lone surrogate, which some traces hold, has no UTF-8 form.
        write_file(path, [csv_text(rows).encode("utf-8", "replace")])
        paths.append(path)
    return tuple(paths)


def csv_tables(analysis: Analysis, /) -> dict[str, list[dict[str, Any]]]:
    """Rows of each table that has any: ranks, steps and whatever else the document lists."""
    document = to_document(analysis)
    tables = {
        "ranks": [_flat(rank) for rank in document["ranks"]],
        "steps": [
            {"rank": rank["rank"], **_flat(step)} for rank in document["ranks"] for step in rank["steps"]
        ],
    }
    for key, value in document.items():
        if key not in tables and isinstance(value, list) and value and isinstance(value[0], Mapping):
            tables[key] = [_flat(row) for row in value]
    return {name: rows for name, rows in tables.items() if rows}


def csv_text(rows: Iterable[Mapping[str, Any]], /) -> str:
    """Rows as CSV with a heading; columns are those of all rows in the order in which they first occur."""
    rows = list(rows)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Records within a row as columns of their own; lists of texts joined, lists of records left out."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat.update({f"{key}_{inner}": item for inner, item in value.items()})
        elif not isinstance(value, (list, tuple)):
            flat[key] = value
        elif not any(isinstance(item, Mapping) for item in value):
            flat[key] = "; ".join(map(str, value))
    return flat


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
