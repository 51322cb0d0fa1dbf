"""`conccl devices`: the known devices, or every number of one with its source."""

from __future__ import annotations

from typing import Annotated

import typer

from conccl.cli.output import Format, write_json, write_table
from conccl.core.errors import InputError


def devices(
    name: Annotated[str | None, typer.Argument(help="A device by name, or a TOML file.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a number: device.FIELD=VALUE; may be repeated.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """List the known devices, or show every number of one with its source."""
    from conccl.costs.catalogue import device_names, fields_of, load_device, with_fields  # noqa: PLC0415
    from conccl.costs.fields import parse_settings  # noqa: PLC0415

    if name is None and settings:
        raise InputError("--set changes one device. Name it: conccl devices NAME --set device.FIELD=VALUE.")
    if name is None:
        found = [load_device(known) for known in device_names()]
    else:
        found = [with_fields(load_device(name), parse_settings(tuple(settings or ())))]
    if output is Format.JSON:
        document = [
            {
                "name": device.name,
                "vendor": device.vendor,
                "fields": [
                    {"field": field, "value": value, "source": device.sources.get(field, "default")}
                    for field, value in fields_of(device).items()
                ],
            }
            for device in found
        ]
        write_json({"schema": "conccl.devices/1", "devices": document})
        return
    from conccl.report.costs import render_device, render_devices  # noqa: PLC0415

    write_table(render_devices(found) if name is None else render_device(found[0]))
