from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from conccl.core.errors import InputError, OutputError
from conccl.core.files import regular, write_file


def test_folders_are_made_and_chunks_joined(tmp_path: Path):
    write_file(tmp_path / "a" / "b" / "c.txt", [b"one ", b"two"])
    assert (tmp_path / "a" / "b" / "c.txt").read_bytes() == b"one two"


def test_gz_is_compressed_and_the_same_each_time(tmp_path: Path):
    for name in ("a.json.gz", "b.json.gz"):
        write_file(tmp_path / name, [b"{}" * 1000])
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == b"{}" * 1000
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_a_full_disk_is_an_output_error():
    with pytest.raises(OutputError, match="No space left"):
        write_file(Path("/dev/full"), [b"x" * 100_000])


def test_a_mistake_of_ours_is_no_output_error(tmp_path: Path):
    def broken():
        yield b"x"
        raise ValueError("ours")

    with pytest.raises(ValueError, match="ours"):
        write_file(tmp_path / "a", broken())


def test_what_may_never_end_is_not_read(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InputError, match="pipe or device"):
            regular(path)
    assert regular(tmp_path) == tmp_path
    assert regular("nowhere") == Path("nowhere")
