"""The exceptions of conccl.

::

    ConcclError                  everything that conccl raises on purpose
    ├── InputError               what the caller gave cannot be used (exit code 2)
    │   ├── TraceError           a trace file that cannot be read: file, place, remedy
    │   ├── UnknownNameError     a device, model, strategy ... that does not exist; near names are offered
    │   ├── PlanError            a plan that contradicts itself: a cycle, a missing task, a bad byte range
    │   └── OutputError          a result that cannot be written where it was asked for
    ├── MissingExtraError        an optional dependency that is not installed
    ├── ExecutionError           a plan that could not be carried out (a RuntimeError too)
    │   ├── WaitTimeoutError     a bounded wait that ran out: who waited, for what, how long
    │   ├── PeerLostError        a rank died or left while others wait for it
    │   └── DisagreementError    ranks of a group issued different calls; the message shows both
    └── StoreError               stored results that must not be read or mixed

A message says what came, what is allowed, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ConcclError(Exception):
    """Everything that conccl raises on purpose."""

    exit_code = 1


class InputError(ConcclError):
    """What the caller gave cannot be used."""

    exit_code = 2


class TraceError(InputError):
    """A trace file that cannot be read."""

    def __init__(self, *, path: str, problem: str, remedy: str, place: str = "") -> None:
        self.path = path
        self.place = place
        self.problem = problem
        self.remedy = remedy
        where = f"{path} ({place})" if place else path
        super().__init__(f"{where}: {problem}. {remedy}")

    def __reduce__(self) -> tuple[object, ...]:
        """Survive the trip from a worker process (the constructor takes keywords only)."""
        return (_trace_error, (self.path, self.problem, self.remedy, self.place))


def _trace_error(path: str, problem: str, remedy: str, place: str) -> TraceError:
    return TraceError(path=path, problem=problem, remedy=remedy, place=place)


class UnknownNameError(InputError):
    """A name that does not exist; the nearest known ones are offered."""

    def __init__(self, *, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        self.known = tuple(known)
        near = difflib.get_close_matches(name.lower(), self.known, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(sorted(self.known))}."
        super().__init__(f"unknown {kind} {name!r}. {hint}")

    def __reduce__(self) -> tuple[object, ...]:
        """Survive the trip from a worker process (the constructor takes keywords only)."""
        return (_unknown_name_error, (self.kind, self.name, self.known))


def _unknown_name_error(kind: str, name: str, known: tuple[str, ...]) -> UnknownNameError:
    return UnknownNameError(kind=kind, name=name, known=known)


class PlanError(InputError):
    """A plan that contradicts itself."""


class OutputError(InputError):
    """A result that cannot be written where it was asked for."""


class MissingExtraError(ConcclError):
    """An optional dependency that is not installed."""

    exit_code = 2

    def __init__(self, *, module: str, extra: str) -> None:
        self.module = module
        self.extra = extra
        super().__init__(f"this needs {module}, which is not installed. Run: pip install 'conccl[{extra}]'")

    def __reduce__(self) -> tuple[object, ...]:
        """Survive the trip from a worker process (the constructor takes keywords only)."""
        return (_missing_extra_error, (self.module, self.extra))


def _missing_extra_error(module: str, extra: str) -> MissingExtraError:
    return MissingExtraError(module=module, extra=extra)


class ExecutionError(ConcclError, RuntimeError):
    """A plan that could not be carried out.

    A RuntimeError too, since that is what users of torch.distributed catch.
    """


class WaitTimeoutError(ExecutionError):
    """A bounded wait that ran out."""


class PeerLostError(ExecutionError):
    """A rank died or left while others wait for it."""


class DisagreementError(ExecutionError):
    """Ranks of a group issued different calls."""


class StoreError(ConcclError):
    """Stored results that must not be read or mixed."""

    exit_code = 2
