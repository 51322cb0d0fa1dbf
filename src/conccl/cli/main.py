"""The table of commands, and the one place that prints errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

import conccl
from conccl.cli.analyze import analyze
from conccl.cli.bench import bench
from conccl.cli.characterize import characterize
from conccl.cli.compare import compare
from conccl.cli.devices import devices
from conccl.cli.doctor import doctor
from conccl.cli.output import say, survive_encodings
from conccl.cli.predict import predict
from conccl.cli.sample import app as sample
from conccl.cli.simulate import simulate
from conccl.cli.tune import app as tune
from conccl.core.errors import ConcclError

COMMANDS: dict[str, Callable[..., Any]] = {
    "analyze": analyze,
    "bench": bench,
    "characterize": characterize,
    "compare": compare,
    "devices": devices,
    "doctor": doctor,
    "predict": predict,
    "simulate": simulate,
}
"""Command word -> function; its docstring is the help text."""

app = typer.Typer(
    name="conccl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"conccl {conccl.__version__}")
        raise typer.Exit


@app.callback()
def conccl_(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Make computation and communication on GPUs really overlap."""


for word, function in COMMANDS.items():
    app.command(word)(function)
app.add_typer(sample, name="sample")
app.add_typer(tune, name="tune")


def run() -> None:
    """Run the command line; expected errors become a message and their exit code."""
    survive_encodings()
    try:
        app()
    except ConcclError as error:
        say(f"conccl: error: {error}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        say("conccl: interrupted")
        sys.exit(130)
