"""What slowdowns alone explain of a pair's time: the form that tables are condensed to, and read in.

Where Tg and Tc are the sides alone (Tc by the strategy's own way), and ``slow`` is the computation's slowdown
without the SMs that the strategy takes: a partition keeps them, so max(Tg slow, Tc) (ConCCL's score,
arXiv:2412.14335); a communication kernel that is launched first gives them back when it ends, so that only
Tc (1 - 1/slow) is lost; copy engines take none, and what trimming brings beside them is in the stretch.
"""

from __future__ import annotations

import enum


class Form(enum.IntEnum):
    """Which SMs a strategy takes from the computation, and how long."""

    NONE = 0
    WHILE_IT_RUNS = 1
    FOR_GOOD = 2


def form_of(name: str, /) -> Form:
    """The form of a strategy, by its name."""
    word = name.partition(":")[0]
    if word == "prioritized":
        return Form.WHILE_IT_RUNS
    return Form.FOR_GOOD if word in ("partitioned", "prioritized_partitioned") else Form.NONE


def together_ns(form: Form, /, *, compute_ns: float, communication_ns: float, slow: float) -> float:
    """Time of both sides together where nothing but SMs is short."""
    if form is Form.FOR_GOOD:
        compute_ns *= slow
    elif form is Form.WHILE_IT_RUNS:
        compute_ns += communication_ns * (1.0 - 1.0 / slow)
    return compute_ns if compute_ns > communication_ns else communication_ns
