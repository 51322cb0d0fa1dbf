"""Every algorithm, interpreted in random legal orders, brings what its collective's definition says."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collective_cases import Case, cases, inputs_of
from conccl.collectives.catalogue import algorithms
from conccl.collectives.choose import fragment_of
from conccl.collectives.elements import decode
from conccl.collectives.interpreter import interpret
from conccl.collectives.layout import REDUCING, Place, layout_of
from conccl.collectives.reference import expected, tolerance
from conccl.collectives.transfer import Direction, Transfer
from conccl.core.errors import InputError
from conccl.core.ops import Collective, CollectiveKind, DType, ReduceOp
from conccl.core.plan import Engine


def outputs(case: Case, inputs: list, *, seed: int) -> list:
    plan = fragment_of(
        case.layout, algorithm=case.algorithm, transfer=case.transfer, embedding=case.embedding
    )
    return interpret(plan, layout=case.layout, inputs=inputs, seed=seed)


@given(case=cases(), seed=st.integers(0, 1 << 30))
@settings(max_examples=200, deadline=None)
def test_outputs_are_exact_where_arithmetic_is(case: Case, seed: int):
    """Moved bytes always; sums, products, minima of small whole numbers in every element type."""
    layout = case.layout
    if layout.collective.reduce_op is ReduceOp.AVG and layout.kind in REDUCING:
        return  # the next test's: quotients are rounded
    inputs = inputs_of(layout, seed=seed, exact=True)
    got = outputs(case, inputs, seed=seed)
    for position, right in enumerate(expected(layout, inputs)):
        if layout.kind in REDUCING:  # 0 and -0 are equal
            one, other = (
                decode(got[position], layout.collective.dtype),
                decode(right, layout.collective.dtype),
            )
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_array_equal(got[position], right)


REDUCING_KINDS = tuple(sorted(REDUCING))
FLOATS = (DType.BF16, DType.FP16, DType.FP32, DType.FP64)


@given(case=cases(kinds=REDUCING_KINDS, dtypes=FLOATS), seed=st.integers(0, 1 << 30))
@settings(max_examples=100, deadline=None)
def test_floating_point_results_are_within_the_tolerance(case: Case, seed: int):
    layout = case.layout
    dtype = layout.collective.dtype
    inputs = inputs_of(layout, seed=seed)
    got = outputs(case, inputs, seed=seed)
    allowed = tolerance(layout, inputs)
    tiny = 1e-7 if dtype is DType.FP16 else 1e-37  # below the smallest normal number rounding is absolute
    for position, right in enumerate(expected(layout, inputs)):
        difference = np.abs(
            decode(got[position], dtype).astype(np.float64) - decode(right, dtype).astype(np.float64)
        )
        part = slice(None)
        if layout.kind is CollectiveKind.REDUCE_SCATTER:
            part = slice(*(layout.starts[0][position + one] // dtype.nbytes for one in (0, 1)))
        assert np.all(difference <= (allowed[part][: difference.size] + layout.count * tiny))


@pytest.mark.parametrize("kind", sorted(REDUCING))
@pytest.mark.parametrize("dtype", [DType.FP8_E4M3, DType.FP8_E5M2, DType.INT8, DType.INT64, DType.BOOL])
def test_averages_of_whole_numbers_that_all_ranks_share(kind: CollectiveKind, dtype: DType):
    """Any partial sum is exact here, so the division is the only rounding: equal in all algorithms."""
    if dtype is DType.BOOL:
        with pytest.raises(InputError, match="no average"):
            layout_of(Collective(kind=kind, nbytes=8, ranks=4, dtype=dtype, reduce_op=ReduceOp.AVG))
        return
    layout = layout_of(
        Collective(kind=kind, nbytes=dtype.nbytes * 21, ranks=4, dtype=dtype, reduce_op=ReduceOp.AVG)
    )
    inputs = inputs_of(layout, seed=3, exact=True)
    right = expected(layout, inputs)
    for name in algorithms(kind):
        plan = fragment_of(layout, algorithm=name, transfer=Transfer(gpus_per_node=2))
        got = interpret(plan, layout=layout, inputs=inputs, seed=1)
        for one, other in zip(got, right, strict=True):
            np.testing.assert_array_equal(decode(one, dtype), decode(other, dtype))


@pytest.mark.parametrize("algorithm", algorithms(CollectiveKind.ALL_REDUCE))
@pytest.mark.parametrize("count", [2, 6, 8])
def test_all_ranks_get_the_same_bits(algorithm: str, count: int):
    layout = layout_of(
        Collective(kind=CollectiveKind.ALL_REDUCE, nbytes=4 * 333, ranks=count, dtype=DType.FP32)
    )
    inputs = inputs_of(layout, seed=0)
    plan = fragment_of(layout, algorithm=algorithm, transfer=Transfer(gpus_per_node=2))
    got = interpret(plan, layout=layout, inputs=inputs, seed=0)
    assert all(np.array_equal(one, got[0]) for one in got)


@given(case=cases(most_ranks=6), seeds=st.lists(st.integers(0, 1 << 30), min_size=3, max_size=3, unique=True))
@settings(max_examples=40, deadline=None)
def test_every_legal_order_gives_the_same_bits(case: Case, seeds: list[int]):
    inputs = inputs_of(case.layout, seed=1)
    results = [outputs(case, inputs, seed=seed) for seed in seeds]
    for one in results[1:]:
        for mine, other in zip(one, results[0], strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("count", range(1, 17))
def test_every_rank_count_with_every_algorithm(count: int):
    """One odd size with every algorithm and place, engines and directions in turn: no draw decides."""
    ways = itertools.cycle(itertools.product(Engine, Direction))
    for _ in range(count):
        next(ways)
    for kind in CollectiveKind:
        if kind in (CollectiveKind.SEND, CollectiveKind.RECV) and count > 2:
            continue
        collective = Collective(kind=kind, nbytes=4 * 37, ranks=count, dtype=DType.INT32)
        for place in Place:
            try:
                layout = layout_of(collective, place=place, root=count // 2)
            except InputError:
                assert (kind, place) == (CollectiveKind.ALL_TO_ALL, Place.IN_PLACE)  # 37 elements are uneven
                continue
            inputs = inputs_of(layout, seed=count)
            right = expected(layout, inputs)
            for one in algorithms(kind).values():
                engine, direction = next(ways)
                transfer = Transfer(engine=engine, direction=direction, gpus_per_node=max(1, count // 2))
                if one.refusal(layout, transfer) is not None:
                    continue
                plan = fragment_of(layout, algorithm=one.name, transfer=transfer)
                got = interpret(plan, layout=layout, inputs=inputs, seed=count)
                for mine, other in zip(got, right, strict=True):
                    np.testing.assert_array_equal(mine, other, err_msg=f"{one.name} {place} {transfer}")
