"""Segments are private, checked before they are used, and sized by what there is."""

import errno
import os
import stat

import numpy as np
import pytest

from conccl.core.errors import ExecutionError, InputError
from conccl.core.units import KIB, MIB
from conccl.transports import segment as segments
from conccl.transports.geometry import LINE, Geometry, geometry_for
from ranks import run_ranks
from transports import jobs


@pytest.fixture
def shm():
    """Makes names; takes their files away afterwards."""
    names = []

    def make():
        names.append(segments.new_name())
        return names[-1]

    yield make
    for name in names:
        (segments.SHM / name).unlink(missing_ok=True)


def test_a_segment_is_its_users_alone():
    one = segments.anonymous(4096)
    status = os.fstat(one.descriptor)
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_uid == os.geteuid()
    with pytest.raises(OSError, match=os.strerror(errno.EPERM)):  # nobody can cut it off under our feet
        os.ftruncate(one.descriptor, 0)
    one.close()


def test_names_cannot_be_guessed_and_files_have_mode_600(shm):
    names = {shm() for _ in range(100)}
    assert len(names) == 100
    assert all(len(name) == len("conccl-") + 32 for name in names)
    name = shm()
    before = os.umask(0)
    try:
        one = segments.named(name, 4096)
    finally:
        os.umask(before)
    assert stat.S_IMODE((segments.SHM / name).stat().st_mode) == 0o600
    with pytest.raises(ExecutionError, match="File exists"):
        segments.named(name, 4096)
    one.unlink()
    assert not (segments.SHM / name).exists()
    one.close()
    one.close()


def test_a_segment_that_is_not_ours_is_refused(shm, monkeypatch):
    name = shm()
    one = segments.named(name, 4096)
    path = segments.SHM / name
    with pytest.raises(InputError, match="has 4096 bytes; the group's segment has 8192"):
        segments.opened(path, 8192)
    path.chmod(0o644)
    with pytest.raises(InputError, match="with mode 644"):
        segments.opened(path, 4096)
    path.chmod(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(InputError, match="Start all ranks as one user"):
        segments.opened(path, 4096)
    one.close()


def test_links_are_not_followed(shm):
    name, link = shm(), shm()
    one = segments.named(name, 4096)
    (segments.SHM / link).symlink_to(segments.SHM / name)
    with pytest.raises(OSError, match="symbolic links"):
        segments.opened(segments.SHM / link, 4096)
    one.close()


def test_what_is_written_is_seen_by_whoever_has_it():
    one = segments.anonymous(8192)
    other = segments.opened(f"/proc/self/fd/{one.descriptor}", 8192)
    one.buffer[5000] = 7
    assert other.buffer[5000] == 7
    assert np.frombuffer(other.buffer, np.uint8)[5000] == 7
    other.close()
    one.close()


def test_memory_that_is_not_there_is_an_error_and_not_a_crash(monkeypatch):
    def full(descriptor, offset, nbytes):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "posix_fallocate", full)
    one = segments.anonymous(4096)
    with pytest.raises(ExecutionError, match="no 4 KiB of shared memory left for this rank's staging"):
        one.reserve(0, 4096)
    one.close()


def test_a_small_shm_holds_a_group_of_eight():
    """Many containers have 64 MB."""
    made = geometry_for(count=8, free_nbytes=64 * MIB, where="/dev/shm")
    assert made.nbytes <= 32 * MIB
    assert made.slots * made.slot_nbytes >= 1 * MIB


@pytest.mark.parametrize("count", [1, 2, 3, 8, 64, 200])
@pytest.mark.parametrize("free", [64 * MIB, 1024 * MIB, 1 << 40])
def test_everything_in_a_segment_has_its_own_place(count, free):
    if free < 64 * MIB * (1 + (count >= 200)):
        with pytest.raises(InputError, match="--shm-size"):
            geometry_for(count=count, free_nbytes=free, where="/dev/shm")
        return
    made = geometry_for(count=count, free_nbytes=free, where="/dev/shm")
    assert made.nbytes <= free // 2
    ends = [4096]
    for rank in range(count):
        assert made.rank_line(rank, 0) == ends[-1]
        ends.append(made.rank_line(rank, 3) + LINE)
    assert made.rows >= ends[-1]
    assert made.records >= made.rows + 2 * made.row_nbytes
    assert made.row_nbytes >= 2 * count
    assert made.headers >= made.record(count - 1) + 2048
    assert made.mail >= made.header(count - 1, 31) + 64
    assert made.staging >= made.ring(count - 1, count - 1) + made.ring_nbytes
    assert made.staging_of(count - 1) + made.staging_nbytes == made.nbytes
    assert made.staging_of(count - 1) % 4096 == 0
    assert made.ring(count - 1, 0) % LINE == 0
    assert made.slot_nbytes % LINE == 0
    assert made.mail_nbytes % LINE == 0


def test_too_little_memory_is_an_error_that_says_what_to_do():
    with pytest.raises(
        InputError, match=r"/dev/shm has 1 MiB free; the host transport needs twice .* for 16 ranks"
    ):
        geometry_for(count=16, free_nbytes=1 * MIB, where="/dev/shm")
    with pytest.raises(InputError, match="takes 1 to 1024"):
        geometry_for(count=2000, free_nbytes=1 << 40, where="/dev/shm")


def test_a_slot_size_that_is_asked_for_is_kept_or_refused():
    assert geometry_for(count=2, free_nbytes=1 << 40, where="x", slot_nbytes=8 * KIB).slot_nbytes == 8 * KIB
    with pytest.raises(InputError):
        geometry_for(count=2, free_nbytes=64 * MIB, where="x", slot_nbytes=64 * MIB)


def test_free_memory_is_known():
    assert segments.free_nbytes(in_shm=False) > 0
    assert segments.free_nbytes(in_shm=True) > 0


@pytest.mark.parametrize("named", [False, True])
def test_the_segment_has_no_name_once_all_have_it(tmp_path, named):
    found = run_ranks(3, jobs.what_a_group_holds, tmp_path, named)
    assert {one["named"] for one in found} == {""}
    assert not jobs.segments_in_shm()
    assert all(one["fallback"].startswith("a file in /dev/shm") for one in found) if named else True
    assert len({one["locked"] for one in found}) == 3
    assert all(len(one["locked"]) == 2 for one in found)  # the marks of the other two


def test_what_peers_cannot_open_becomes_a_file_in_shm(tmp_path):
    """Ranks in PID namespaces of their own cannot open each other's descriptors."""
    found = run_ranks(2, jobs.without_proc, tmp_path)
    assert all("a file in /dev/shm instead of anonymous memory: rank 1: " in fallback for fallback in found)
    assert not jobs.segments_in_shm()


def test_ranks_of_other_hosts_and_users_are_refused(tmp_path):
    for what, words in (("boot", "the host transport joins processes of one host"), ("user", "as one user")):
        (tmp_path / what).mkdir()
        for told in run_ranks(2, jobs.of_another, tmp_path / what, what):
            assert words in told


def test_an_empty_geometry_has_no_staging():
    made = Geometry(count=1, slots=1, slot_nbytes=64, mail_nbytes=64)
    assert made.staging_nbytes == 4096
