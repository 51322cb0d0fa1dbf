"""The order of tiles: every element once, chunk after chunk, this rank's own block last."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.gpu.tracking.tiles import Span, tile_order
from conccl.integrations.fused.rows import Blocks
from conccl.integrations.fused.tracked import spans_of_blocks


@given(
    rows=st.lists(st.integers(0, 70), min_size=1, max_size=6),
    columns=st.integers(1, 90),
    block=st.sampled_from([(16, 32), (32, 16), (128, 256)]),
)
def test_every_element_is_in_one_tile(rows, columns, block):
    block_m, block_n = block
    starts = np.concatenate([[0], np.cumsum(rows)])
    total = int(starts[-1])
    # spans of x in the reverse of their order in the output
    spans = tuple(
        Span(
            chunk=index // 2, x_row=total - int(starts[index]) - count, out_row=int(starts[index]), rows=count
        )
        for index, count in enumerate(rows)
    )
    order = tile_order(spans, columns=columns, block_m=block_m, block_n=block_n)
    made = np.zeros((total, columns), dtype=int)
    source = np.full(total, -1)
    for x_row, out_row, count, column, _ in order.table:
        made[out_row : out_row + count, column : column + block_n] += 1
        source[out_row : out_row + count] = np.arange(x_row, x_row + count)
    assert (made == 1).all()
    for span in spans:
        assert source[span.out_row : span.out_row + span.rows].tolist() == list(
            range(span.x_row, span.x_row + span.rows)
        )
    chunks = order.table[:, 4]
    assert (np.diff(chunks) >= 0).all()
    assert order.by_chunk == tuple(np.bincount(chunks, minlength=len(order.by_chunk)))


@pytest.mark.torch
def test_each_rank_begins_with_another_one_and_ends_with_its_own():
    blocks = Blocks(rows=40, ranks=4)
    for rank in range(4):
        spans = [one for one in spans_of_blocks(blocks, [(0, 6), (6, 10)], rank) if one.chunk == 0]
        owners = [one.x_row // 10 for one in spans]
        assert owners == [(rank + step) % 4 for step in (1, 2, 3, 4)]
        assert [one.out_row for one in spans] == [6 * owner for owner in owners]
