"""What a trace says of itself beside its events: rank, world size, groups, devices."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{}]', re.DOTALL)
"""What decides the nesting of JSON text; a lone quotation mark is a string that does not end."""

NESTING = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}

MOST_RANKS = 1 << 20
"""No job has more; beyond, a rank or world size is garbage."""

PRODUCER = b'{"otherData": {"producer": "conccl"}'
"""How what conccl writes begins; Chrome's format has that key for such."""

_DISTRIBUTED_INFO = re.compile(rb'"distributedInfo"\s*:\s*')
_RANK = re.compile(rb'"rank"\s*:\s*"?(\d{1,7})\b')
_WORLD_SIZE = re.compile(rb'"world_size"\s*:\s*"?(\d{1,7})\b')


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProperties:
    """One GPU as the trace describes it."""

    name: str | None
    sm_count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The top level of a trace but its events; None wherever it says nothing."""

    rank: int | None = None
    world_size: int | None = None
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Ranks of each process group, by the group's name."""
    devices: dict[str, DeviceProperties] = field(default_factory=dict)
    """By index."""
    derived: bool = False
    """conccl wrote it itself, from other traces or a simulation."""


class _TopLevel(msgspec.Struct):
    distributed_info: Any = msgspec.field(default=None, name="distributedInfo")
    device_properties: Any = msgspec.field(default=None, name="deviceProperties")


_decode = msgspec.json.Decoder(_TopLevel).decode


def parse_metadata(text: bytes, /) -> Metadata | None:
    """The metadata in a trace's text without its events; None where that is no JSON object."""
    try:
        top = _decode(text)
    except (msgspec.MsgspecError, RecursionError):
        try:
            fields = json.loads(text.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
        if not isinstance(fields, dict):
            return None
        top = _TopLevel(
            distributed_info=fields.get("distributedInfo"), device_properties=fields.get("deviceProperties")
        )
    return _metadata_of(top.distributed_info, top.device_properties)


def scan_prefix(text: bytes, /) -> Metadata:
    """Rank, world size and origin in the first part of a trace's text, which may break off anywhere."""
    derived = text.startswith(PRODUCER)
    for key in _DISTRIBUTED_INFO.finditer(text):
        if depth_at(text, key.start()) != 1:
            continue
        info = text[key.end() :]
        rank, world_size = _RANK.search(info), _WORLD_SIZE.search(info)
        end = info.find(b"}")
        if rank is not None and 0 <= end < rank.start():
            break
        return Metadata(
            rank=_rank_count(int(rank[1])) if rank else None,
            world_size=_rank_count(int(world_size[1])) if world_size else None,
            derived=derived,
        )
    return Metadata(derived=derived)


def scan_suffix(text: bytes, /) -> Metadata:
    """Rank and world size in the last part of a trace's text, which may begin anywhere."""
    for key in _DISTRIBUTED_INFO.finditer(text):
        behind = text[key.start() :]
        if depth_at(behind, len(behind)) == -1:  # only the top level's own bracket is still to close
            return scan_prefix(b"{" + behind)
    return Metadata()


def depth_at(text: bytes, end: int, /) -> int:
    """How many brackets are open at this place; -1 inside a string."""
    depth = 0
    for token in TOKEN.finditer(text):
        if token.start() >= end:
            return depth
        if token.end() > end:
            return -1
        depth += NESTING.get(token[0], 0)
    return depth


def _metadata_of(info: Any, properties: Any) -> Metadata:
    info = info if isinstance(info, dict) else {}
    devices = {}
    for device in properties if isinstance(properties, list) else ():
        if isinstance(device, dict) and "id" in device:
            name = device.get("name")
            devices[str(device["id"])] = DeviceProperties(
                name=name if isinstance(name, str) else None, sm_count=_count(device.get("numSms"))
            )
    return Metadata(
        rank=_rank_count(info.get("rank")),
        world_size=_rank_count(info.get("world_size")),
        groups=_groups(info.get("pg_config")),
        devices=devices,
    )


def _groups(config: Any) -> dict[str, tuple[int, ...]]:
    """Process groups; a list that Kineto shortened ("...") is not one."""
    groups = {}
    for group in config if isinstance(config, list) else ():
        ranks = group.get("ranks") if isinstance(group, dict) else None
        if isinstance(ranks, list) and ranks and all(isinstance(rank, int) for rank in ranks):
            groups[str(group.get("pg_name"))] = tuple(ranks)
    return groups


def _rank_count(value: Any) -> int | None:
    """A rank or a number of ranks."""
    count = _count(value)
    return count if count is not None and count <= MOST_RANKS else None


def _count(value: Any) -> int | None:
    """A number that is not negative, also where it is written as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else None
