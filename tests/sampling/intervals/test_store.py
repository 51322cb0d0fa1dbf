"""The output folder: files that simulators read, and what an interrupted call leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from conccl.core.errors import InputError, OutputError
from conccl.sampling.intervals.store import Store, read_points


def test_points_are_written_as_simulators_read_them(tmp_path: Path) -> None:
    store = Store(tmp_path, fingerprint="x")
    store.write_points({2: 0.25, 9: 0.75})
    simpoints, weights = tmp_path / "points.simpoints", tmp_path / "points.weights"
    assert simpoints.read_text() == "2 0\n9 1\n"
    assert weights.read_text() == "0.250000000 0\n0.750000000 1\n"
    assert read_points(simpoints, weights) == [(2, 0.25), (9, 0.75)]


def test_points_without_a_weight_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.simpoints").write_text("2 0\n9 1\n")
    (tmp_path / "a.weights").write_text("1.0 0\n")
    with pytest.raises(InputError, match="no weight for cluster 1"):
        read_points(tmp_path / "a.simpoints", tmp_path / "a.weights")


@pytest.mark.parametrize("text", ["2\n", "two 0\n", "2 0 0\n"])
def test_files_that_hold_something_else_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.simpoints").write_text(text)
    (tmp_path / "a.weights").write_text("1.0 0\n")
    with pytest.raises(InputError, match=r"a\.simpoints"):
        read_points(tmp_path / "a.simpoints", tmp_path / "a.weights")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Give a folder"):
        Store(tmp_path / "file", fingerprint="x")
