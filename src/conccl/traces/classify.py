"""What the rows of a trace are, from their names: activity, rule and kind of collective.

It works on the table of unique names, not on rows. Metadata and annotations are further evidence, weighed in
`conccl.traces.evidence`.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.kinds import CollectiveKind
from conccl.core.timeline import Activity
from conccl.traces.pattern_trial import match_under_limit
from conccl.traces.rules import Effect, RowKind, Rule, Rules, built_in_rules

NAME_LIMIT = 2048
"""Longer names (deep C++ templates) are matched by this much of their beginning."""

UNKNOWN = -1
"""The rule of a name that no rule knows: compute, until other evidence says otherwise."""


class HostCopies(enum.StrEnum):
    """What copies between host and device count as."""

    COPY = "copy"
    COMMUNICATION = "communication"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Classification:
    """One entry a name: what it is, and by which rule."""

    activity: npt.NDArray[np.int8]
    rule: npt.NDArray[np.int16]
    """Index into the rules, or `UNKNOWN`."""


def classify(
    names: Sequence[str],
    kinds: Sequence[RowKind],
    /,
    *,
    rules: Rules,
    host_copies: HostCopies = HostCopies.COPY,
) -> Classification:
    """The activity and the rule of each name, which stands for rows of the kind beside it."""
    shortened = [name[:NAME_LIMIT] for name in names]
    theirs = [rule for rule in rules.rules if not rule.trusted]
    found = _match_theirs(shortened, kinds, theirs)
    ours = tuple(rules.rules[len(theirs) :])
    for index, name in enumerate(shortened):
        if found[index] == UNKNOWN:
            rule = _match_ours(name, kinds[index], ours)
            found[index] = UNKNOWN if rule == UNKNOWN else rule + len(theirs)
    activities = [_activity(rules.rules[rule] if rule != UNKNOWN else None, host_copies) for rule in found]
    return Classification(activity=np.array(activities, dtype=np.int8), rule=np.array(found, dtype=np.int16))


@functools.lru_cache(maxsize=1 << 16)
def collective_kind(name: str, /) -> CollectiveKind | None:
    """Which collective a kernel, annotation or "Collective name" is; None where its name does not say."""
    low = name[:NAME_LIMIT].lower()
    for kind, pattern in _collective_patterns():
        if pattern.search(low):
            return kind
    return None


@functools.cache
def _collective_patterns() -> list[tuple[CollectiveKind, re.Pattern[str]]]:
    return [(rule.kind, re.compile(rule.pattern)) for rule in built_in_rules().collectives]


def _match_theirs(names: Sequence[str], kinds: Sequence[RowKind], rules: Sequence[Rule]) -> list[int]:
    """The first of the user's rules for each name; their patterns may take for ever, so they get a limit."""
    found = [UNKNOWN] * len(names)
    if not rules:
        return found
    matches = match_under_limit([rule.pattern for rule in rules], names, labels=[rule.id for rule in rules])
    for index in reversed(range(len(rules))):
        for row in matches[index]:
            if kinds[row] is rules[index].on:
                found[row] = index
    return found


@functools.lru_cache(maxsize=1 << 16)
def _match_ours(name: str, kind: RowKind, rules: tuple[Rule, ...]) -> int:
    low = name.lower()
    for index, (rule_kind, pattern) in enumerate(_compiled(rules)):
        if rule_kind is kind and pattern.search(low):
            return index
    return UNKNOWN


@functools.cache
def _compiled(rules: tuple[Rule, ...]) -> list[tuple[RowKind, re.Pattern[str]]]:
    """Patterns of ours are written in lower case, so that names are lowered once and not compared twice."""
    return [(rule.on, re.compile(rule.pattern)) for rule in rules]


def _activity(rule: Rule | None, host_copies: HostCopies) -> Activity:
    if rule is None:
        return Activity.COMPUTE
    if rule.activity is Effect.HOST_COPY:
        return Activity.COMMUNICATION if host_copies is HostCopies.COMMUNICATION else Activity.COPY
    return _ACTIVITIES[rule.activity]


_ACTIVITIES = {
    Effect.COMPUTE: Activity.COMPUTE,
    Effect.COMMUNICATION: Activity.COMMUNICATION,
    Effect.FUSED: Activity.FUSED,
    Effect.COPY: Activity.COPY,
}
