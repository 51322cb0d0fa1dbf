"""Files, gzip and archives become bytes in bounded blocks; bombs, links and damage are told."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import pytest

from conccl.core.errors import TraceError
from conccl.traces.unpacking import BOMB_NBYTES, Bytes, members_of, open_bytes
from made_kineto import write_tar

TEXT = bytes(range(256)) * 4096


def _all(stream: Bytes, size: int = 1000) -> bytes:
    pieces = []
    while piece := stream.read(size):
        assert len(piece) <= size
        pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.parametrize("size", [1000, 1 << 20, 1 << 24])
@pytest.mark.parametrize(
    "packed",
    [
        TEXT,
        gzip.compress(TEXT),
        gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:]),
        gzip.compress(TEXT) + b"\0" * 512,
    ],
    ids=["plain", "gzip", "two gzip members", "padded gzip"],
)
def test_what_comes_out(tmp_path: Path, packed: bytes, size: int) -> None:
    path = tmp_path / "any.name"
    path.write_bytes(packed)
    with open_bytes(str(path)) as stream:
        assert _all(stream, size) == TEXT
        assert stream.damage == ""


def test_a_gzip_that_breaks_off_gives_what_came_before(tmp_path: Path) -> None:
    packed = gzip.compress(TEXT)
    path = tmp_path / "t.gz"
    path.write_bytes(packed[: len(packed) // 2])
    with open_bytes(str(path)) as stream:
        got = _all(stream)
        assert len(got) > 0
        assert TEXT.startswith(got)
        assert "breaks off" in stream.damage


def test_a_damaged_gzip_gives_what_came_before(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(TEXT))
    packed[-6] ^= 1  # the checksum
    path = tmp_path / "t.gz"
    path.write_bytes(packed)
    with open_bytes(str(path)) as stream:
        assert TEXT.startswith(_all(stream))
        assert "damaged" in stream.damage


def test_a_gzip_bomb_is_refused_with_a_remedy(tmp_path: Path) -> None:
    member = gzip.compress(b" " * (16 << 20), 9)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(member * (BOMB_NBYTES // (16 << 20) + 2))
    with open_bytes(str(path)) as stream, pytest.raises(TraceError, match="gunzip") as raised:
        _all(stream, 1 << 22)
    assert "bomb" in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_packed_archive_in_an_archive_member(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar.gz", {"x/a.json": TEXT[:5000], "x/b.json.gz": gzip.compress(TEXT)})
    with members_of(str(path)) as members:
        offsets = {info.name: info.offset for info, _ in members}
    for name, content in {"x/a.json": TEXT[:5000], "x/b.json.gz": TEXT}.items():
        with open_bytes(str(path), member=name, offset=offsets[name]) as stream:
            assert _all(stream) == content


def test_a_plain_archive_is_entered_at_the_member(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", {"a.json": TEXT, "b.json": b"second"})
    with members_of(str(path)) as members:
        offsets = {info.name: info.offset for info, _ in members}
    with open_bytes(str(path), member="b.json", offset=offsets["b.json"]) as stream:
        assert _all(stream) == b"second"


def test_an_archive_that_breaks_off_gives_what_came_before(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", {"a.json": TEXT})
    path.write_bytes(path.read_bytes()[:100_000])
    with open_bytes(str(path), member="a.json", offset=0) as stream:
        got = _all(stream)
        assert TEXT.startswith(got)
        assert len(got) > 50_000
        assert stream.damage != ""


def test_a_changed_archive_is_told(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", {"a.json": TEXT})
    with pytest.raises(TraceError, match="moment ago"), open_bytes(str(path), member="b.json", offset=0):
        pass


def test_an_archive_whose_member_is_said_to_be_endless(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a.json")
    info.size = 1 << 60
    path = tmp_path / "a.tar"
    path.write_bytes(info.tobuf() + TEXT[:5000])
    with pytest.raises(TraceError, match="unexpected end"), members_of(str(path)) as members:
        list(members)
    with open_bytes(str(path), member="a.json", offset=0) as stream:
        assert TEXT.startswith(_all(stream))
        assert "breaks off" in stream.damage


def test_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"no archive at all" * 100)
    with pytest.raises(TraceError, match="not a readable tar archive"), members_of(str(path)) as members:
        list(members)


def test_a_path_that_vanished(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="does not exist"), open_bytes(str(tmp_path / "gone.json")):
        pass


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="failed"), open_bytes(str(tmp_path)):
        pass


def test_links_have_no_content(tmp_path: Path) -> None:
    link = tarfile.TarInfo()
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    path = write_tar(tmp_path / "a.tar", {"a.json": link})
    with members_of(str(path)) as members:
        for _, stream in members:
            assert stream.read() == b""
