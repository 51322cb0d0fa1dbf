"""The part of `conccl simulate` that takes PyTorch code: ``file.py:function``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from conccl.cli.output import Format, write_json
from conccl.core.errors import MissingExtraError

if TYPE_CHECKING:
    from conccl.bench.sweep import Variation


def is_code(target: str, /) -> bool:
    """Whether a target names a function of a Python file."""
    return ".py:" in target


def simulate_code(
    target: str,
    arguments: Sequence[str],
    /,
    *,
    variations: Sequence[Variation],
    gpus: int | None,
    perfetto: Path | None,
    form: Format,
) -> None:
    """Capture the step, simulate it on each device, print the result."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError(module="PyTorch", extra="torch")
    ranks = gpus or 1
    from conccl.bench.step import busiest  # noqa: PLC0415
    from conccl.report.step import document, render_steps  # noqa: PLC0415
    from conccl.workloads.capture.target import capture_job  # noqa: PLC0415

    captures = [
        capture_job(target, arguments, device=variation.device, ranks=ranks) for variation in variations
    ]
    steps = [
        busiest(captured, device=variation.device, gpus=ranks)
        for captured, variation in zip(captures, variations, strict=True)
    ]
    warnings = captures[0][0].warnings
    for warning in warnings:
        print(f"conccl: warning: {warning}", file=sys.stderr)  # noqa: T201 (messages go there)
    if form is Format.JSON:
        documents = [
            {"set": dict(variation.changes), **document(target, variation.device, step, warnings, gpus=ranks)}
            for variation, step in zip(variations, steps, strict=True)
        ]
        whole = {"schema": "conccl.simulate/1", **documents[0]}
        if len(documents) > 1:
            whole["variations"] = documents
        write_json(whole)
    else:
        from rich.console import Console  # noqa: PLC0415

        rows = [(v.name, v.device, step) for v, step in zip(variations, steps, strict=True)]
        Console().print(render_steps(target, rows, gpus=ranks))
    if perfetto is not None:
        from conccl.traces.chrome import write_chrome  # noqa: PLC0415

        write_chrome(steps[0].timeline, path=perfetto)
