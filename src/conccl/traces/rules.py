"""The table of classification rules: ours (rules.toml) and the user's, checked when loaded."""

from __future__ import annotations

import enum
import functools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from conccl.core.errors import InputError
from conccl.core.files import regular
from conccl.core.kinds import CollectiveKind

E = TypeVar("E", bound=enum.StrEnum)

FORMAT_VERSION = 1
"""Of the table's format; a file of the user's may leave it out."""


class Effect(enum.StrEnum):
    """What a rule says that a row is."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    FUSED = "fused"
    """Computes and communicates in one kernel."""
    COPY = "copy"
    """A copy inside one device's memory, or a memset."""
    HOST_COPY = "host_copy"
    """A copy to or from the host: a copy, or communication, as the user says."""


class RowKind(enum.StrEnum):
    """What the profiler says that a row is."""

    KERNEL = "kernel"
    MEMCPY = "memcpy"
    MEMSET = "memset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Rows of this kind whose name contains the pattern are of this activity."""

    id: str
    group: str
    activity: Effect
    pattern: str
    """A regular expression, searched case-blind; empty matches every name."""
    on: RowKind = RowKind.KERNEL
    examples: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    source: str = ""
    trusted: bool = True
    """False for the user's rules: their patterns are matched under a time limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRule:
    """Communication whose name contains the pattern is this collective."""

    kind: CollectiveKind
    pattern: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules in the order in which they are tried."""

    rules: tuple[Rule, ...]
    collectives: tuple[CollectiveRule, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """The rules' names, which indices refer to."""
        return tuple(rule.id for rule in self.rules)


@functools.cache
def built_in_rules() -> Rules:
    """The rules that conccl comes with."""
    text = Path(__file__).with_name("rules.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    collectives = tuple(
        CollectiveRule(
            kind=CollectiveKind(entry["kind"]), pattern=entry["pattern"], examples=tuple(entry["examples"])
        )
        for entry in table["collective"]
    )
    return Rules(rules=_rules_of(table, path="rules.toml", trusted=True), collectives=collectives)


def load_rules(path: str | Path | None = None, /) -> Rules:
    """Our rules, behind those of the user's file where one is given."""
    ours = built_in_rules()
    if path is None:
        return ours
    try:
        table = tomllib.loads(regular(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: the rules cannot be read ({error.strerror}). Check the path.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not TOML ({error}). A rules file has [[rule]] tables.") from error
    theirs = _rules_of(table, path=str(path), trusted=False)
    if not theirs:
        raise InputError(f"{path}: no rules. A rules file has [[rule]] tables with id, activity and pattern.")
    return Rules(rules=theirs + ours.rules, collectives=ours.collectives)


def _rules_of(table: dict[str, Any], *, path: str, trusted: bool) -> tuple[Rule, ...]:
    if table.get("version", FORMAT_VERSION) != FORMAT_VERSION:
        raise InputError(
            f"{path}: version {table['version']!r} of rules; this conccl reads {FORMAT_VERSION}."
        )
    entries = table.get("rule", [])
    if not isinstance(entries, list):
        raise InputError(f"{path}: 'rule' must be tables, written [[rule]].")
    return tuple(
        _rule_of(entry, where=f"{path}: rule {number}", trusted=trusted)
        for number, entry in enumerate(entries, 1)
    )


def _rule_of(entry: Any, *, where: str, trusted: bool) -> Rule:
    if not isinstance(entry, dict):
        raise InputError(f"{where} is {entry!r}; it must be a table, written [[rule]].")
    if stray := sorted(entry.keys() - _KEYS):
        raise InputError(f"{where} has {stray[0]!r}; rules have {', '.join(sorted(_KEYS))}.")
    if missing := sorted({"id", "activity", "pattern"} - entry.keys()):
        raise InputError(f"{where} lacks {missing[0]!r}.")
    texts = {key: _text(entry[key], where=f"{where}: {key}") for key in _TEXTS & entry.keys()}
    return Rule(
        id=texts["id"],
        group=texts.get("group", texts["id"]),
        activity=_member(Effect, texts["activity"], where=f"{where}: activity"),
        on=_member(RowKind, texts.get("on", RowKind.KERNEL), where=f"{where}: on"),
        pattern=_pattern(texts["pattern"], where=f"{where} ({texts['id']})"),
        examples=_strings(entry.get("examples", []), where=f"{where}: examples"),
        misses=_strings(entry.get("misses", []), where=f"{where}: misses"),
        source=texts.get("source", ""),
        trusted=trusted,
    )


_TEXTS = {"id", "group", "activity", "on", "pattern", "source"}
_KEYS = _TEXTS | {"examples", "misses"}


def _text(value: Any, *, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where} is {value!r}; it must be text.")
    return value


def _strings(value: Any, *, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError(f"{where} is {value!r}; it must be a list of texts.")
    return tuple(_text(item, where=where) for item in value)


def _member(kind: type[E], value: str, *, where: str) -> E:
    try:
        return kind(value)
    except ValueError:
        raise InputError(f"{where} is {value!r}; it must be one of {', '.join(kind)}.") from None


def _pattern(text: str, *, where: str) -> str:
    try:
        re.compile(text, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"{where}: the pattern {text!r} is no regular expression ({error}).") from error
    return text
