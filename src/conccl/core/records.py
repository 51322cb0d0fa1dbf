"""Records to JSON values and back: the one codec of plans, ops and measurements.

A frozen dataclass becomes an object; where a field allows several record types, the object carries its
type's name under ``"type"``. Enums are their values, tuples arrays.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from conccl.core.errors import InputError

T = TypeVar("T")


def to_json_value(record: object, /) -> Any:
    """Dicts, lists, strings, numbers and None that say the same as the record."""
    if isinstance(record, enum.Enum):
        return record.value
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        fields = {
            field.name: to_json_value(getattr(record, field.name))
            for field in dataclasses.fields(record)
            if field.init  # the others are derived from these
        }
        return {"type": type(record).__name__, **fields}
    if isinstance(record, Mapping):
        return {str(to_json_value(key)): to_json_value(value) for key, value in record.items()}
    if isinstance(record, (tuple, list)):
        return [to_json_value(item) for item in record]
    return record


def from_json_value(value: Any, kind: type[T], /) -> T:
    """The record of this type that a JSON value says, checked field by field."""
    built = _build(value, kind, where=kind.__name__)
    return typing.cast("T", built)


def _build(value: Any, kind: Any, *, where: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _build_union(value, get_args(kind), where=where)
    if origin is tuple:
        items = _expect(value, list, where=where)
        return tuple(_build(item, get_args(kind)[0], where=f"{where}[{i}]") for i, item in enumerate(items))
    if origin is not None and issubclass(origin, Mapping):
        key_kind, value_kind = get_args(kind)
        items = _expect(value, dict, where=where).items()
        return {
            _build(k, key_kind, where=where): _build(v, value_kind, where=f"{where}.{k}") for k, v in items
        }
    if dataclasses.is_dataclass(kind):
        return _build_record(value, kind, where=where)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError:
            allowed = ", ".join(str(member.value) for member in kind)
            raise InputError(f"{where} is {value!r}; it must be one of {allowed}.") from None
    return _expect(value, kind, where=where)


def _build_union(value: Any, kinds: tuple[Any, ...], *, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    if len(kinds) == 1:
        return _build(value, kinds[0], where=where)
    name = _expect(value, dict, where=where).get("type")
    for kind in kinds:
        if kind.__name__ == name:
            return _build_record(value, kind, where=where)
    raise InputError(f"{where} has type {name!r}; it must be one of {', '.join(k.__name__ for k in kinds)}.")


def _build_record(value: Any, kind: Any, *, where: str) -> Any:
    given = dict(_expect(value, dict, where=where))
    given.pop("type", None)
    hints = _hints(kind)
    known = {field.name for field in dataclasses.fields(kind) if field.init}
    if given.keys() - known:
        strange = sorted(given.keys() - known)[0]
        raise InputError(f"{where} has no field {strange!r}; it has {', '.join(sorted(known))}.")
    fields = {key: _build(item, hints[key], where=f"{where}.{key}") for key, item in given.items()}
    try:
        return kind(**fields)
    except TypeError as error:
        raise InputError(f"{where}: {error}.") from error


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """A record type's field types; resolving them anew for each of a plan's records would take seconds."""
    return get_type_hints(kind)


def _expect(value: Any, kind: Any, *, where: str) -> Any:
    if kind is Any or (kind is float and isinstance(value, int) and not isinstance(value, bool)):
        return value
    if not isinstance(value, kind) or (isinstance(value, bool) and kind in (int, float)):
        raise InputError(f"{where} is {value!r}; it must be {kind.__name__}.")
    return value
