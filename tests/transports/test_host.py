"""The host transport with real processes."""

import pytest

from ranks import run_ranks
from transports import jobs

KINDS = ("all_gather", "all_to_all", "reduce_scatter", "all_reduce", "broadcast", "reduce", "gather", "scatter")


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_collective_gives_what_it_must_at_odd_sizes(tmp_path, count):
    sizes = [(kind, elements) for kind in KINDS for elements in (0, 1, 7, 1000, 65_537)]
    assert all(right > 0 for right in run_ranks(count, jobs.every_kind, tmp_path, sizes, ()))
