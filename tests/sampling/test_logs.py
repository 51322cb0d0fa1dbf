"""Logs in every format, and everything that can be wrong with one."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from conccl.core.errors import InputError
from conccl.sampling.logs import read_log, with_statistics


def test_csv_with_iterations_out_of_order(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("iteration,length\n2,30\n0,10\n1,20\n")
    log = read_log(path)
    assert log.iteration.tolist() == [0, 1, 2]
    assert log.length.tolist() == [[10], [20], [30]]


def test_json_lines_and_numpy_say_the_same_as_csv(tmp_path: Path) -> None:
    lines = tmp_path / "log.jsonl"
    lines.write_text("\n".join(json.dumps({"length_source": n, "length_target": n + 1}) for n in (3, 4)))
    array = tmp_path / "log.npy"
    np.save(array, np.array([[3, 4], [4, 5]]))
    table = tmp_path / "log.csv"
    table.write_text("length_source,length_target\n3,4\n4,5\n")
    assert (
        read_log(lines).length.tolist() == read_log(array).length.tolist() == read_log(table).length.tolist()
    )


def test_further_columns_are_statistics(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("length,time_ms,kernels\n8,1.5,10\n9,2.5,11\n")
    assert sorted(read_log(path).statistics) == ["kernels", "time_ms"]


def test_statistics_come_by_length(tmp_path: Path) -> None:
    log, stat = tmp_path / "log.csv", tmp_path / "stat.csv"
    log.write_text("iteration,length\n0,8\n1,9\n2,8\n")
    stat.write_text("length,time_ms\n9,2.0\n8,1.0\n8,3.0\n")
    assert with_statistics(read_log(log), stat).statistics["time_ms"].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("iteration,length\n", "has no iterations"),
        ("iteration,size\n0,1\n", "has no length column"),
        ("iteration,length\n0,0\n", "row 1: a length of 0"),
        ("iteration,length\n0,-3\n", "row 1: a length of -3"),
        ("iteration,length\n0,2.5\n", "row 1: length is 2.5. It must be a whole number"),
        ("iteration,length\n0,x\n", "row 1: length is 'x'. It must be a number"),
        ("iteration,length\n0,nan\n", "must be finite"),
        ("iteration,length\n0,inf\n", "must be finite"),
        ("iteration,length\n0,1\n0,2\n", "iteration 0 stands 2 times"),
        ("iteration,length\n0,1e300\n", "row 1: length is 1e.300. It must be finite, 1e.100 at most"),
        ("iteration,length\n0,9223372036854775807\n", r"row 1: length is .*below 2\^53"),
        ("length,length\n1,2\n", "several columns 'length'"),
        ("length,t\n1,5\n2,x\n", "row 2: t is 'x'. It must be a number"),
        ("iteration,length\n0\n", "line 2 has 1 cells; the header has 2"),
    ],
)
def test_bad_logs_say_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_log(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("length,time_ms\n8,1\n", "no row for 1 of the log's lengths: 9"),
        ("length,time_ms\n8,1\n9,-2\n", "row 2: time_ms is -2. A statistic is never negative"),
        ("length\n8\n9\n", "has no statistic"),
        ("length_a,length_b,time_ms\n8,1,1\n", "has 2 length columns, the log 1"),
    ],
)
def test_bad_statistics_say_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    log, stat = tmp_path / "log.csv", tmp_path / "stat.csv"
    log.write_text("iteration,length\n0,8\n1,9\n")
    stat.write_text(text)
    with pytest.raises(InputError, match=message):
        with_statistics(read_log(log), stat)


@pytest.mark.parametrize("name", ["log.txt", "log", "missing.csv"])
def test_files_that_are_not_read(tmp_path: Path, name: str) -> None:
    if not name.startswith("missing"):
        (tmp_path / name).write_text("length\n1\n")
    with pytest.raises(InputError):
        read_log(tmp_path / name)


def _saved(*array: np.ndarray, **arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    (np.savez if arrays else np.save)(file, *array, **arrays)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        *(("a.npy", b"nonsense"), ("a.npz", b"PK\x03\x04junk"), ("a.npy", _saved(np.array(5)))),
        ("a.npz", _saved(length=np.arange(1, 9), time_ms=np.arange(5))),
        *(("a.jsonl", b"{"), ("a.jsonl", b"[1]\n"), ("a.jsonl", b"[" * 5_000)),
        ("a.csv", b"\xff\xfe\x00"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError):
        read_log(path)


def test_columns_without_a_number_are_notes(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("iteration,length,note,time_ms\n5,8,warm-up,1\n6,9,,2\n")
    assert list(read_log(path).statistics) == ["time_ms"]


def test_gaps_in_iterations_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("iteration,length\n5,8\n100,9\n")
    assert read_log(path).iteration.tolist() == [5, 100]
