"""What a collective must bring, computed from its definition and from no algorithm.

Moved bytes are exact. Reduced elements are too for integers, booleans, min and max; sums and products of
floating-point values may differ from the exact result by what rounding in any order can cost (`tolerance`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conccl.collectives.elements import EPSILON, Bytes, Values, combine, decode, encode
from conccl.collectives.layout import REDUCING, Layout
from conccl.core.ops import CollectiveKind, DType, ReduceOp


def expected(layout: Layout, inputs: Sequence[Bytes], /) -> list[Bytes]:
    """What each position's output must hold, given every position's input."""
    if layout.kind in REDUCING:
        whole = _reduced(layout, inputs)
    elif layout.kind in (CollectiveKind.ALL_GATHER, CollectiveKind.GATHER):
        whole = np.concatenate(list(inputs))
    else:
        whole = inputs[layout.root]
    return [_output(layout, position, whole, inputs) for position in range(layout.count)]


def _output(layout: Layout, position: int, whole: Bytes, inputs: Sequence[Bytes]) -> Bytes:
    if layout.output_nbytes(position) == 0:
        return whole[:0]
    if layout.kind is CollectiveKind.ALL_TO_ALL:
        return np.concatenate(
            [
                sent[layout.starts[one][position] : layout.starts[one][position + 1]]
                for one, sent in enumerate(inputs)
            ]
        )
    if layout.kind in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.SCATTER):
        return whole[layout.starts[0][position] : layout.starts[0][position + 1]]
    return whole


def _reduced(layout: Layout, inputs: Sequence[Bytes]) -> Bytes:
    collective = layout.collective
    values = [decode(given, collective.dtype) for given in inputs]
    if values[0].dtype.kind == "f":  # in fp64, so that only the last rounding counts
        with np.errstate(over="ignore", invalid="ignore"):
            wide = [one.astype(np.float64).view(np.uint8) for one in values]
            total = combine(wide, dtype=DType.FP64, reduce_op=collective.reduce_op, divisor=layout.count)
            return encode(total.view(np.float64), collective.dtype)
    return combine(inputs, dtype=collective.dtype, reduce_op=collective.reduce_op, divisor=layout.count)


def tolerance(layout: Layout, inputs: Sequence[Bytes], /) -> Values:
    """How far each reduced element may be off: one rounding a rank, each relative to what is summed.

    The standard bound of recursive summation and products, n u sum|x| (Higham, Accuracy and Stability of
    Numerical Algorithms, section 4.2), with n one larger for the division and the reference's own rounding.
    """
    collective = layout.collective
    values = [np.abs(decode(given, collective.dtype).astype(np.float64)) for given in inputs]
    exact = collective.dtype not in EPSILON or collective.reduce_op in (ReduceOp.MIN, ReduceOp.MAX)
    if exact:
        return np.zeros(values[0].size)
    product = collective.reduce_op is ReduceOp.PRODUCT
    magnitude = np.prod(values, axis=0) if product else np.sum(values, axis=0)
    if collective.reduce_op is ReduceOp.AVG:
        magnitude = magnitude / layout.count
    bound: Values = (layout.count + 1) * EPSILON[collective.dtype] * magnitude
    return bound
