"""What the user names becomes traces with ranks; what cannot be used is told and loses nothing else."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import tarfile
from pathlib import Path

import pytest

from conccl.core.errors import InputError
from conccl.traces.ranks import ranks_of_names
from conccl.traces.sources import find_traces, missing_ranks
from conccl.traces.trace import RankSource
from made_kineto import kernel, text_of, write, write_tar

EVENTS = [kernel("k", 1, 2)]


def _with_rank(rank: int, world_size: int = 4) -> bytes:
    return text_of(EVENTS, distributedInfo={"backend": "nccl", "rank": rank, "world_size": world_size})


def _rank_behind(rank: int, padding: int = 0) -> bytes:
    document = {"traceEvents": EVENTS, "x": "." * padding, "distributedInfo": {"rank": rank}, "z": [{"a": 1}]}
    return json.dumps(document).encode()


def test_files_folders_globs_and_archives(tmp_path: Path) -> None:
    write(tmp_path / "a" / "rank-3.json", _with_rank(3))
    write(tmp_path / "a" / "deep" / "rank-2.json.gz", _with_rank(2))
    write(tmp_path / "a" / "notes.txt", b"no trace")
    write(tmp_path / "a" / "._rank-9.json", b"resource fork")
    write(tmp_path / "b" / "x1.json", _with_rank(1))
    write_tar(tmp_path / "c.tar.gz", {"./t/zero.json": _with_rank(0), "t/readme.md": b""})
    sources = find_traces([tmp_path / "a", str(tmp_path / "b" / "*.json"), tmp_path / "c.tar.gz"])
    assert sources.problems == ()
    assert [(file.rank, Path(file.path).name, file.member) for file in sources.files] == [
        (0, "c.tar.gz", "./t/zero.json"),
        (1, "x1.json", None),
        (2, "rank-2.json.gz", None),
        (3, "rank-3.json", None),
    ]
    assert {file.rank_source for file in sources.files} == {RankSource.DISTRIBUTED_INFO}
    assert {file.world_size for file in sources.files} == {4}


def test_the_same_file_named_twice_is_one(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", _with_rank(1))
    sources = find_traces([path, str(tmp_path), tmp_path / ".." / tmp_path.name / "t.json"])
    assert len(sources.files) == 1
    assert sources.problems == ()


@pytest.mark.parametrize("padding", [0, 200_000])
def test_a_rank_behind_the_events_of_a_plain_file(tmp_path: Path, padding: int) -> None:
    (file,) = find_traces([write(tmp_path / "t.json", _rank_behind(5, padding))]).files
    assert (file.rank, file.rank_source) == (5, RankSource.DISTRIBUTED_INFO)


def test_a_rank_inside_something_else_does_not_count(tmp_path: Path) -> None:
    document = {"inner": {"distributedInfo": {"rank": 9}}, "traceEvents": EVENTS}
    (file,) = find_traces([write(tmp_path / "t.json", json.dumps(document).encode())]).files
    assert (file.rank, file.rank_source) == (0, RankSource.ORDER)


def test_the_prefix_scan_is_bounded(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"traceEvents": [' + b" " * (1 << 20), 9)
    path = tmp_path / "t.json.gz"
    path.write_bytes(packed * 4000)  # 4 GiB when unpacked
    (file,) = find_traces([path]).files
    assert file.rank_source is RankSource.ORDER


def test_given_ranks(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.json", _with_rank(0))
    by_name = find_traces([tmp_path], ranks={"a.json": 7, str(tmp_path / "b.json"): 6})
    assert [(file.rank, Path(file.path).name) for file in by_name.files] == [(6, "b.json"), (7, "a.json")]
    in_order = find_traces([tmp_path], ranks=[3, 2])
    assert [(file.rank, Path(file.path).name) for file in in_order.files] == [(2, "b.json"), (3, "a.json")]
    assert {file.rank_source for file in in_order.files} == {RankSource.GIVEN}
    with pytest.raises(InputError, match="1 ranks were given for 2 traces"):
        find_traces([tmp_path], ranks=[1])
    with pytest.raises(InputError, match="none of the traces found"):
        find_traces([tmp_path], ranks={"c.json": 1})


def test_a_second_trace_of_a_rank_is_a_problem_and_the_first_stays(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.json", _with_rank(1))
    sources = find_traces([tmp_path])
    assert [Path(file.path).name for file in sources.files] == ["a.json"]
    (problem,) = sources.problems
    assert "second trace of rank 1" in str(problem)
    assert "b.json" in problem.path
    assert "a.json" in str(problem)


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["rank-0.json.gz", "rank-1.json.gz"], [0, 1]),
        (["x/worker3_step_12.169.pt.trace.json", "x/worker10_step_12.169.pt.trace.json"], [3, 10]),
        (["trace_rank0_8.json", "trace_rank1_8.json"], [0, 1]),
        (["t_0.json", "t_1.json", "t_12.json"], [0, 1, 12]),
        (["rank0/trace.json", "rank1/trace.json"], [0, 1]),
        (["node0_rank4.json", "node1_rank5.json"], [4, 5]),
        (["RANK_2.json"], [2]),
        (["a.tar.gz::w/worker7.json", "a.tar.gz::w/worker8.json"], [7, 8]),
        (["host12_4051.1682725898.pt.trace.json"], [None]),
        (["a.json", "b.json"], [None, None]),
        (["frank1.json", "frank2.json"], [1, 2]),
        (["rank1_a.json", "rank1_b.json"], [None, None]),
        ([], []),
    ],
)
def test_ranks_of_names(names: list[str], ranks: list[int | None]) -> None:
    assert list(ranks_of_names(names)) == ranks


def test_names_that_contradict_a_trace_give_way_to_order(tmp_path: Path) -> None:
    write(tmp_path / "rank-1.json", _with_rank(0))
    write(tmp_path / "rank-0.json", text_of(EVENTS))
    sources = find_traces([tmp_path])
    assert [(file.rank, file.rank_source) for file in sources.files] == [
        (0, RankSource.DISTRIBUTED_INFO),
        (1, RankSource.ORDER),
    ]


@pytest.mark.parametrize(
    ("ranks", "world_size", "message"),
    [
        ([0, 1], 2, ""),
        ([0, 1], None, ""),
        ([], 4, ""),
        ([0, 2], None, "1 of 3 ranks are missing (1)"),
        ([5], 8, "7 of 8 ranks are missing (0-4, 6-7)"),
        ([0, 1], 128, "126 of 128 ranks are missing (2-127)"),
    ],
)
def test_missing_ranks(ranks: list[int], world_size: int | None, message: str) -> None:
    warnings = missing_ranks(ranks, world_size=world_size)
    assert bool(warnings) == bool(message)
    assert not warnings or warnings[0].startswith(message)


def test_what_cannot_be_used_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    write(tmp_path / "good" / "rank-0.json", _with_rank(0))
    (tmp_path / "empty").mkdir()
    named = [
        tmp_path / "good",
        tmp_path / "empty",
        tmp_path / "gone.json",
        str(tmp_path / "*.nothing"),
        write(tmp_path / "bad.tar", b"no archive" * 100),
        write_tar(tmp_path / "none.tar.gz", {"readme.md": b"hello"}),
    ]
    sources = find_traces(named)
    assert [file.rank for file in sources.files] == [0]
    said = [str(problem) for problem in sources.problems]
    assert len(said) == 5
    for path, message, text in zip(
        ("empty", "gone.json", "*.nothing", "bad.tar", "none.tar.gz"),
        (
            "without traces",
            "does not exist",
            "no file matches",
            "not a readable tar archive",
            "without traces",
        ),
        said,
        strict=True,
    ):
        assert str(tmp_path / path) in text
        assert message in text
        assert text.count(". ") >= 1  # a remedy


def test_what_cannot_be_opened_in_a_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "rank-0.json", _with_rank(0))
    os.mkfifo(tmp_path / "rank-1.json")
    (tmp_path / "rank-2.json").symlink_to("nowhere")
    (tmp_path / "rank-3.json").symlink_to("rank-3.json")
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "again.json").symlink_to(tmp_path)
    write(tmp_path / "locked" / "rank-4.json", _with_rank(4))
    scandir = os.scandir

    def denying(folder: str) -> object:
        if Path(folder).name == "locked":
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", denying)
    sources = find_traces([tmp_path])
    assert [file.rank for file in sources.files] == [0]
    assert {Path(problem.path).name: problem.problem for problem in sources.problems} == {
        "rank-1.json": "a pipe or device",
        "rank-2.json": "it does not exist (any more)",
        "rank-3.json": "reading it failed (Too many levels of symbolic links)",
        "locked": "it may not be read",
    }
    (problem,) = find_traces([tmp_path / "locked"]).problems
    assert problem.problem == "it may not be read"


@pytest.mark.parametrize("path", ["", "a\0b", "/dev/zero"])
def test_paths_that_are_none_end_at_once(path: str) -> None:
    (problem,) = find_traces([path]).problems
    assert problem.remedy


def test_members_of_one_name_are_both_read(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", {"t.json": _with_rank(0)})
    with tarfile.open(path, "a") as archive:
        info = tarfile.TarInfo("t.json")
        info.size = len(_with_rank(1))
        archive.addfile(info, io.BytesIO(_with_rank(1)))
    assert [file.rank for file in find_traces([path]).files] == [0, 1]


def test_members_of_archives_that_are_links_or_lie_outside_are_refused(tmp_path: Path) -> None:
    link, hard, device = tarfile.TarInfo(), tarfile.TarInfo(), tarfile.TarInfo()
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    hard.type, hard.linkname = tarfile.LNKTYPE, "t/rank-0.json"
    device.type = tarfile.CHRTYPE
    path = write_tar(
        tmp_path / "a.tar.gz",
        {
            "t/rank-0.json": _with_rank(0),
            "t/link.json": link,
            "t/hard.json": hard,
            "t/device.json": device,
            "../outside.json": _with_rank(1),
            "/etc/absolute.json": _with_rank(2),
            "t/rank-3.json": _with_rank(3),
        },
    )
    sources = find_traces([path])
    assert [file.rank for file in sources.files] == [0, 3]
    said = {problem.path.partition("::")[2]: str(problem) for problem in sources.problems}
    assert said.keys() == {
        "t/link.json",
        "t/hard.json",
        "t/device.json",
        "../outside.json",
        "/etc/absolute.json",
    }
    assert "a link" in said["t/link.json"]
    assert "outside" in said["../outside.json"]
    assert not (tmp_path.parent / "outside.json").exists()


def test_a_packed_archive_that_breaks_off_keeps_its_first_members(tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(200_000)
    path = write_tar(
        tmp_path / "a.tar.gz",
        {"rank-0.json": _with_rank(0), "rank-1.json": _with_rank(1) + noise.hex().encode()},
    )
    packed = path.read_bytes()
    path.write_bytes(packed[: len(packed) // 2])
    sources = find_traces([path])
    assert [file.rank for file in sources.files][:1] == [0]
