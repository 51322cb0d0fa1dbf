"""Which rank a trace file is, where neither the user nor the trace says it: from its name, or its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

_WORDS = ("global_rank", "globalrank", "rank", "worker", "trainer", "gpu", "dp", "node_rank")
_WORD_RANK = [re.compile(rf"(?<![a-z]){word}[-_.=:]?(\d{{1,6}})(?!\d)", re.IGNORECASE) for word in _WORDS]
_NUMBER = re.compile(r"\d+")


def ranks_of_names(names: Sequence[str], /) -> tuple[int | None, ...]:
    """The rank in each file's name; None for all where the names do not tell the files apart.

    A number behind "rank", "worker" and the like counts (``rank-0``, ``worker3_step_12.pt.trace.json``), else
    the only number by which otherwise equal names differ (``trace_0.json``, ``trace_1.json``).
    """
    for word in _WORD_RANK:
        found = [_last_number(word, name) for name in names]
        if names and all(rank is not None for rank in found) and len(set(found)) == len(found):
            return tuple(found)
    return _by_difference(names) or (None,) * len(names)


def _last_number(pattern: re.Pattern[str], name: str) -> int | None:
    """The number in the file's own name, else in the folder nearest to it."""
    for part in reversed(PurePath(name.replace("::", "/")).parts):
        matches = pattern.findall(part)
        if matches:
            return int(matches[-1])
    return None


def _by_difference(names: Sequence[str]) -> tuple[int, ...] | None:
    """The numbers of the one place at which the names differ."""
    if len(names) < 2 or len({_NUMBER.sub("#", name) for name in names}) != 1:
        return None
    columns = list(zip(*(_NUMBER.findall(name) for name in names), strict=True))
    varying = [column for column in columns if len(set(column)) > 1]
    if (
        len(varying) != 1
        or len(set(varying[0])) != len(names)
        or any(len(number) > 6 for number in varying[0])
    ):
        return None
    return tuple(int(number) for number in varying[0])
