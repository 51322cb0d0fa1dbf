"""Runs an example as one of several ranks."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
from pathlib import Path


def as_rank(rank: int, count: int, path: Path, port: int) -> str:
    """What an example prints as one of the ranks."""
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(count),
        MASTER_ADDR="localhost",
        MASTER_PORT=str(port),
    )
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(str(path), run_name="__main__")
    return out.getvalue()
