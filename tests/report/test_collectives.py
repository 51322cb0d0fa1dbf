"""Rows as nccl-tests prints and writes them."""

from conccl.bench.collectives import CollectiveRow, Timing
from conccl.core.kinds import CollectiveKind
from conccl.report.collectives import footer_lines, header_lines, result, row_line

ROW = CollectiveRow(
    kind=CollectiveKind.ALL_TO_ALL,
    ranks=2,
    nbytes=1 << 20,
    count=131072,
    dtype="float",
    redop="",
    root=-1,
    out_of_place=Timing(times_ns=(100_000, 300_000), nwrong=3),
    in_place=None,
    how="by hand",
)


def test_a_line_has_a_column_for_each_word_of_the_header():
    words = row_line(ROW).split()
    assert words[:9] == ["1048576", "131072", "float", "none", "-1", "200.00", "5.24", "2.62", "3"]
    assert words[9:] == ["N/A"] * 4
    assert all(line.startswith("#") for line in header_lines())
    assert (
        header_lines()[1].split()[1:]
        == ["size", "count", "type", "redop", "root"]
        + [
            "time",
            "algbw",
            "busbw",
            "#wrong",
        ]
        * 2
    )
    assert len({len(line) for line in (*header_lines()[1:], row_line(ROW))}) == 1


def test_wrong_values_are_told_below():
    assert footer_lines([ROW])[0] == "# Out of bounds values : 3 FAILED"
    assert footer_lines([ROW])[1] == "# Avg bus bandwidth    : 2.62144"
    assert footer_lines([])[1].endswith("N/A")


def test_json_has_nccl_tests_keys():
    found = result(ROW)
    assert found["out_of_place"] == {"time": 200.0, "alg_bw": 5.24288, "bus_bw": 2.62144, "nwrong": 3}
    assert found["in_place"] is None
    assert found["out_of_place_per_iter"]["p50_us"] == 200.0
    assert found["out_of_place_per_iter"]["times_us"] == [100.0, 300.0]
    assert {"size", "count", "type", "redop", "root"} <= found.keys()
