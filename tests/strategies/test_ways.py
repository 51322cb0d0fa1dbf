"""Ways of fused operators: their words, and how rows are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.errors import InputError
from conccl.strategies.cutting import Sizes, cut_rows
from conccl.strategies.ways import Chunked, Order, Serial, Tracked, way

WAYS = st.one_of(
    st.just(Serial()),
    st.builds(Tracked, chunks=st.integers(1, 99)),
    st.builds(Chunked, chunks=st.integers(2, 99), sizes=st.sampled_from(Sizes), order=st.sampled_from(Order)),
    st.just(Chunked(chunks=1, order=Order.STAGGERED)),
)


@given(WAYS)
def test_a_way_survives_its_words(one):
    assert way(str(one)) == one


def test_words_that_say_no_number_mean_eight():
    assert way("chunked") == Chunked(chunks=8)
    assert way(" Tracked ") == Tracked(chunks=8)
    assert way("chunked:shrinking") == Chunked(chunks=8, sizes=Sizes.SHRINKING)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("chunkd", "unknown way 'chunkd'. Did you mean chunked"),
        ("auto", "unknown way 'auto'"),
        ("serial:2", "'2' is none of"),
        ("chunked:4:slow", "'slow' is none of a number of chunks, equal, shrinking, together, staggered"),
        ("chunked:1", "1 chunks: give 2 or more"),
        ("chunked:0:staggered", "0 chunks: give 1 or more"),
        ("tracked:0", "0 chunks: give 1 or more"),
        ("tracked:4:shrinking", "'shrinking' is none of"),
    ],
)
def test_words_that_are_no_way_are_refused(text, words):
    with pytest.raises(InputError, match=words):
        way(text)


@given(
    rows=st.integers(1, 100_000),
    count=st.integers(1, 40),
    sizes=st.sampled_from(Sizes),
    tile=st.sampled_from([1, 16, 128]),
)
def test_rows_are_cut_into_chunks_none_empty(rows, count, sizes, tile):
    if rows < count:
        with pytest.raises(InputError, match=f"{count} chunks of a GEMM of {rows} rows"):
            cut_rows(rows, count, sizes=sizes, tile=tile)
        return
    found = cut_rows(rows, count, sizes=sizes, tile=tile)
    assert sum(found) == rows
    assert len(found) == count
    assert min(found) > 0
    if rows >= count * tile:
        assert all(one % tile == 0 for one in found[:-1])


def test_chunks_shrink_towards_the_end():
    assert cut_rows(4096, 4) == [1024] * 4
    assert cut_rows(5632, 4, sizes=Sizes.SHRINKING) == [2048, 2048, 1024, 512]
