"""Matches patterns that a user wrote in a process of their own, which can be stopped.

Python's regular expressions can take exponential time, hold the interpreter while they do, and cannot be
interrupted outside the main thread; a process can always be killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from conccl.core.errors import InputError

LIMIT_S = 10.0
"""For all patterns and all names of one trace; good ones take milliseconds."""

_ANSWER = """
import json, re, sys
patterns, names = json.load(sys.stdin)
for text in patterns:
    pattern = re.compile(text, re.IGNORECASE)
    print(json.dumps([index for index, name in enumerate(names) if pattern.search(name)]), flush=True)
"""


def match_under_limit(
    patterns: Sequence[str], names: Sequence[str], /, *, labels: Sequence[str]
) -> list[list[int]]:
    """For each pattern the indices of the names that contain it; an `InputError` names one that runs away."""
    command = [sys.executable, "-I", "-c", _ANSWER]
    question = json.dumps([list(patterns), list(names)])
    try:
        done = subprocess.run(
            command, input=question, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        lines = done.stdout.splitlines()
    except subprocess.TimeoutExpired as expired:
        lines = (expired.stdout or b"").decode().splitlines()
    if len(lines) < len(patterns):
        culprit = len(lines)
        raise InputError(
            f"rule {labels[culprit]!r}: the pattern {patterns[culprit]!r} did not finish on a trace's names"
            f" in {LIMIT_S:g} s. Avoid repeats inside repeats, like (a+)+."
        )
    return [json.loads(line) for line in lines]
