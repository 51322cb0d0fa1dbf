"""Values by key in a file that only grows, one JSON line each, so that a sweep can be resumed."""

from __future__ import annotations

import json
from pathlib import Path

from conccl.core.errors import OutputError, StoreError
from conccl.core.files import regular

SCHEMA = "conccl.kept/1"


class Kept:
    """Values by key. A line that was cut off in the middle of writing is dropped."""

    def __init__(self, path: Path, /) -> None:
        self._path = path
        self._values: dict[str, dict[str, object]] = {}
        if path.exists() and path.stat().st_size > 0:
            self._read()
        else:
            self._write(json.dumps({"schema": SCHEMA}) + "\n", mode="w")

    def get(self, key: str, /) -> dict[str, object] | None:
        """The value of a key; None where there is none."""
        return self._values.get(key)

    def add(self, key: str, value: dict[str, object], /) -> None:
        """Keep this, on disk, before anything else happens."""
        self._write(json.dumps({"key": key, "value": value}) + "\n", mode="a")
        self._values[key] = value

    def _read(self) -> None:
        try:
            text = regular(self._path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"cannot read {self._path}: {error}. Give another --output.") from error
        whole = text[: text.rfind("\n") + 1]
        lines = whole.splitlines()
        if not lines or _object(lines[0]).get("schema") != SCHEMA:
            raise StoreError(
                f"{self._path} holds no results of this version ({SCHEMA})."
                " Give another --output, or move the file away."
            )
        for number, line in enumerate(lines[1:], start=2):
            entry = _object(line)
            key, value = entry.get("key"), entry.get("value")
            if not isinstance(key, str) or not isinstance(value, dict):
                raise StoreError(
                    f"{self._path} line {number} is no result. Move the file away to begin anew."
                )
            self._values[key] = value
        if whole != text:
            self._write(whole, mode="w")

    def _write(self, text: str, *, mode: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open(mode, encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise OutputError(
                f"cannot write {self._path}: {error.strerror}. Free space or give another --output; what is"
                " already there is kept."
            ) from error


def _object(line: str) -> dict[str, object]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
