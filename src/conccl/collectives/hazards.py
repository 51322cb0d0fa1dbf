"""Who wrote each byte and who reads it: the dependencies that a sequence of accesses needs.

Algorithms list their moves in an order that would be right if they ran one at a time. What really has to
wait is what reads bytes after their last write, and what writes bytes after their last reads (or, where
nobody read them, their last write). Everything else may run at once.
"""

from __future__ import annotations

from bisect import bisect_right

FOREVER = 1 << 62
"""Beyond the end of every buffer."""


class Segments:
    """The bytes of one buffer, cut where their histories differ.

    Accesses are numbered in the order in which they are made; ``lane`` groups those that run one after the
    other anyway, of which only the last has to be remembered.
    """

    __slots__ = ("_readers", "_starts", "_writers")

    def __init__(self, *, writer: int) -> None:
        """``writer``: the access that stands for what was there before."""
        self._starts = [0, FOREVER]
        self._writers = [writer, writer]
        self._readers: list[dict[int, int]] = [{}, {}]

    def read(self, start: int, stop: int, /, *, access: int, lane: int, waits: list[int]) -> None:
        """Read [start, stop); append the accesses to wait for to ``waits``."""
        index = self._cut(start)
        end = index + 1 if self._starts[index + 1] == stop else self._cut(stop)
        for one in range(index, end):
            waits.append(self._writers[one])
            self._readers[one][lane] = access

    def write(self, start: int, stop: int, /, *, access: int, waits: list[int]) -> None:
        """Write [start, stop); append the accesses to wait for to ``waits``."""
        index = self._cut(start)
        end = index + 1 if self._starts[index + 1] == stop else self._cut(stop)
        for one in range(index, end):
            readers = self._readers[one]
            if readers:  # they waited for the writer
                waits.extend(readers.values())
            else:
                waits.append(self._writers[one])
        if end == index + 1:
            self._writers[index] = access
            self._readers[index] = {}
        else:
            self._starts[index:end] = [start]
            self._writers[index:end] = [access]
            self._readers[index:end] = [{}]

    def finish(self, waits: list[int], /) -> None:
        """Append the accesses after which nobody touches the buffer."""
        for writer, readers in zip(self._writers[:-1], self._readers[:-1], strict=True):
            if readers:
                waits.extend(readers.values())
            else:
                waits.append(writer)

    def pieces(self, start: int, stop: int, /) -> list[tuple[int, int, int]]:
        """[start, stop) cut by last writer: where each piece begins and ends, and who wrote it."""
        index = bisect_right(self._starts, start) - 1
        found = []
        while start < stop:
            end = min(stop, self._starts[index + 1])
            found.append((start, end, self._writers[index]))
            start = end
            index += 1
        return found

    def _cut(self, at: int) -> int:
        """Index of the segment that begins here, cutting one in two where none does."""
        index = bisect_right(self._starts, at) - 1
        if self._starts[index] == at:
            return index
        self._starts.insert(index + 1, at)
        self._writers.insert(index + 1, self._writers[index])
        self._readers.insert(index + 1, dict(self._readers[index]))
        return index + 1
