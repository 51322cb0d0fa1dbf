"""The memory that the ranks of a group share: made private, attached, and gone with its last user.

It is an anonymous file (memfd) that peers open by way of the process that made it, so that nothing with a
name exists that a killed process could leave behind, and no limit of /dev/shm applies. Where peers cannot
open it (each rank in a PID namespace of its own) it is a file in /dev/shm with an unguessable name, which is
unlinked as soon as everyone has it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import secrets
import struct
from pathlib import Path

from conccl.core.errors import ExecutionError, InputError
from conccl.core.units import format_bytes

SHM = Path("/dev/shm")
_PREFIX = "conccl-"
_FLOCK = "hhqqi4x"
"""struct flock of 64-bit Linux: type, whence, start, length, pid."""


class Segment:
    """Shared memory, mapped; ``buffer`` views it and ``address`` is where it begins in this process."""

    def __init__(self, *, descriptor: int, nbytes: int, name: str = "") -> None:
        self.descriptor = descriptor
        self.nbytes = nbytes
        self.name = name
        """Its file in /dev/shm while that exists; empty: it has none."""
        self._map = mmap.mmap(descriptor, nbytes)
        self.buffer = memoryview(self._map)
        self._anchor = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(self._anchor)

    def reserve(self, offset: int, nbytes: int, /) -> None:
        """Make sure that these bytes have memory: writing to what has none kills the process.

        Called by the rank that will write there, so that the memory is on its NUMA node.
        """
        try:
            os.posix_fallocate(self.descriptor, offset, nbytes)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.ENOMEM):
                raise ExecutionError(
                    f"no {format_bytes(nbytes)} of shared memory left for this rank's staging."
                    " Free some, or give more (a container's /dev/shm grows with --shm-size)."
                ) from error
            raise

    def lock(self, place: int, /) -> None:
        """Hold a mark that the kernel takes away when this process ends, however it ends.

        A record lock: other processes can ask for it, children do not inherit it, and unlike a process id it
        is never anyone else's. Closing any descriptor of the segment gives it up, so there is just one.
        """
        fcntl.fcntl(self.descriptor, fcntl.F_SETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, 0, place, 1, 0))

    def is_locked(self, place: int, /) -> bool:
        """Whether another process holds this mark."""
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, 0, place, 1, 0)
        kind: int = struct.unpack(_FLOCK, fcntl.fcntl(self.descriptor, fcntl.F_GETLK, asked))[0]
        return kind != fcntl.F_UNLCK

    def unlink(self) -> None:
        """Take its name away; it lives until the last process has closed it."""
        if self.name:
            (SHM / self.name).unlink(missing_ok=True)
            self.name = ""

    def close(self) -> None:
        """Give it up. Views that are still held keep the mapping until they are dropped."""
        if self.descriptor < 0:
            return
        self.buffer.release()
        del self._anchor
        with contextlib.suppress(BufferError):  # views that the caller still holds keep the mapping
            self._map.close()
        os.close(self.descriptor)
        self.descriptor = -1


def anonymous(nbytes: int, /) -> Segment:
    """A new segment without a name."""
    descriptor = os.memfd_create("conccl", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.fchmod(descriptor, 0o600)
        os.ftruncate(descriptor, nbytes)
        # Nobody can cut off memory under the feet of others.
        fcntl.fcntl(
            descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        )
    except OSError:
        os.close(descriptor)
        raise
    return Segment(descriptor=descriptor, nbytes=nbytes)


def new_name() -> str:
    """An unguessable name. Peers are told before its file exists, so that any of them can unlink it."""
    return _PREFIX + secrets.token_hex(16)


def named(name: str, nbytes: int, /) -> Segment:
    """A new segment in /dev/shm."""
    try:
        descriptor = os.open(
            SHM / name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
    except OSError as error:
        raise ExecutionError(f"cannot make shared memory in {SHM}: {error.strerror}.") from error
    os.ftruncate(descriptor, nbytes)
    return Segment(descriptor=descriptor, nbytes=nbytes, name=name)


def opened(path: Path | str, nbytes: int, /) -> Segment:
    """A segment that another rank has made, by its path in /proc or /dev/shm; refused unless it is ours."""
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_NOFOLLOW if Path(path).parent == SHM else 0)
    descriptor = os.open(path, flags)
    try:
        _check(os.fstat(descriptor), str(path), nbytes)
    except InputError:
        os.close(descriptor)
        raise
    name = Path(path).name if Path(path).parent == SHM else ""
    return Segment(descriptor=descriptor, nbytes=nbytes, name=name)


def _check(status: os.stat_result, path: str, nbytes: int) -> None:
    mine = os.geteuid()
    if status.st_uid != mine or status.st_mode & 0o777 != 0o600:
        raise InputError(
            f"{path} belongs to user {status.st_uid} with mode {status.st_mode & 0o777:o}; the segment of a"
            f" group belongs to its user ({mine}) with mode 600. Start all ranks as one user."
        )
    if status.st_size != nbytes:
        raise InputError(f"{path} has {status.st_size} bytes; the group's segment has {nbytes}.")


def free_nbytes(*, in_shm: bool) -> int:
    """Free bytes of /dev/shm, or the memory that this process may still use."""
    if in_shm:
        status = os.statvfs(SHM)
        return status.f_bavail * status.f_frsize
    return min(_available(), _group_headroom())


def _available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group_headroom() -> int:
    """What the memory control group leaves (version 2; others have no limit that is read here)."""
    root = Path("/sys/fs/cgroup")
    try:
        limit = (root / "memory.max").read_text().strip()
        used = int((root / "memory.current").read_text())
    except (OSError, ValueError):
        return 1 << 62
    return 1 << 62 if limit == "max" else max(0, int(limit) - used)
