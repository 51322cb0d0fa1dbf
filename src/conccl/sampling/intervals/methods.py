"""What a user chooses between: how intervals are told apart, and what runs them in detail."""

from __future__ import annotations

import enum


class Method(enum.StrEnum):
    """How intervals are told apart."""

    SIMPOINT = "simpoint"
    """By the basic blocks that they execute, counted over the whole run by a translator."""
    DARTS = "darts"
    """By calls and loops counted natively; translated are only the chosen intervals."""


class Translator(enum.StrEnum):
    """What runs the program where more than native speed is needed."""

    QEMU = "qemu"
    ATTACH = "attach"
    VALGRIND = "valgrind"
