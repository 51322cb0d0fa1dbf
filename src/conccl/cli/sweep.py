"""The options with which commands take sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Change a number: device.FIELD=VALUE; may be repeated.")
]
Vary = Annotated[
    list[str] | None,
    typer.Option("--vary", help="Several values in turn: device.FIELD=V1,V2,... Repeated: all combinations."),
]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Processes; default: as many as pay.")]
EngineName = Annotated[
    str, typer.Option("--engine", help="Who works: joblib (processes here) or ray (a Ray cluster).")
]
Output = Annotated[
    Path | None,
    typer.Option("--output", help="Folder for results; an interrupted sweep goes on there."),
]
