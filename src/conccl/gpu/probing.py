"""Runs probes, each in a process of its own that may fault or hang without harm to the others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

from conccl.core.errors import InputError
from conccl.core.records import from_json_value
from conccl.gpu.findings import Finding, State

SECONDS = 60.0
"""What a probe may take, loading of PyTorch included."""

LAST = 300
"""Characters of a failed probe's messages that are shown."""

MARK = "conccl-findings:"
"""What the line of results begins with: libraries print on standard output as well."""

Command = Callable[[str], Sequence[str]]
"""The command line of a probe by name."""


def probe_command(name: str, /) -> Sequence[str]:
    """A fresh interpreter that runs one probe and prints what it found as JSON."""
    return (sys.executable, "-m", "conccl.gpu.probes", name)


def probed(
    names: Sequence[str], /, *, seconds: float = SECONDS, command: Command = probe_command
) -> Iterator[Finding]:
    """What every probe found, in order; one that hangs or faults is a line that says so."""
    for name in names:
        yield from _probed(name, command(name), seconds=seconds)


def _probed(name: str, command: Sequence[str], *, seconds: float) -> Iterator[Finding]:
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        yield Finding(
            group=name,
            name=f"probe of {name}",
            state=State.HUNG,
            value=f"did not end within {seconds:.0f} s and was stopped",
            advice="Another process may hold the GPU, or a wait never ends here: leave this path alone.",
        )
        return
    except OSError as error:
        yield Finding(group=name, name=f"probe of {name}", state=State.FAILED, value=str(error))
        return
    printed = done.stdout.decode(errors="replace").splitlines()
    results = next((line[len(MARK) :] for line in reversed(printed) if line.startswith(MARK)), None)
    if done.returncode != 0 or results is None:
        message = done.stderr.decode(errors="replace").strip()[-LAST:]
        yield Finding(
            group=name,
            name=f"probe of {name}",
            state=State.FAILED,
            value=_ending(done.returncode),
            evidence=message.splitlines()[-1] if message else "",
        )
        return
    try:
        yield from (from_json_value(value, Finding) for value in json.loads(results))
    except (ValueError, InputError) as error:
        yield Finding(group=name, name=f"probe of {name}", state=State.FAILED, value=f"unreadable: {error}")


def _ending(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
