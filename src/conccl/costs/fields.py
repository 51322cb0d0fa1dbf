"""The fields of a device by dotted name: their types, the range in which a value makes sense, and text."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass

from conccl.core.errors import InputError, UnknownNameError
from conccl.core.hardware import CtaDispatch, MemoryArbitration, Topology
from conccl.core.kinds import DType
from conccl.core.units import parse_size
from conccl.costs.constants import CONSTANTS

Value = int | float | str | bool


class Kind(enum.Enum):
    """What a field holds."""

    COUNT = "an integer"
    NUMBER = "a number"
    SIZE = "bytes"
    SWITCH = "true or false"
    TOPOLOGY = "a topology"
    ARBITRATION = "an arbitration"
    DISPATCH = "a way to dispatch"


_WORDS: dict[Kind, type[Topology] | type[MemoryArbitration] | type[CtaDispatch]] = {
    Kind.TOPOLOGY: Topology,
    Kind.DISPATCH: CtaDispatch,
    Kind.ARBITRATION: MemoryArbitration,
}
"""Kinds that hold one of a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a field may hold. The ranges are wide: they catch wrong units, not bold designs."""

    kind: Kind
    low: float = 0.0
    high: float = math.inf
    required: bool = True

    @property
    def sentence(self) -> str:
        """What is allowed, for a reader."""
        if self.kind in _WORDS:
            return f"one of {', '.join(_WORDS[self.kind])}"
        if self.kind is Kind.SWITCH:
            return str(self.kind.value)
        return f"{self.kind.value} from {self.low:g} to {self.high:g}"


def _count(low: float, high: float, *, required: bool = True) -> Rule:
    return Rule(kind=Kind.COUNT, low=low, high=high, required=required)


def _number(low: float, high: float, *, required: bool = True) -> Rule:
    return Rule(kind=Kind.NUMBER, low=low, high=high, required=required)


def _size(low: float, high: float, *, required: bool = True) -> Rule:
    return Rule(kind=Kind.SIZE, low=low, high=high, required=required)


_BANDWIDTH = (1e6, 1e15)
_SWITCH = Rule(kind=Kind.SWITCH, required=False)


def _link(name: str, *, required: bool) -> dict[str, Rule]:
    return {
        f"{name}.out_bandwidth": _number(*_BANDWIDTH, required=required),
        f"{name}.in_bandwidth": _number(*_BANDWIDTH, required=False),
        f"{name}.both_bandwidth": _number(*_BANDWIDTH, required=False),
        f"{name}.latency_ns": _count(0, 1e8, required=required),
        f"{name}.efficiency": _number(0.05, 1, required=False),
    }


RULES: dict[str, Rule] = {
    "sm_count": _count(1, 1e5),
    "clock_hz": _number(1e8, 1e10),
    "max_clock_hz": _number(0, 1e10, required=False),
    **{f"peak_flops.{dtype}": _number(1e9, 1e18, required=False) for dtype in DType},
    "vector_flops": _number(1e9, 1e17),
    "hbm_nbytes": _size(2**20, 2**47),
    "hbm_bandwidth": _number(1e9, 1e15),
    "hbm_efficiency": _number(0.05, 1, required=False),
    "l2_nbytes": _size(2**14, 2**37),
    "l2_bandwidth": _number(1e9, 1e16),
    "cta_dispatch": Rule(kind=Kind.DISPATCH, required=False),
    "memory_arbitration": Rule(kind=Kind.ARBITRATION, required=False),
    "memory_cache_nbytes": _size(0, 2**40, required=False),
    "memory_cache_bandwidth": _number(0, 1e16, required=False),
    "shared_memory_nbytes": _size(2**10, 2**27),
    "registers_per_sm": _count(2**10, 2**24, required=False),
    "threads_per_sm": _count(32, 2**16),
    "ctas_per_sm": _count(1, 2**10),
    "sm_group": _count(1, 2**10, required=False),
    "kernel_launch_ns": _count(0, 1e6, required=False),
    "host_launch_ns": _count(0, 1e7, required=False),
    "power_limit_w": _number(0, 1e5, required=False),
    "copy_engines.count": _count(0, 1024),
    "copy_engines.bandwidth": _number(*_BANDWIDTH),
    "copy_engines.launch_ns": _count(0, 1e7),
    "copy_engines.can_reduce": _SWITCH,
    "copy_engines.local_copies": _SWITCH,
    **_link("host_link", required=True),
    **_link("peer_link", required=True),
    "peer_topology": Rule(kind=Kind.TOPOLOGY),
    "peer_links": _count(1, 1024, required=False),
    "in_switch_reduction": _SWITCH,
    "gpus_per_node": _count(1, 1024, required=False),
    **_link("rail", required=False),
    **{
        f"calibration.{name}": _number(constant.low, constant.high, required=False)
        for name, constant in CONSTANTS.items()
    },
}


def checked(field: str, value: object, /, *, where: str) -> Value:
    """The value as the field's type, or an error that says what is allowed. ``where`` begins the message."""
    rule = rule_of(field)
    wrong = InputError(f"{where}{field} is {value!r}; it must be {rule.sentence}.")
    if rule.kind in _WORDS:
        words = _WORDS[rule.kind]
        if value not in list(words):
            raise wrong
        return words(str(value))
    if rule.kind is Kind.SWITCH:
        if not isinstance(value, bool):
            raise wrong
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not rule.low <= value <= rule.high:
        raise wrong
    if rule.kind is Kind.NUMBER:
        return float(value)
    if value != int(value):
        raise wrong
    return int(value)


