"""Where everything lies in the segment that the ranks of a group share.

::

    head          what this is, the abort word
    rank lines    progress and bells of each rank, a cache line each
    rows          who sleeps, and for whom
    records       why a rank ended the group
    headers       what call each rank is in: the last few
    tables        where the buffers of each rank lie in its own memory, for peers that read them there
    mail          a ring of bytes for each ordered pair of ranks: send and recv
    staging       slots of each rank, from a page of its own
"""

from __future__ import annotations

from dataclasses import dataclass

from conccl.core.errors import InputError
from conccl.core.units import KIB, MIB, format_bytes

PAGE = 4096
LINE = 64
HEADERS = 32
"""Calls by which ranks may run ahead of the slowest: that many headers are kept."""
HEADER_NBYTES = LINE
RECORD_NBYTES = 2048
RANK_NBYTES = 4 * LINE

MAX_RANKS = 1024
"""More than any host has GPUs or most have cores; the number of rings of mail grows with its square."""

SLOTS = 4
"""Pieces of messages in flight: two would let copying out and in overlap, more absorb ranks that are late."""
SLOT_NBYTES = 512 * KIB
"""A slot of a small group: a guess, so that a slot stays in a core's second-level cache; not tuned yet."""
_LEAST_UNIT = 512
"""Staging is not cut below so much for each rank: copies would cost much more than they move."""
_MAIL_BUDGET = 8 * MIB
_MOST_MAIL, _LEAST_MAIL = 256 * KIB, 512
"""Bytes of a ring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Sizes of a segment; all ranks have the same."""

    count: int
    slots: int
    slot_nbytes: int
    mail_nbytes: int

    @property
    def rows(self) -> int:
        """Where the rows of sleepers begin: two, one byte pair a rank."""
        return PAGE + self.count * RANK_NBYTES

    @property
    def row_nbytes(self) -> int:
        """Bytes of one row, whole 8-byte words."""
        return -(-2 * self.count // 8) * 8

    @property
    def records(self) -> int:
        """Where the records of abort begin."""
        return _up(self.rows + 2 * self.row_nbytes, LINE)

    @property
    def headers(self) -> int:
        """Where the headers begin."""
        return self.records + self.count * RECORD_NBYTES

    @property
    def mail(self) -> int:
        """Where the rings of mail begin."""
        return _up(self.tables + self.count * self.table_nbytes, PAGE)

    @property
    def tables(self) -> int:
        """Where the tables of addresses begin."""
        return _up(self.headers + self.count * HEADERS * HEADER_NBYTES, LINE)

    @property
    def table_nbytes(self) -> int:
        """A table: scratch, an input and an output of as many blocks as there are ranks."""
        return _up(8 * (1 + 2 * self.count), LINE)

    @property
    def ring_nbytes(self) -> int:
        """Bytes of one ring with the two lines that say how far it is written and read."""
        return self.mail_nbytes + 2 * LINE

    @property
    def staging(self) -> int:
        """Where staging begins."""
        return _up(self.mail + self.count * self.count * self.ring_nbytes, PAGE)

    @property
    def staging_nbytes(self) -> int:
        """Staging of one rank."""
        return _up(self.slots * self.slot_nbytes, PAGE)

    @property
    def nbytes(self) -> int:
        """The whole segment."""
        return self.staging + self.count * self.staging_nbytes

    def rank_line(self, rank: int, line: int, /) -> int:
        """Where a line of a rank begins: 0 progress, 1 and 2 bells, 3 who it is."""
        return PAGE + rank * RANK_NBYTES + line * LINE

    def record(self, rank: int, /) -> int:
        """Where a rank says why it ended the group."""
        return self.records + rank * RECORD_NBYTES

    def header(self, rank: int, call: int, /) -> int:
        """Where a rank says what its call of this number is."""
        return self.headers + (rank * HEADERS + call % HEADERS) * HEADER_NBYTES

    def table(self, rank: int, /) -> int:
        """Where a rank's table begins."""
        return self.tables + rank * self.table_nbytes

    def ring(self, source: int, destination: int, /) -> int:
        """Where the ring from one rank to another begins."""
        return self.mail + (source * self.count + destination) * self.ring_nbytes

    def staging_of(self, rank: int, /) -> int:
        """Where a rank's staging begins."""
        return self.staging + rank * self.staging_nbytes


def geometry_for(*, count: int, free_nbytes: int, where: str, slot_nbytes: int | None = None) -> Geometry:
    """As much staging as is useful, less where memory is short; half of what is free at most.

    ``slot_nbytes`` asks for slots of this size; then there are slots of this size or there is an error.
    """
    if not 1 <= count <= MAX_RANKS:
        raise InputError(f"a group of {count} ranks; the host transport takes 1 to {MAX_RANKS}.")
    pairs = max(1, count * count)
    mail = max(_LEAST_MAIL, min(_MOST_MAIL, _MAIL_BUDGET // pairs // LINE * LINE))
    wanted = slot_nbytes or max(SLOT_NBYTES, count * 64 * KIB)
    least = slot_nbytes or count * _LEAST_UNIT
    while True:
        made = Geometry(count=count, slots=SLOTS, slot_nbytes=wanted, mail_nbytes=mail)
        if made.nbytes <= free_nbytes // 2:
            return made
        if mail > _LEAST_MAIL:
            mail = max(_LEAST_MAIL, mail // 2 // LINE * LINE)
        elif wanted > least:
            wanted = max(least, wanted // 2 // LINE * LINE)
        else:
            raise InputError(
                f"{where} has {format_bytes(free_nbytes)} free; the host transport needs twice"
                f" {format_bytes(made.nbytes)} for {count} ranks. Free some, or give more (a container's"
                " /dev/shm grows with --shm-size)."
            )


def _up(nbytes: int, grain: int) -> int:
    return -(-nbytes // grain) * grain
