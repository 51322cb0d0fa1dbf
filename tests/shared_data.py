"""Reference data that tests may read where it is present; a user's checkout does not have it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


def shared(path: str, /) -> Path:
    """The reference file or folder at this relative path; skips the test where it is absent."""
    root = Path(os.environ.get("CONCCL_SHARED_DATA", _BESIDE))
    found = root / path
    if not found.exists():
        pytest.skip(f"reference data not present: {path}")
    return found
