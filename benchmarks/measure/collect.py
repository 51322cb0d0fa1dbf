"""Make the data files from what `h200_ops.py` left in one or more folders.

    python benchmarks/measure/collect.py OUT... --to benchmarks/data/h200-sxm/2026-11-30

Writes gemm, ops, models, c3 and sustained ``.json.gz``, each ``{"header": ..., "rows": [...]}``. Where
several folders hold the same row, the last one counts.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

from launches import KERNEL_FIELDS

DATA = {
    "gemm": ("gemm",),
    "ops": ("ops",),
    "models": ("models",),
    "c3": ("c3", "c3_more"),
    "sustained": ("sustained",),
}
ROW_KERNEL_FIELDS = (*KERNEL_FIELDS[:7], "count")
"""Fields of a kernel in gemm and ops: equal ones are one entry, with their mean time and their number."""
UNITS = (
    "us: microseconds, ms: milliseconds, nbytes: bytes; us is the median, us_min and us_max of the replays"
)

Record = dict[str, Any]


def main() -> None:
    """Read the folders, write the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--to", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.to.mkdir(parents=True, exist_ok=True)
    for name, sections in DATA.items():
        records: dict[str, Record] = {}
        headers = []
        for folder in arguments.folders:
            found = [r for section in sections for r in _read(folder, section)]
            records |= {r["id"]: r for r in found}
            headers += [json.loads((folder / "header.json").read_text())] if found else []
        rows = _rows(list(records.values()))
        if rows:
            _write(arguments.to / f"{name}.json.gz", name=name, headers=headers, rows=rows)


def _read(folder: Path, section: str) -> list[Record]:
    plain, zipped = folder / f"{section}.jsonl", folder / f"{section}.jsonl.gz"
    if zipped.exists():
        text = gzip.decompress(zipped.read_bytes()).decode()
    else:
        text = plain.read_text() if plain.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def _rows(records: list[Record]) -> list[Record]:
    """Results with their keys flat and their kernels beside them; what failed is left out and counted."""
    kernels = {r["row"]: r["kernels"] for r in records if "row" in r}
    rows = []
    for record in records:
        if "error" in record:
            print(f"left out: {record['id']}: {record['error']}")
        elif not record["id"].startswith(("kernels ", "profile ")):
            row = {**record.get("key", {}), **{k: v for k, v in record.items() if k not in ("id", "key")}}
            row |= {"kernels": kernels[record["id"]]} if record["id"] in kernels else {}
            rows.append({k: v for k, v in row.items() if k != "kernel_fields"})
    return sorted(rows, key=lambda r: json.dumps({k: v for k, v in r.items() if k != "kernels"}, default=str))


def _write(path: Path, *, name: str, headers: list[Record], rows: list[Record]) -> None:
    header: Record = {"device": "h200-sxm", "units": UNITS, "runs": headers, "rows": len(rows)}
    if name in ("gemm", "ops"):
        header["kernel_fields"] = ROW_KERNEL_FIELDS
    if name == "models":
        header["kernel_fields"] = KERNEL_FIELDS
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    body = '{"header": ' + json.dumps(header, indent=1) + ',\n"rows": [\n' + lines + "\n]}\n"
    with gzip.GzipFile(path, "wb", compresslevel=9, mtime=0) as file:
        file.write(body.encode())
    print(f"{path}: {len(rows)} rows, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
