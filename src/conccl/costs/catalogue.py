"""Known devices, read from the TOML files in ``devices/`` or from a user's own, each number with its source.

A file has a ``name``, a ``vendor``, ``[sources]`` (texts by key) and the fields of `fields.RULES`. A field is
a plain value, or ``{ value = ..., source = ... }``, the source being a key of ``[sources]`` or a text. A
``source`` in a table holds for all its values that name none.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from conccl.core.errors import InputError, UnknownNameError
from conccl.core.files import regular
from conccl.core.hardware import CopyEngines, Device, Link, System
from conccl.core.kinds import DType
from conccl.costs.constants import constant
from conccl.costs.fields import RULES, Value, checked

FOLDER = Path(__file__).parent / "devices"

_TEXTS = ("name", "vendor", "description")


def device_names() -> tuple[str, ...]:
    """The devices that are known by name."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load_device(name: str, /) -> Device:
    """The device of this name, or of the TOML file at this path."""
    if name.endswith(".toml") or "/" in name:
        return read_device(Path(name))
    if name.lower() not in device_names():
        raise UnknownNameError(kind="device", name=name, known=device_names())
    return _known_device(name.lower())


@functools.cache
def _known_device(name: str) -> Device:
    return read_device(FOLDER / f"{name}.toml")


def read_device(path: Path, /) -> Device:
    """The device that a TOML file describes; an error names the file, the key and what is allowed."""
    try:
        document = tomllib.loads(regular(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"cannot read device file {path}: {error.strerror}. Known devices: {', '.join(device_names())}."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"device file {path} is not TOML: {error}.") from error
    texts = document.pop("sources", {})
    head = {key: document.pop(key, "") for key in _TEXTS}
    if not isinstance(texts, dict) or not all(
        isinstance(text, str) for text in (*texts.values(), *head.values())
    ):
        raise InputError(f"device file {path}: name, vendor, description and [sources] hold texts.")
    values: dict[str, Value] = {}
    sources: dict[str, str] = {}
    for field, value, source in _flat(document):
        try:
            values[field] = checked(field, value, where=f"device file {path}: ")
        except UnknownNameError as error:
            raise InputError(f"device file {path}: {error}") from error
        sources[field] = str(texts.get(source, source)) if source else path.name
    missing = [field for field, rule in RULES.items() if rule.required and field not in values]
    if missing:
        raise InputError(
            f"device file {path}: {missing[0]} is missing; a device needs it ({RULES[missing[0]].sentence})."
            + (f" Also missing: {', '.join(missing[1:])}." if missing[1:] else "")
        )
    return _built(
        values, name=head["name"] or path.stem, vendor=head["vendor"], sources=sources, where=str(path)
    )


def _flat(
    table: Mapping[str, Any], *, prefix: str = "", source: object = None
) -> Iterator[tuple[str, Any, object]]:
    """Values by dotted name, with their sources; a table's own ``source`` holds for all that name none."""
    for key, entry in table.items():
        if isinstance(entry, dict) and "value" in entry:
            yield f"{prefix}{key}", entry["value"], entry.get("source", source)
        elif isinstance(entry, dict):
            yield from _flat(entry, prefix=f"{prefix}{key}.", source=entry.get("source", source))
        elif key != "source":
            yield f"{prefix}{key}", entry, source


def with_fields(device: Device, fields: Mapping[str, object], /) -> Device:
    """The device with other values in some fields, by dotted name: ``{"copy_engines.count": 8}``.

    Where only a link's way out is given, its other bandwidths keep their ratio to it.
    """
    if not fields:
        return device
    changed = {field: checked(field, value, where=f"{device.name}: ") for field, value in fields.items()}
    before = fields_of(device)
    for field in [field for field in changed if field.endswith(".out_bandwidth") and field in before]:
        ratio = float(changed[field]) / float(before[field])
        for other in ("in_bandwidth", "both_bandwidth"):
            key = field.replace("out_bandwidth", other)
            changed.setdefault(key, float(before[key]) * ratio)
    sources = device.sources | dict.fromkeys(changed, "set by the user")
    return _built(
        fields_of(device) | changed,
        name=device.name,
        vendor=device.vendor,
        sources=sources,
        where=device.name,
    )


def fields_of(device: Device, /) -> dict[str, Value]:
    """All values of a device by dotted name; what it does not have is left out."""
    values: dict[str, Value] = {}
    for field in RULES:
        owner, _, leaf = field.partition(".")
        holder = getattr(device, owner)
        if not leaf:
            values[field] = holder
        elif isinstance(holder, dict):
            if leaf in holder:
                values[field] = holder[leaf]
        elif holder is not None:
            values[field] = getattr(holder, leaf)
    return values


def under_load(device: Device, /) -> Device:
    """The device as a job finds it that keeps it busy for minutes: hot, and held by its power limit.

    Isolated times are those of short runs; how much less is left in a long one differs from device to device.
    """
    loaded = constant(device, "gemm.loaded_share")
    shares = {name: constant(device, name) for name in ("gemm.burst_share", "gemm.sustained_share")}
    held = {f"calibration.{name}": loaded for name, share in shares.items() if share > loaded}
    return with_fields(device, held) if held else device


def system_of(device: Device, /, *, gpus: int) -> System:
    """So many of a device in the nodes that it is sold in."""
    return System(device=device, gpus=gpus, gpus_per_node=device.gpus_per_node, rail=device.rail)


def _built(
    values: Mapping[str, Value], *, name: str, vendor: str, sources: dict[str, str], where: str
) -> Device:
    parts: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}
    for field, value in values.items():
        owner, _, leaf = field.partition(".")
        if leaf:
            tables.setdefault(owner, {})[leaf] = value
        else:
            parts[owner] = value
    flops = {DType(dtype): rate for dtype, rate in tables.pop("peak_flops", {}).items()}
    if not flops:
        raise InputError(f"{where}: peak_flops names no element type; give at least one, as peak_flops.bf16.")
    calibration = tables.pop("calibration", {})
    engines = CopyEngines(**tables.pop("copy_engines"))
    parts |= {owner: _link(owner, table, where=where) for owner, table in tables.items()}
    return Device(
        name=name,
        vendor=vendor,
        peak_flops=flops,
        calibration=calibration,
        sources=sources,
        copy_engines=engines,
        **parts,
    )


def _link(name: str, table: dict[str, Any], *, where: str) -> Link:
    """A link; what its file leaves out is taken from the way out."""
    if "out_bandwidth" not in table or "latency_ns" not in table:
        raise InputError(f"{where}: {name} needs out_bandwidth and latency_ns.")
    out = table["out_bandwidth"]
    into = table.get("in_bandwidth", out)
    given = {"in_bandwidth": into, "both_bandwidth": out + into, **table}
    return Link(name=name, **given)


def changed_fields(device: Device, original: Device, /) -> dict[str, Value]:
    """The fields in which two devices differ, with the first one's values."""
    before = fields_of(original)
    return {field: value for field, value in fields_of(device).items() if before.get(field) != value}
