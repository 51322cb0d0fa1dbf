import pytest
from hypothesis import given

from collective_cases import layouts
from conccl.collectives.layout import ALIGNMENT, Layout, Place, Window, Windows, divide, layout_of
from conccl.core.errors import InputError
from conccl.core.ops import Collective, CollectiveKind, DType, ReduceOp

K = CollectiveKind


def layout(kind: CollectiveKind, nbytes: int, count: int, /, **fields) -> Layout:
    options = {name: fields.pop(name) for name in ("dtype", "reduce_op") if name in fields}
    return layout_of(Collective(kind=kind, nbytes=nbytes, ranks=count, **options), **fields)


@pytest.mark.parametrize("kind", [K.ALL_GATHER, K.ALL_TO_ALL, K.REDUCE_SCATTER, K.GATHER, K.SCATTER])
@pytest.mark.parametrize("nbytes", [8, 2048 + 8, 4 * 1_000_003])
def test_blocks_are_equal_where_ranks_divide_the_elements(kind: CollectiveKind, nbytes: int):
    assert set(layout(kind, nbytes, 4, dtype=DType.UINT8).sizes[0]) == {nbytes // 4}


def test_what_does_not_divide_is_spread_by_elements():
    assert layout(K.REDUCE_SCATTER, 10 * 2, 4, dtype=DType.BF16).sizes[0] == (4, 6, 4, 6)
    assert layout(K.ALL_GATHER, 3, 4, dtype=DType.FP32).sizes[0] == (0, 1, 1, 1)


def test_pieces_of_what_all_get_are_aligned_where_they_are_large():
    starts = layout(K.ALL_REDUCE, (1 << 20) + 6, 3, dtype=DType.FP16).starts[0]
    assert all(start % ALIGNMENT == 0 for start in starts[:-1])
    assert starts[-1] == (1 << 20) + 6


@pytest.mark.parametrize(("nbytes", "pieces", "unit"), [(0, 3, 4), (4, 3, 4), (100, 7, 2), (1 << 20, 9, 1)])
def test_pieces_cover_all_bytes_in_order_and_are_whole_units(nbytes: int, pieces: int, unit: int):
    bounds = divide(nbytes, pieces, unit)
    assert (bounds[0], bounds[-1], len(bounds)) == (0, nbytes, pieces + 1)
    assert bounds == sorted(bounds)
    assert all(bound % unit == 0 for bound in bounds)


@given(layouts())
def test_blocks_tile_inputs_and_outputs(one: Layout):
    for position in range(one.count):
        for whole, part in ((one.whole_input(position), one.given), (one.whole_output(position), one.got)):
            blocks = [part(position, block) for block in range(one.count)]
            inside = {(b.offset, b.end) for b in blocks if b.nbytes and b.buffer == whole.buffer}
            if whole.nbytes == 0 or one.kind is K.BARRIER:
                continue
            assert min(start for start, _ in inside) == whole.offset
            assert max(end for _, end in inside) == whole.end
            assert sum(end - start for start, end in inside) == whole.nbytes


@given(layouts())
def test_all_bytes_that_leave_arrive(one: Layout):
    given_ = sum(one.input_nbytes(position) for position in range(one.count))
    got = sum(one.output_nbytes(position) for position in range(one.count))
    if one.kind in (K.ALL_TO_ALL, K.GATHER, K.SCATTER, K.ALL_REDUCE):
        assert given_ == got
    elif one.kind in (K.ALL_GATHER, K.BROADCAST):
        assert got == one.count * given_
    elif one.kind in (K.REDUCE, K.REDUCE_SCATTER):
        assert given_ == one.count * got


@pytest.mark.parametrize(
    ("kind", "place_of_input", "place_of_output"),
    [
        (K.ALL_GATHER, ("output", 8), ("output", 0)),
        (K.REDUCE_SCATTER, ("input", 0), ("input", 8)),
        (K.ALL_REDUCE, ("output", 0), ("output", 0)),
        (K.ALL_TO_ALL, ("output", 0), ("output", 0)),
        (K.BROADCAST, ("output", 0), ("output", 0)),
        (K.REDUCE, ("output", 0), ("output", 0)),
        (K.GATHER, ("output", 8), ("output", 0)),
        (K.SCATTER, ("input", 0), ("input", 8)),
    ],
)
def test_in_place_a_rank_has_one_buffer(kind, place_of_input, place_of_output):
    one = layout(kind, 32, 4, place=Place.IN_PLACE, root=1)
    got, given_ = one.whole_output(1), one.whole_input(1)
    assert (given_.buffer, given_.offset) == place_of_input
    assert (got.buffer, got.offset) == place_of_output


def test_ranks_that_are_not_the_root_keep_two_buffers_in_place():
    assert layout(K.GATHER, 32, 4, place=Place.IN_PLACE).whole_input(2).buffer == "input"
    assert layout(K.REDUCE, 32, 4, place=Place.IN_PLACE).whole_input(2).buffer == "input"
    assert layout(K.SCATTER, 32, 4, place=Place.IN_PLACE).whole_output(2).buffer == "output"


def test_regions_name_ranks_buffers_and_offsets():
    windows = Windows(output=Window(buffer="pool", offset=1000))
    one = layout(K.ALL_GATHER, 32, 4, ranks=[7, 3, 5, 1], windows=windows)
    region = one.got(1, 2)
    assert (region.rank, region.buffer, region.offset, region.nbytes) == (3, "pool", 1016, 8)


def test_send_goes_from_the_root_to_the_other():
    one = layout(K.SEND, 8, 2, ranks=[4, 9], root=9)
    assert (one.ranks[one.root], one.ranks[one.receiver]) == (9, 4)
    assert [one.input_nbytes(p) for p in (0, 1)] == [0, 8]
    assert [one.output_nbytes(p) for p in (0, 1)] == [8, 0]


@pytest.mark.parametrize(
    ("kind", "nbytes", "count", "fields", "message"),
    [
        (K.ALL_GATHER, 8, 4, {"ranks": [0, 1]}, "2 ranks were given for a collective among 4"),
        (K.ALL_GATHER, 8, 2, {"ranks": [1, 1]}, "stand there once"),
        (K.ALL_GATHER, 8, 2, {"ranks": [-1, 1]}, "0 or more"),
        (K.BROADCAST, 8, 2, {"ranks": [4, 5], "root": 0}, "root 0 is not in the group; its ranks are 4, 5"),
        (K.SEND, 8, 3, {}, "between 2 ranks, not 3"),
        (K.ALL_REDUCE, 7, 2, {"dtype": DType.FP32}, "7 bytes is no whole number of fp32"),
        (K.ALL_REDUCE, 8, 2, {"dtype": DType.BOOL, "reduce_op": ReduceOp.AVG}, "booleans have no average"),
        (K.ALL_GATHER, 8, 2, {"split_nbytes": [4, 5]}, "sums to 9 bytes; the collective has 8"),
        (K.ALL_GATHER, 8, 2, {"split_nbytes": [8]}, "needs 2 of 1"),
        (K.ALL_GATHER, 8, 2, {"split_nbytes": [9, -1]}, "a block of -1 bytes"),
        (K.REDUCE_SCATTER, 8, 2, {"split_nbytes": [6, 2], "dtype": DType.FP32}, "a block of 6 bytes"),
        (K.ALL_TO_ALL, 8, 2, {"split_nbytes": [[1, 2], [3]]}, "needs 2 of 2"),
        (
            K.ALL_TO_ALL,
            8,
            2,
            {"split_nbytes": [[1, 2], [3, 4]], "place": Place.IN_PLACE},
            "Run it out of place",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_a_way_out(kind, nbytes, count, fields, message):
    with pytest.raises(InputError, match=message):
        layout(kind, nbytes, count, **fields)
