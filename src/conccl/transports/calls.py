"""A collective call as all ranks must issue it, and its header, by which they see that they do."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from conccl.collectives.catalogue import algorithms
from conccl.collectives.layout import REDUCING, ROOTED, Place
from conccl.core.ops import CollectiveKind
from conccl.core.units import format_bytes
from conccl.transports.board import words_of
from conccl.transports.tiles import Message

REDUCTIONS = ("", "sum", "avg", "product", "min", "max", "band", "bor", "bxor")
"""What reducing calls do; moving ones have the empty name."""

_KINDS = tuple(CollectiveKind)
_ALGORITHMS = ("", *sorted({name for kind in CollectiveKind for name in algorithms(kind)}))
_NO_ROOT = (1 << 32) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What all ranks of a group do together."""

    kind: CollectiveKind
    sizes: tuple[int, ...]
    """Bytes of each block, as `Message.sizes` has them."""
    dtype: str
    """The element type by PyTorch's name ("float32"); bytes of other types do not mean the same."""
    reduction: str = ""
    root: int = 0
    """Position of the root, in calls that have one."""
    place: Place = Place.OUT_OF_PLACE
    algorithm: str | None = None
    """None: the transport chooses."""

    def message(self, count: int, /) -> Message:
        """The bytes among so many ranks."""
        return Message(kind=self.kind, count=count, sizes=self.sizes)


def header_of(call: Call, algorithm: str, /, *, reads_peers: bool = False) -> bytes:
    """A call as bytes of which every one must be the same on all ranks."""
    uneven = len(set(call.sizes)) > 1
    return words_of(
        _KINDS.index(call.kind)
        | REDUCTIONS.index(call.reduction) << 8
        | _ALGORITHMS.index(algorithm) << 16
        | uneven << 32
        | reads_peers << 33,
        *_halves(call.dtype),
        call.root if call.kind in ROOTED else _NO_ROOT,
        sum(call.sizes),
        _digest(call.sizes) if uneven else 0,
    )


def describe(header: bytes, /) -> str:
    """What the call of a header is, for people."""
    code, first, second, root, nbytes, digest = (
        int.from_bytes(header[at : at + 8], "little") for at in range(0, 48, 8)
    )
    kind = _KINDS[code & 0xFF] if code & 0xFF < len(_KINDS) else "?"
    if kind is CollectiveKind.BARRIER:
        return "barrier"
    reduction = REDUCTIONS[code >> 8 & 0xFF]
    dtype = (
        (first.to_bytes(8, "little") + second.to_bytes(8, "little")).rstrip(b"\0").decode(errors="replace")
    )
    words = [
        f"{kind} of {nbytes} bytes"
        if nbytes < 10_000
        else f"{kind} of {format_bytes(nbytes)} ({nbytes} bytes)"
    ]
    words.append(f"of {dtype}")
    if kind in REDUCING:
        words.append(f"by {reduction}")
    if root != _NO_ROOT:
        words.append(f"with root {root}")
    if code >> 32 & 1:
        words.append(f"in uneven blocks (digest {digest & 0xFFFFFF:06x})")
    words.append(f"[{_ALGORITHMS[code >> 16 & 0xFFFF]}]")
    return " ".join(words)


def _halves(name: str) -> tuple[int, int]:
    data = name.encode()[:16].ljust(16, b"\0")
    return int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")


def _digest(sizes: Sequence[int]) -> int:
    data = ",".join(map(str, sizes)).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
