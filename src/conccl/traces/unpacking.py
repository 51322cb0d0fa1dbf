"""The bytes of one trace file, unpacked block by block: bounded in memory, suspicious of gzip bombs.

A file is plain JSON, gzip (several members allowed), or a member of a tar archive, each layer of which may
be gzip; what it is is told by its first bytes, not by its name. Nothing is written to disk. Every stream here
has the shape of `Bytes`: read until empty, then look at ``damage``.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol, cast

from conccl.core.errors import TraceError
from conccl.core.units import MIB, format_bytes

try:
    from isal import isal_zlib as _zlib  # unpacks about 2.5 times as fast as zlib
except ImportError:  # there is no wheel for this machine
    _zlib: Any = zlib  # type: ignore[no-redef]

_INFLATE_ERRORS: Any = (zlib.error, _zlib.error)

BLOCK = 2 * MIB
"""Unpacked bytes handed on at a time: small enough for the caches, so that decoding is a third faster than on
blocks of 4 MiB; and memory depends on this, not on the size of a trace."""

BOMB_RATIO = 300
"""Traces shrink 10 to 30 times (measured); DEFLATE's limit is 1032. Beyond this a file is refused ..."""
BOMB_NBYTES = 256 * MIB
"""... once it has unpacked to this much."""

_PACKED_BLOCK = 256 << 10
_MEMBER_BLOCK = 64 << 10  # tarfile loses the whole of a read that meets the end of a broken archive
_GZIP = b"\x1f\x8b"
_GZIP_WBITS = 31  # zlib's way to say: a gzip header and trailer


class Bytes(Protocol):
    """A stream of bytes that remembers how it ended."""

    @property
    def damage(self) -> str:
        """Empty, or what broke the stream off; what came before is good."""
        ...

    def read(self, size: int = BLOCK, /) -> bytes:
        """Up to ``size`` bytes; empty at the end."""
        ...


class Plain:
    """A file as it is, with bytes that were read ahead put back in front."""

    def __init__(self, source: IO[bytes] | Bytes, /, *, first: bytes = b"") -> None:
        self._source = source
        self._first = first

    @property
    def damage(self) -> str:
        """What broke the underlying stream off."""
        return "" if isinstance(self._source, io.IOBase) else getattr(self._source, "damage", "")

    def read(self, size: int = BLOCK, /) -> bytes:
        """Up to ``size`` bytes; empty at the end."""
        if self._first:
            first, self._first = self._first[:size], self._first[size:]
            return first
        return self._source.read(size)


class Unpacked:
    """What a gzip stream unpacks to."""

    def __init__(self, source: Bytes, /, *, path: str, first: bytes) -> None:
        self.damage = ""
        self._source = source
        self._path = path
        self._inflater = _zlib.decompressobj(wbits=_GZIP_WBITS)
        self._packed = first
        self._packed_nbytes = len(first)
        self._unpacked_nbytes = 0

    def read(self, size: int = BLOCK, /) -> bytes:
        """Some of the next unpacked bytes, up to ``size``; empty at the end."""
        piece = b""
        while not piece and not self.damage and (self._packed or self._refill()):
            piece = self._inflate(size)
        self._unpacked_nbytes += len(piece)
        self._check_ratio()
        return piece

    def _refill(self) -> bool:
        self._packed = self._source.read(_PACKED_BLOCK)
        self._packed_nbytes += len(self._packed)
        if not self._packed and not self._inflater.eof:
            self.damage = self._source.damage or (
                f"the gzip stream breaks off after {format_bytes(self._packed_nbytes)}"
            )
        return bool(self._packed)

    def _inflate(self, wanted: int) -> bytes:
        if self._inflater.eof:
            if not self._packed.startswith(_GZIP[:1]):  # padding after the last gzip member is not data
                self._packed = b""
                return b""
            self._inflater = _zlib.decompressobj(wbits=_GZIP_WBITS)
        try:
            piece: bytes = self._inflater.decompress(self._packed, wanted)
        except _INFLATE_ERRORS as error:
            self.damage = (
                f"the gzip stream is damaged within its first {format_bytes(self._packed_nbytes)} ({error})"
            )
            return b""
        self._packed = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
        return piece

    def _check_ratio(self) -> None:
        if self._unpacked_nbytes > max(BOMB_NBYTES, BOMB_RATIO * self._packed_nbytes):
            raise TraceError(
                path=self._path,
                problem=f"{format_bytes(self._packed_nbytes)} unpack to {format_bytes(self._unpacked_nbytes)}"
                f" and more: that looks like a gzip bomb (traces shrink less than {BOMB_RATIO} times)",
                remedy="If you trust it, unpack it yourself (gunzip) and give the unpacked file.",
            )


