"""Rows of measurements as ops: the names and keys that ``conccl predict`` takes.

A row with m, n and k and no ``op`` is a GEMM. Elementwise rows have ``numel``; row-wise ones ``rows`` and
``cols``; reductions ``outer``, ``reduced`` and ``inner``; collectives ``nbytes`` and ``ranks``. Several ops
stand for a row that a framework runs as several kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conccl.core.errors import UnknownNameError
from conccl.core.ops import Op
from conccl.costs.rows.layers import LAYERS
from conccl.costs.rows.pointwise import POINTWISE
from conccl.costs.rows.reducing import REDUCING
from conccl.costs.rows.row import Maker, Row

MAKERS: dict[str, Maker] = {**LAYERS, **POINTWISE, **REDUCING}
"""Op name -> what its rows are. ``gather`` is the collective; a lookup of rows is ``index_select``."""


def ops_of_row(values: Mapping[str, Any], /) -> tuple[Op, ...]:
    """The ops that a row stands for; an error says which key is wrong and what is allowed."""
    row = Row(values)
    if row.name not in MAKERS:
        raise UnknownNameError(kind="op", name=row.name, known=MAKERS)
    return MAKERS[row.name](row)
