"""The entry point: begins the processes that a command surely needs, then imports the command line itself.

They import what they need while this process imports typer; on two cores that is a tenth of the time of a
large analysis.
"""

from __future__ import annotations

import contextlib
import glob
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from conccl.advise.workers import children_ahead, cpus

WORTH_CHILDREN = 4 << 20
"""Packed bytes from which on children are begun before anything is known but the size of the files."""


def run() -> None:
    """Run the command line; an interrupt ends it without a traceback from its first moment."""
    try:
        with children_ahead(children(sys.argv[1:]), module="conccl.advise.analyze"):
            from conccl.cli.main import run  # noqa: PLC0415 (after the children began)

            run()
    except KeyboardInterrupt:
        sys.exit(130)


def children(words: Sequence[str], /) -> int:
    """How many processes beside this one will surely have work, by CPUs and by number and size of files."""
    if words[:1] != ["analyze"]:
        return 0
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # reading needs no thread pool, which costs start-up time
    sizes = []
    for path in words[1:]:
        with contextlib.suppress(OSError, ValueError):
            found = map(Path, glob.glob(path))  # noqa: PTH207 (takes absolute patterns)
            below = Path(path).rglob("*.json*") if path and Path(path).is_dir() else found
            sizes += [file.stat().st_size for file in below]
    return min(cpus(), len(sizes)) - 1 if sum(sizes) >= WORTH_CHILDREN else 0
