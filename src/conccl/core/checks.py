"""Checks that several records make of their fields."""

from __future__ import annotations

from conccl.core.errors import InputError


def require_positive(op: object, *names: str) -> None:
    """Each named field is 1 or more."""
    for name in names:
        value = getattr(op, name)
        if not value >= 1:  # not NaN either
            raise InputError(f"{type(op).__name__}.{name} is {value}; it must be 1 or more.")


def require_not_negative(op: object, *names: str) -> None:
    """Each named field is 0 or more."""
    for name in names:
        value = getattr(op, name)
        if not value >= 0:
            raise InputError(f"{type(op).__name__}.{name} is {value}; it must not be negative.")
