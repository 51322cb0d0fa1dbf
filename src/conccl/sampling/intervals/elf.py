"""Addresses in executables and libraries: where in the file an instruction lies."""

from __future__ import annotations

import functools
import struct
from pathlib import Path

from conccl.core.errors import InputError

PT_LOAD = 1
PT_INTERP = 3


@functools.lru_cache(maxsize=256)
def _headers(path: str) -> tuple[tuple[int, int, int, int], ...]:
    """Type, address, offset and size in the file of each program header (ELF-64, little-endian)."""
    with Path(path).open("rb") as file:
        start = file.read(64)
        if len(start) < 64 or start[:6] != b"\x7fELF\x02\x01":
            raise InputError(f"{path} is no 64-bit ELF file; only machine code of x86-64 can be sampled.")
        (offset,) = struct.unpack_from("<Q", start, 32)
        size, count = struct.unpack_from("<HH", start, 54)
        file.seek(offset)
        table = file.read(size * count)
    rows = (struct.unpack_from("<IIQQQQ", table, size * i) for i in range(count))
    return tuple((kind, address, at, nbytes) for kind, _, at, address, _, nbytes in rows)


def is_dynamic(path: str, /) -> bool:
    """Whether the loader starts it, so that a library can be preloaded."""
    return any(kind == PT_INTERP for kind, *_ in _headers(path))


def file_offset(path: str, address: int, /) -> int:
    """Where the byte at a link-time address lies in the file."""
    for kind, start, at, nbytes in _headers(path):
        if kind == PT_LOAD and start <= address < start + nbytes:
            return address - start + at
    raise InputError(f"{path} holds nothing at {address:#x}.")


def link_address(path: str, offset: int, /) -> int:
    """The link-time address of a byte of the file."""
    for kind, start, at, nbytes in _headers(path):
        if kind == PT_LOAD and at <= offset < at + nbytes:
            return offset - at + start
    raise InputError(f"{path} has no loaded byte at {offset:#x}.")


def read_bytes(path: str, address: int, count: int, /) -> bytes:
    """Bytes at a link-time address."""
    with Path(path).open("rb") as file:
        file.seek(file_offset(path, address))
        return file.read(count)
