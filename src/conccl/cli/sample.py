"""`conccl sample`: few iterations, intervals or kernels that stand for a whole run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from conccl.cli.sample_intervals import intervals
from conccl.cli.sample_iterations import iterations
from conccl.cli.sample_kernels import kernels

COMMANDS: dict[str, Callable[..., Any]] = {
    "iterations": iterations,
    "intervals": intervals,
    "kernels": kernels,
}
"""Word behind ``conccl sample`` -> function."""

app = typer.Typer(no_args_is_help=True, help="Choose few that stand for many, with their weights.")
for word, function in COMMANDS.items():
    app.command(word)(function)