class _Member:
    """A member of a tar archive that is read forward only."""

    def __init__(self, file: io.BufferedIOBase, /, *, archive: Bytes) -> None:
        self.damage = ""
        self._file = file
        self._archive = archive

    def read(self, size: int = BLOCK, /) -> bytes:
        """Up to ``size`` bytes; empty at the end."""
        if self.damage:
            return b""
        try:
            return self._file.read1(min(size, _MEMBER_BLOCK))
        except tarfile.TarError:
            self.damage = self._archive.damage or "the archive breaks off"
            return b""


class _Ending:
    """A stream for tarfile, which skips a member block by block even where the archive ends before it."""

    _ENOUGH = 8  # a sound archive asks two or three times at its end

    def __init__(self, source: Bytes, /) -> None:
        self._source = source
        self._asked_at_end = 0

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; empty at the end, where nobody may ask for ever."""
        piece = self._source.read(size)
        self._asked_at_end += not piece
        if self._asked_at_end > self._ENOUGH:
            raise tarfile.ReadError("unexpected end of data")
        return piece


def unpack(source: Bytes, /, *, path: str) -> Bytes:
    """The stream's bytes, unpacked where it is gzip."""
    first = source.read(_PACKED_BLOCK)
    if first.startswith(_GZIP):
        return Unpacked(source, path=path, first=first)
    return Plain(source, first=first)


def name_of(path: str, member: str | None, /) -> str:
    """How a file or a member of an archive is called in messages."""
    return path if member is None else f"{path}::{member}"


@contextlib.contextmanager
def open_bytes(path: str, /, *, member: str | None = None, offset: int = 0) -> Iterator[Bytes]:
    """The unpacked bytes of a file, or of the archive member whose header is at this unpacked offset."""
    if member is None:
        with errors_named(path), Path(path).open("rb") as file:
            yield unpack(Plain(file), path=path)
        return
    with members_of(path, offset=offset) as members:
        for info, stream in members:
            if info.name == member:
                yield unpack(stream, path=name_of(path, member))
                return
            break
        raise TraceError(
            path=path, problem=f"{member} is not where it was a moment ago", remedy="Let nobody write to it."
        )


Members = Iterator[tuple[tarfile.TarInfo, Bytes]]


@contextlib.contextmanager
def members_of(path: str, /, *, offset: int = 0) -> Iterator[Members]:
    """The members of a tar archive from this unpacked offset on; each must be read before the next."""
    with errors_named(path), Path(path).open("rb") as file:
        stream = unpack(Plain(file), path=path)
        if isinstance(stream, Plain):
            file.seek(offset)
            stream = Plain(file)
        else:
            _skip(stream, offset)
        yield _members(stream, path=path)


def _members(stream: Bytes, *, path: str) -> Members:
    try:
        # tarfile asks its file for read(n) only, in stream mode
        source = _Ending(stream)
        with tarfile.open(fileobj=source, mode="r|", bufsize=_PACKED_BLOCK) as archive:  # type: ignore[call-overload]
            for info in archive:
                file = archive.extractfile(info) if info.isreg() else None
                yield info, _Member(cast("io.BufferedIOBase", file or io.BytesIO()), archive=stream)
    except tarfile.TarError as error:
        problem = stream.damage or f"not a readable tar archive ({error})"
        raise TraceError(path=path, problem=problem, remedy="Pack or copy it again.") from error


def _skip(stream: Bytes, nbytes: int) -> None:
    while nbytes > 0 and (piece := stream.read(min(nbytes, BLOCK))):
        nbytes -= len(piece)


@contextlib.contextmanager
def errors_named(path: str, /) -> Iterator[None]:
    """Errors of the operating system become ours, with the file's name."""
    try:
        yield
    except FileNotFoundError as error:
        raise TraceError(
            path=path, problem="it does not exist (any more)", remedy="Check the path."
        ) from error
    except PermissionError as error:
        raise TraceError(
            path=path, problem="it may not be read", remedy="Change its permissions (chmod +r)."
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceError(
            path=path, problem=f"reading it failed ({reason})", remedy="Copy it anew."
        ) from error
