"""Sleeping until another process rings: Linux futexes in shared memory."""

from __future__ import annotations

import ctypes
import errno
import platform

_WAIT, _WAKE = 0, 1
_SYSCALL = {"x86_64": 202}.get(platform.machine(), -1)
_EVERYONE = 2**31 - 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = (
    ctypes.c_long,  # number
    ctypes.c_void_p,  # address
    ctypes.c_long,  # operation
    ctypes.c_long,  # value
    ctypes.POINTER(_Timespec),
    ctypes.c_void_p,
    ctypes.c_long,
)


def available() -> bool:
    """Whether this system has futexes that processes can share."""
    word = ctypes.c_uint32(1)
    _syscall(
        _SYSCALL, ctypes.addressof(word), _WAIT, 0, None, None, 0
    )  # the word is not 0: it returns at once
    return ctypes.get_errno() == errno.EAGAIN


def wait(address: int, value: int, seconds: float, /) -> None:
    """Sleep while the 32-bit word at this address has this value, until it is rung or so long."""
    time = _Timespec(int(seconds), int(seconds % 1 * 1e9))
    _syscall(_SYSCALL, address, _WAIT, value, time, None, 0)


def wake(address: int, /) -> None:
    """Wake all that sleep on the word at this address."""
    _syscall(_SYSCALL, address, _WAKE, _EVERYONE, None, None, 0)
