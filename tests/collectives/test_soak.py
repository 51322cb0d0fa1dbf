"""Thousands of random fragments and issue orders; minutes, so only in `make soak`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collective_cases import Case, cases, inputs_of
from conccl.collectives.checker import check
from conccl.collectives.choose import fragment_of
from conccl.collectives.elements import decode
from conccl.collectives.interpreter import interpret
from conccl.collectives.layout import REDUCING
from conccl.collectives.reference import expected
from conccl.core.ops import ReduceOp
from conccl.core.plan import Plan
from conccl.core.records import from_json_value, to_json_value

pytestmark = pytest.mark.soak


@given(case=cases(), seed=st.integers(0, 1 << 30))
@settings(max_examples=5000, deadline=None)
def test_random_fragments_are_proved_right_and_bring_the_right_bytes(case: Case, seed: int):
    layout = case.layout
    plan = fragment_of(layout, algorithm=case.algorithm, transfer=case.transfer, embedding=case.embedding)
    assert check(plan, layout=layout) == ()
    if layout.kind in REDUCING and layout.collective.reduce_op is ReduceOp.AVG:
        return
    inputs = inputs_of(layout, seed=seed, exact=True)
    dtype = layout.collective.dtype
    for mine, right in zip(
        interpret(plan, layout=layout, inputs=inputs, seed=seed), expected(layout, inputs), strict=True
    ):
        if layout.kind in REDUCING:
            np.testing.assert_array_equal(decode(mine, dtype), decode(right, dtype))
        else:
            np.testing.assert_array_equal(mine, right)


@given(case=cases(most_ranks=24))
@settings(max_examples=1000, deadline=None)
def test_random_fragments_of_more_ranks_survive_json(case: Case):
    plan = fragment_of(
        case.layout, algorithm=case.algorithm, transfer=case.transfer, embedding=case.embedding
    )
    assert from_json_value(to_json_value(plan), Plan) == plan
    assert check(plan, layout=case.layout) == ()
