"""A program with three known phases, for tests of simulation points; compiled where a compiler is there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")
FUNCTIONS = ("stream", "divide", "wander")


def require(command: str, /) -> None:
    """Skip the test where a command is not installed."""
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed")


def compiled(folder: Path, /) -> Path:
    """The program: `phases ROUNDS [thread|fork|fail|kill|exec]`, 68 million instructions a round."""
    require("cc")
    binary = folder / "phases"
    subprocess.run(["cc", "-O1", "-pthread", "-o", binary, SOURCE], check=True)
    return binary