def rule_of(field: str, /) -> Rule:
    """The rule of a field; a name that does not exist is answered with near ones."""
    if field not in RULES:
        raise UnknownNameError(kind="device field", name=field, known=RULES)
    return RULES[field]


def parse_value(field: str, text: str, /) -> Value:
    """A field's value from text, as on a command line: sizes take K, M, G, numbers 1e12, switches true."""
    rule = rule_of(field)
    if rule.kind in _WORDS:
        return checked(field, text.strip().lower(), where="")
    if rule.kind is Kind.SWITCH:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        return checked(field, words.get(text.strip().lower(), text), where="")
    try:
        return checked(field, float(text), where="")
    except ValueError:
        if rule.kind is Kind.SIZE:
            return checked(field, parse_size(text), where="")
        raise InputError(f"{field} is {text!r}; it must be {rule.sentence}.") from None


def parse_settings(settings: tuple[str, ...], /) -> dict[str, Value]:
    """Fields and values from ``device.copy_engines.count=8`` and the like (what ``--set`` takes)."""
    return {field: values[0] for field, values in _parsed(settings, flag="--set", most=1).items()}


def parse_variations(settings: tuple[str, ...], /) -> dict[str, tuple[Value, ...]]:
    """Fields and their values in turn from ``device.l2_nbytes=16M,32M`` (what ``--vary`` takes)."""
    return _parsed(settings, flag="--vary", most=None)


def require_apart(settings: Mapping[str, object], axes: Mapping[str, object], /) -> None:
    """Refuse a field that is both set and varied."""
    both = sorted(settings.keys() & axes.keys())
    if both:
        raise InputError(f"--set and --vary both change {both[0]}. Leave one of them out.")


def _parsed(settings: tuple[str, ...], *, flag: str, most: int | None) -> dict[str, tuple[Value, ...]]:
    parsed: dict[str, tuple[Value, ...]] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        field = name.strip().removeprefix("device.")
        if not equals or not text.strip():
            raise InputError(f"{flag} {setting!r} sets nothing. Write device.FIELD=VALUE.")
        texts = text.split(",")
        if most is not None and len(texts) > most:
            raise InputError(
                f"{flag} {setting!r} has {len(texts)} values; it takes one. --vary takes several."
            )
        if field in parsed:
            raise InputError(f"{flag} sets {field!r} twice. Give it once.")
        parsed[field] = tuple(parse_value(field, each) for each in texts)
    return parsed
