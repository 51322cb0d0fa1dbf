"""Files of pairs: what they may say, and what is said of those that make no sense."""

import json
from pathlib import Path

import pytest

from conccl.core.errors import InputError
from conccl.core.kinds import CollectiveKind, Memory
from conccl.core.ops import Collective, Copy, Gemm
from conccl.core.pair import Dependence
from conccl.workloads.pairs import pair_of, read_pairs, row_of

FOLDER = Path(__file__).parents[2] / "benchmarks" / "pairs"
GOOD = {
    "compute": {"m": 128, "n": 256, "k": 64, "dtype": "bf16"},
    "communication": {"op": "all_gather", "nbytes": "64M", "ranks": 8},
}


def test_sizes_may_be_text():
    pair = pair_of(GOOD)
    assert pair.compute == Gemm(m=128, n=256, k=64)
    assert pair.communication == Collective(kind=CollectiveKind.ALL_GATHER, nbytes=64 << 20, ranks=8)
    assert pair.dependence is Dependence.NONE


def test_a_copy_says_where_from_and_where_to():
    copy = {"op": "copy", "nbytes": 100, "source": "device", "destination": "host"}
    pair = pair_of(GOOD | {"communication": copy, "dependence": "compute_feeds_communication"})
    assert pair.communication == Copy(nbytes=100, destination=Memory.HOST)
    assert row_of(pair.communication) == copy


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"compute": None}, "compute"),
        ({"communication": {"op": "add", "numel": 5}}, "must be a collective or a copy"),
        ({"compute": GOOD["communication"]}, "must be computation"),
        ({"dependence": "perhaps"}, "compute_feeds_communication"),
        ({"extra": 1}, "extra"),
        ({"compute": {"m": 0, "n": 1, "k": 1}}, "m"),
        ({"compute": {"m": -4, "n": 1, "k": 1}}, "m"),
        ({"communication": {"op": "all_gather", "nbytes": "lots", "ranks": 8}}, "not a size"),
        ({"communication": {"op": "all_gathr", "nbytes": 8, "ranks": 8}}, "all_gather"),
        ({"communication": {"op": "copy", "nbytes": 8, "source": "moon"}}, "moon"),
    ],
)
def test_what_makes_no_sense_is_named(change, says):
    with pytest.raises(InputError, match=says):
        pair_of(GOOD | change)


def test_one_bad_pair_does_not_lose_the_others(tmp_path):
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps([GOOD, {"compute": {}}, GOOD]))
    found = read_pairs(path)
    assert len(found.pairs) == 2
    assert [one.place for one in found.unreadable] == ["pair 1 of pairs.json"]


@pytest.mark.parametrize("text", ["{", "3", '{"pair": []}'])
def test_a_file_without_pairs_is_refused(tmp_path, text):
    path = tmp_path / "pairs.json"
    path.write_text(text)
    with pytest.raises(InputError):
        read_pairs(path)
    with pytest.raises(InputError, match="cannot read"):
        read_pairs(tmp_path / "absent.json")


@pytest.mark.parametrize(("name", "count"), [("conccl_mi300x", 30), ("t3_80cu", 28)])
def test_shipped_pairs_read_and_round_trip(name, count):
    found = read_pairs(FOLDER / f"{name}.json")
    assert (len(found.pairs), found.unreadable) == (count, ())
    for pair in found.pairs:
        rows = {"compute": row_of(pair.compute), "communication": row_of(pair.communication)}
        assert pair_of({**rows, "dependence": str(pair.dependence), "source": pair.source}) == pair
