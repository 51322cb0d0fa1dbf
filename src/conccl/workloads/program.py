"""A captured step as ops in their place."""

from __future__ import annotations

from typing import get_args

from conccl.core.ops import Elementwise, ForEach, Op, Pooling, Reduction, Rowwise, Warm
from conccl.workloads.captured import KernelCall

STREAMING = Elementwise | ForEach | Pooling | Reduction | Rowwise
"""Ops whose kernels wait for what they read, and are faster where L2 holds it."""


def placed_op(call: KernelCall, /) -> Op:
    """The op with what it finds in L2."""
    op = call.kernel.op
    if call.cached and isinstance(op, get_args(STREAMING)):
        return Warm(op=op, share=call.cached)
    return op
