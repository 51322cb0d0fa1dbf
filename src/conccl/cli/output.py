"""What every command prints: JSON alone on standard output, everything else on standard error."""

from __future__ import annotations

import enum
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conccl.core.errors import OutputError


class Format(enum.StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


def write_json(document: Mapping[str, Any], /) -> None:
    """One JSON document on standard output; figures without meaning are null, never NaN."""
    json.dump(_finite(document), sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def write_text(path: Path, text: str, /) -> None:
    """A file that a user asked for, made with the folders it lies in."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror}. Give a path in a folder that you may write to."
        ) from error


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
