"""Logs in every format, and everything that can be wrong with one."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.errors import InputError, MissingExtraError
from conccl.sampling.logs import IterationLog, read_log, with_statistics
from conccl.sampling.seqpoint import select


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
        ("iteration,length\n0,1_0\n", "row 1: length is '1_0'. It must be a number"),
        ("iteration;length\n0;1,5\n", "row 1: length is '1,5'. It must be a number"),
        ("\n", "is empty"),
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
        ("a.jsonl", b'{"length": 1}\n{"length": true}'),
        ("a.jsonl", b'{"length": 1}\n{"length": null}'),
        *(("a.npy", _saved(np.zeros(0))), ("a.npy", _saved(np.ones((2, 2), dtype=complex)))),
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


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"length{separator}time_ms\n8{separator}1.5\n\n9{separator}2\n")
    log = read_log(path)
    assert log.length.tolist() == [[8], [9]]
    assert log.statistics["time_ms"].tolist() == [1.5, 2.0]


def test_a_table_with_notes_reads_as_one_without(tmp_path: Path) -> None:
    """Columns of numbers are read at once, others cell by cell; nothing else may differ."""
    plain, noted = tmp_path / "plain.csv", tmp_path / "noted.csv"
    rows = [(i, 1 + i % 7, f"{i / 3!r}") for i in range(50)]
    plain.write_text("iteration,length,time_ms\n" + "".join(f"{i},{n},{t}\n" for i, n, t in rows))
    noted.write_text("iteration,length,time_ms,at\n" + "".join(f'{i},{n},{t},"x, y"\n' for i, n, t in rows))
    one, other = read_log(plain), read_log(noted)
    assert one.length.tolist() == other.length.tolist()
    assert one.statistics["time_ms"].tolist() == other.statistics["time_ms"].tolist()


def test_named_columns_make_lengths(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,374,44\n")
    log = read_log(path, lengths=("ContextTokens", "GeneratedTokens"))
    assert log.length.tolist() == [[374, 44]]
    assert log.names == ("ContextTokens", "GeneratedTokens")
    assert not log.statistics


@given(st.lists(st.tuples(*[st.integers(1, 2**50)] * 3), min_size=1, max_size=40))
def test_distinct_lengths_of_any_size(rows: list[tuple[int, int, int]]) -> None:
    log = IterationLog(
        iteration=np.arange(len(rows)),
        length=np.array(rows, dtype=np.int64),
        statistics={"t": np.arange(len(rows), dtype=np.float64)},
    )
    distinct = log.distinct()
    assert [tuple(row) for row in distinct.length.tolist()] == sorted(set(rows))
    assert [rows[i] for i in distinct.iteration.tolist()] == sorted(set(rows))
    assert distinct.count.tolist() == [rows.count(row) for row in sorted(set(rows))]
    assert [tuple(distinct.length[group].tolist()) for group in distinct.group] == rows


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"length": [8, 9], "time_ms": [1.5, 2.5], "at": ["a", "b"]})
    parquet.write_table(table, path)
    log = read_log(path)
    assert log.length.tolist() == [[8], [9]]
    assert list(log.statistics) == ["time_ms"]


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "log.parquet").touch()
    with pytest.raises(MissingExtraError, match=r"conccl\[parquet\]"):
        read_log(tmp_path / "log.parquet")


def test_many_rows_take_seconds(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = 300_000
    table = np.stack([np.arange(rows), 1 + np.arange(rows) % 500, np.arange(rows) % 91 + 1], axis=1)
    np.savetxt(path, table, fmt="%d", delimiter=",", header="iteration,length,time_ms", comments="")
    begin = time.process_time()
    log = read_log(path)
    assert select(log, statistic="time_ms").iterations == rows
    assert time.process_time() - begin < 3
