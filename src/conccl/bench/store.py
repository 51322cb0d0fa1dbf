"""Measurements in a file that only grows: one JSON line each, the first line saying where they come from.

A sweep that was interrupted finds what it has already measured. Lines of unlike environments never share a
file. A last line that was cut off in the middle of writing is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from conccl.core.errors import OutputError, StoreError
from conccl.core.files import regular
from conccl.core.measurement import Environment, Measurement
from conccl.core.records import from_json_value, to_json_value

SCHEMA = "conccl.store/1"

_HEAD = b'{"schema": "conccl.store/'


class Store:
    """Measurements by label, kept in one file."""

    def __init__(self, path: Path, /, *, environment: Environment) -> None:
        self._path = path
        self._environment = environment
        self._known: dict[str, Measurement] = {}
        if _has_a_line(path):
            found, measurements = read_store(path)
            _require_alike(path, found, environment)
            self._known = {one.label: one for one in measurements}
            _drop_cut_off_line(path)
        else:
            self._write(json.dumps({"schema": SCHEMA, "environment": to_json_value(environment)}) + "\n")

    def get(self, label: str, /) -> Measurement | None:
        """The latest measurement of this label."""
        return self._known.get(label)

    def all(self) -> dict[str, Measurement]:
        """The latest measurement of every label."""
        return dict(self._known)

    def add(self, measurements: Iterable[Measurement], /) -> None:
        """Keep these, on disk, before anything else happens."""
        lines = []
        for one in measurements:
            _require_alike(self._path, self._environment, one.environment)
            value = to_json_value(one)
            del value["environment"]
            lines.append(json.dumps(value) + "\n")
            self._known[one.label] = one
        if lines:
            self._write("".join(lines))

    def _write(self, text: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise OutputError(
                f"cannot write {self._path}: {error.strerror}. Free space or give another --output; what is"
                " already there is kept and will not be measured again."
            ) from error


def read_store(path: Path, /) -> tuple[Environment, tuple[Measurement, ...]]:
    """The environment of a store and its measurements, in the order in which they were made."""
    try:
        text = regular(path).read_text(encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}.") from error
    lines = text.splitlines()
    head = _json(path, 1, lines[0] if lines else "")
    if not isinstance(head, dict) or head.get("schema") != SCHEMA:
        written_by = head.get("schema") if isinstance(head, dict) else None
        raise StoreError(
            f"{path} is no store of this version ({SCHEMA}) but {written_by!r}."
            " Give another --output, or move the file away."
        )
    environment = from_json_value(head["environment"], Environment)
    whole = lines[1:] if text.endswith("\n") else lines[1:-1]
    measurements = []
    for number, line in enumerate(whole, start=2):
        value = _json(path, number, line)
        value["environment"] = head["environment"]
        measurements.append(from_json_value(value, Measurement))
    return environment, tuple(measurements)


def _json(path: Path, number: int, line: str) -> dict[str, object]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise StoreError(
            f"{path} line {number} is not JSON: {error}. Move the file away to begin anew."
        ) from error
    if not isinstance(value, dict):
        raise StoreError(f"{path} line {number} is no object. Move the file away to begin anew.")
    return value


def _has_a_line(path: Path) -> bool:
    """Whether there is something to read; a first line that was cut off while it was written is dropped."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    content = path.read_bytes()
    if b"\n" in content or not (content.startswith(_HEAD) or _HEAD.startswith(content)):
        return True
    path.write_bytes(b"")
    return False


def _drop_cut_off_line(path: Path) -> None:
    """End the file after its last whole line."""
    content = path.read_bytes()
    if not content.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


def _require_alike(path: Path, one: Environment, other: Environment) -> None:
    if one == other:
        return
    a, b = to_json_value(one), to_json_value(other)
    field = next(key for key in a if a[key] != b[key])
    raise StoreError(
        f"{path} holds measurements with {field} {a[field]!r}, and these have {b[field]!r}."
        " Unlike environments are not mixed: give another --output."
    )
