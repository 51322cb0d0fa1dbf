"""Reading another process's memory by one system call: bytes are copied once, with nothing between.

Linux lets a process read those of the same user that it may trace (process_vm_readv). Containers and the
Yama module can forbid it, so that ranks try it once before they rely on it (`Probe`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets


class _Stretch(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)
_readv = getattr(_libc, "process_vm_readv", None)
if _readv is not None:
    _readv.restype = ctypes.c_ssize_t
    _readv.argtypes = (
        ctypes.c_int,
        ctypes.POINTER(_Stretch),
        ctypes.c_ulong,
        ctypes.POINTER(_Stretch),
        ctypes.c_ulong,
        ctypes.c_ulong,
    )


def read(pid: int, address: int, to: int, nbytes: int, /) -> None:
    """Copy bytes of another process to an address of this one; raises OSError where that cannot be."""
    if _readv is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    here, there = _Stretch(to, nbytes), _Stretch(address, nbytes)
    while True:
        done = _readv(pid, here, 1, there, 1, 0)
        if done == here.nbytes:
            return
        if done <= 0:  # a part is copied where the next page cannot be read, or beyond 2 GiB
            code = ctypes.get_errno() if done < 0 else errno.EFAULT
            raise OSError(code, os.strerror(code))
        for one in (here, there):
            one.address += done
            one.nbytes -= done


class Probe:
    """A secret in this process's own memory that peers read to see whether they can."""

    def __init__(self) -> None:
        self.value = secrets.randbits(62) + 1
        self._held = ctypes.c_uint64(self.value)
        self.address = ctypes.addressof(self._held)


def why_not(pid: int, address: int, value: int, /) -> int:
    """0 if a peer's probe can be read; else the number of the error."""
    got = ctypes.c_uint64()
    try:
        read(pid, address, ctypes.addressof(got), 8)
    except OSError as error:
        return error.errno or errno.EIO
    return 0 if got.value == value else errno.ESRCH  # the number is another process's
