"""`conccl predict`: isolated times of rows of ops on a device, beside the measured ones."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Annotated, Any

import typer

from conccl.cli.output import Format, say, write_json, write_table
from conccl.core.errors import InputError
from conccl.core.files import regular


def predict(
    rows: Annotated[Path, typer.Argument(help="JSON: rows such as {m, n, k, dtype} or {op, numel}.")],
    device: Annotated[str, typer.Option("--device", help="A device by name, or a TOML file.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a number: device.FIELD=VALUE; may be repeated.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Predict how long each op takes alone on a device; with measured times (us), how far off that is."""
    from conccl.costs.catalogue import load_device, with_fields  # noqa: PLC0415
    from conccl.costs.fields import parse_settings  # noqa: PLC0415
    from conccl.costs.prediction import mape_percent, predict_rows  # noqa: PLC0415

    on = with_fields(load_device(device), parse_settings(tuple(settings or ())))
    predictions = predict_rows(read_rows(rows), on)
    if output is Format.JSON:
        write_json(
            {
                "schema": "conccl.predict/1",
                "executor": "sim",
                "device": on.name,
                "rows": [
                    {
                        **prediction.row,
                        "index": prediction.index,
                        "predicted_us": prediction.predicted_us,
                        "uncertainty": prediction.uncertainty,
                        "kernels": list(prediction.kernels),
                        "error": prediction.problem or None,
                    }
                    for prediction in predictions
                ],
                "mape_percent": mape_percent(predictions),
            }
        )
    else:
        from conccl.report.costs import render_predictions  # noqa: PLC0415

        write_table(render_predictions(predictions))
    problems = [prediction.problem for prediction in predictions if prediction.problem]
    for problem in problems[:20]:
        say(f"conccl: {problem}")
    if problems:
        say(f"conccl: {len(problems)} of {len(predictions)} rows could not be predicted.")
        raise typer.Exit(2)


def read_rows(path: Path, /) -> list[Any]:
    """The rows of a JSON file: an array, or an object with ``rows``; gzip where the name says so."""
    try:
        raw = regular(path).read_bytes()
        document = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}. Give a JSON file of rows."
        ) from error
    except (ValueError, EOFError, RecursionError, zlib.error) as error:
        raise InputError(f"{path} is not JSON: {error}.") from error
    rows = document.get("rows") if isinstance(document, dict) else document
    if not isinstance(rows, list) or not rows:
        raise InputError(f'{path} has no rows. Give an array of objects, or {{"rows": [...]}}.')
    return rows
