"""`conccl tune`: tables of a machine, the strategy that they choose, and co-tuning of a pair's sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from conccl.cli.tune_choose import choose
from conccl.cli.tune_cotune import cotune
from conccl.cli.tune_fused import fused
from conccl.cli.tune_gemms import gemms
from conccl.cli.tune_tables import tables

COMMANDS: dict[str, Callable[..., Any]] = {
    "choose": choose,
    "cotune": cotune,
    "fused": fused,
    "gemms": gemms,
    "tables": tables,
}
"""Word behind ``conccl tune`` -> function."""

app = typer.Typer(no_args_is_help=True, help="Measure what strategies cost here, and choose by it.")
for word, function in COMMANDS.items():
    app.command(word)(function)
