"""Basic-block vector files: what is written is read again, and what is damaged is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from conccl.core.errors import InputError, OutputError
from conccl.sampling.intervals.bbv import read_bbv, write_bbv
from shared_data import shared

TEXT = "# by hand\nT:1:4   :3:10   \nT:2:7 \n\n#   Total instructions: 21\n"


def test_reads_intervals_and_counts(tmp_path: Path) -> None:
    path = tmp_path / "run.bb"
    path.write_text(TEXT)
    assert read_bbv(path).toarray().tolist() == [[4, 0, 10], [0, 7, 0]]


def test_reads_compressed(tmp_path: Path) -> None:
    path = tmp_path / "run.bb.gz"
    path.write_bytes(gzip.compress(TEXT.encode()))
    assert read_bbv(path).sum() == 21


def test_reads_what_exp_bbv_wrote() -> None:
    vectors = read_bbv(shared("sampling/own_cpuw_expbbv_1M.bb"))
    assert vectors.shape[0] == 640  # the last, unfinished million is not written
    assert 640_000_000 <= vectors.sum() <= 640_963_004  # as its last comment says


@given(st.lists(st.lists(st.integers(0, 10**12), min_size=1, max_size=6), min_size=1, max_size=8))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]]) -> None:
    width = max(map(len, rows))
    counts = np.array([row + [0] * (width - len(row)) for row in rows], np.int64)
    counts[:, 0] += 1  # an interval executes something
    path = tmp_path_factory.mktemp("bbv") / "run.bb"
    write_bbv(sparse.csr_array(counts), path)
    back = read_bbv(path).toarray()
    assert (back == counts[:, : back.shape[1]]).all()
    assert not counts[:, back.shape[1] :].any()


@pytest.mark.parametrize("keep", range(len("T:1:4   :3:10"), len("T:1:4   :3:10   \nT:2:7 \n") - 1))
def test_a_file_cut_within_a_line_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "run.bb"
    path.write_text("T:1:4   :3:10   \nT:2:7 \n"[:keep])
    if keep == len("T:1:4   :3:10   \n"):  # cut between lines: nobody can tell
        assert read_bbv(path).shape[0] == 1
        return
    with pytest.raises(InputError, match=r"ends within this line.*Profile the run again"):
        read_bbv(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "no interval"),
        (b"# only a comment\n", "no interval"),
        (b"T:1:2 :3\n", "line 1"),
        (b"T:1:2\nT:0:5\n", "line 2"),
        (b"T:1:-2\n", "line 1"),
        (b"T:1:99999999999999999999\n", "line 1"),
        (b"T:one:2\n", "line 1"),
        (b"1:2\n", "neither an interval"),
        (b"T:1:2\xff\n", "Give basic-block vectors as text"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "run.bb"
    path.write_bytes(content)
    with pytest.raises(InputError, match=complaint):
        read_bbv(path)


def test_a_cut_compressed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.bb.gz"
    path.write_bytes(gzip.compress(TEXT.encode())[:-9])
    with pytest.raises(InputError, match=r"run\.bb\.gz"):
        read_bbv(path)


def test_a_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="absent"):
        read_bbv(tmp_path / "absent")
    with pytest.raises(OutputError, match="nowhere"):
        write_bbv(sparse.csr_array(np.ones((1, 1), np.int64)), tmp_path / "nowhere" / "run.bb")
