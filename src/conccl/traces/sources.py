"""Finds trace files in what the user names: files, folders, globs, archives; and which rank each one is."""

from __future__ import annotations

import contextlib
import glob
import io
import itertools
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from conccl.core.errors import InputError, TraceError
from conccl.traces.metadata import Metadata, scan_prefix, scan_suffix
from conccl.traces.ranks import ranks_of_names
from conccl.traces.trace import RankSource
from conccl.traces.unpacking import errors_named, members_of, name_of, open_bytes, unpack

SUFFIXES = (".json", ".json.gz", ".tar.gz", ".tgz", ".tar")
"""What is taken from folders and archives; a file that is named itself may be called anything."""

_ARCHIVES = (".tar.gz", ".tgz", ".tar")
_MAGIC = frozenset("*?[")
_PREFIX = 64 << 10
"""Unpacked bytes in which the rank is looked for; Kineto writes it before the events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """One trace to read: a file, or a member of an archive."""

    path: str
    member: str | None = None
    offset: int = 0
    """Of the member's header in the unpacked archive."""
    rank: int
    rank_source: RankSource
    world_size: int | None = None

    @property
    def name(self) -> str:
        """How messages call it."""
        return name_of(self.path, self.member)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The traces found, by rank, and what could not be used."""

    files: tuple[TraceFile, ...]
    problems: tuple[TraceError, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    path: str
    member: str | None = None
    offset: int = 0
    metadata: Metadata

    @property
    def name(self) -> str:
        return name_of(self.path, self.member)


def find_traces(
    paths: Iterable[str | Path], /, *, ranks: Mapping[str, int] | Sequence[int] | None = None
) -> Sources:
    """The traces that the paths name: files, folders (with all below), globs, tar archives.

    ``ranks`` gives ranks explicitly: one a file, in the order found, or by a file's name or path. Otherwise
    the rank is what the trace says (distributedInfo), else what its name says, else its place in the order. A
    path without any trace, an unreadable file and a second trace of a rank become problems; others go on.
    What conccl itself wrote for Perfetto is a trace only where there is nothing else.
    """
    problems: list[TraceError] = []
    candidates: list[_Candidate] = []
    for path in paths:
        with _noted(problems):
            for file in _files_of(str(path), problems):
                candidates += _candidates_of(file, problems)
    recorded = [each for each in candidates if not each.metadata.derived]
    candidates = recorded or candidates  # what we wrote from them says nothing more
    # Members of an archive may share a name.
    unique = {(os.path.realpath(each.path), each.offset): each for each in reversed(candidates)}
    ranked = _assign(list(reversed(unique.values())), ranks=ranks)
    kept, duplicates = unique_ranks([(file.rank, file.name) for file in ranked])
    return Sources(files=tuple(ranked[index] for index in kept), problems=(*problems, *duplicates))


def unique_ranks(ranks_and_names: Sequence[tuple[int, str]], /) -> tuple[list[int], list[TraceError]]:
    """Which entries to keep, by rank, and a problem for each further entry of a rank that is taken."""
    kept: dict[int, int] = {}
    problems = []
    for index, (rank, name) in enumerate(ranks_and_names):
        if rank in kept:
            problems.append(
                TraceError(
                    path=name,
                    problem=f"a second trace of rank {rank}; the first is {ranks_and_names[kept[rank]][1]}",
                    remedy="Analyse one run at a time, or say which file is which rank.",
                )
            )
        else:
            kept[rank] = index
    return [kept[rank] for rank in sorted(kept)], problems


def missing_ranks(ranks: Iterable[int], /, *, world_size: int | None) -> tuple[str, ...]:
    """A warning where ranks are missing, else nothing."""
    present = set(ranks)
    expected = range(world_size or max(present, default=-1) + 1)
    missing = [rank for rank in expected if rank not in present]
    if not missing or not present:
        return ()
    return (
        f"{len(missing)} of {len(expected)} ranks are missing ({_spans(missing)}):"
        " what they did is not known, and waiting for them counts as transfer",
    )


def _spans(numbers: Sequence[int]) -> str:
    """``0-3, 7`` for 0, 1, 2, 3, 7."""
    starts = [n for i, n in enumerate(numbers) if i == 0 or numbers[i - 1] != n - 1]
    ends = [n for i, n in enumerate(numbers) if i == len(numbers) - 1 or numbers[i + 1] != n + 1]
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _files_of(path: str, problems: list[TraceError]) -> list[str]:
    """The files that one argument names, sorted."""
    if not path or "\0" in path:
        raise TraceError(
            path=repr(path), problem="no path", remedy="Name a file or a folder ('.' is the one you are in)."
        )
    with errors_named(path):
        if Path(path).is_dir():
            return _files_below(path, problems)
        if Path(path).exists() or not _MAGIC.intersection(path):
            return [path]
        found = sorted(glob.glob(path, recursive=True))  # noqa: PTH207 (takes absolute patterns)
        if not found:
            raise TraceError(path=path, problem="no file matches", remedy="Check the pattern.")
        return [
            inner
            for file in found
            for inner in (_files_below(file, problems) if Path(file).is_dir() else [file])
        ]


def _files_below(folder: str, problems: list[TraceError]) -> list[str]:
    """The traces in a folder and all below it, links to folders left out; none at all is a problem."""
    found: list[str] = []
    waiting = [folder]
    known = len(problems)
    while waiting:
        here = waiting.pop()
        with _noted(problems), errors_named(here), os.scandir(here) as entries:
            for entry in entries:
                with _noted(problems), errors_named(entry.path):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif _is_trace(entry.name) and not entry.is_dir():
                        found.append(entry.path)
    if not found and len(problems) == known:
        raise TraceError(
            path=folder, problem="a folder without traces", remedy=f"Traces end in {', '.join(SUFFIXES)}."
        )
    return sorted(found)


def _is_trace(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not PurePosixPath(name).name.startswith("._")


def _candidates_of(path: str, problems: list[TraceError]) -> Iterator[_Candidate]:
    with _noted(problems):
        _require_regular(path)
        if path.lower().endswith(_ARCHIVES):
            yield from _members(path, problems)
        else:
            yield _Candidate(path=path, metadata=_quick_metadata(path))


@contextlib.contextmanager
def _noted(problems: list[TraceError]) -> Iterator[None]:
    """What cannot be read becomes a problem; the rest goes on."""
    try:
        yield
    except TraceError as error:
        problems.append(error)


def _require_regular(path: str) -> None:
    """Refuse pipes and devices, which may never end and cannot be read a second time."""
    with errors_named(path):
        regular = stat.S_ISREG(Path(path).stat().st_mode)
    if not regular:
        raise TraceError(path=path, problem="a pipe or device", remedy="Write it to a file first.")


def _quick_metadata(path: str) -> Metadata:
    """What the first part of a file says, or the last part where that costs no unpacking."""
    with open_bytes(path) as stream:
        metadata = scan_prefix(stream.read(_PREFIX))
    if metadata.rank is not None or path.lower().endswith(".gz"):
        return metadata
    with errors_named(path), Path(path).open("rb") as file:
        file.seek(max(0, file.seek(0, io.SEEK_END) - _PREFIX))
        return scan_suffix(file.read())


def _members(path: str, problems: list[TraceError]) -> Iterator[_Candidate]:
    """The traces in an archive; links and members outside its folder are refused by name."""
    found = 0
    with members_of(path) as members:
        for info, stream in members:
            if not _is_trace(info.name):
                continue
            found += 1
            name = name_of(path, info.name)
            if refusal := _refusal(info):
                problems.append(TraceError(path=name, problem=refusal, remedy="Pack the trace itself."))
                continue
            metadata = scan_prefix(unpack(stream, path=name).read(_PREFIX))
            yield _Candidate(path=path, member=info.name, offset=info.offset, metadata=metadata)
    if not found:
        problems.append(
            TraceError(
                path=path, problem="an archive without traces", remedy="Its traces must end in .json(.gz)."
            )
        )


def _refusal(info: tarfile.TarInfo) -> str:
    """Why a member of an archive is not read; empty where it may be."""
    if info.issym() or info.islnk():
        return f"a link to {info.linkname!r}, which is not followed"
    if not info.isreg():
        return "not a regular file"
    path = PurePosixPath(info.name)
    return "it lies outside the archive's folder" if path.is_absolute() or ".." in path.parts else ""


def _assign(
    candidates: Sequence[_Candidate], *, ranks: Mapping[str, int] | Sequence[int] | None
) -> list[TraceFile]:
    """Each candidate with its rank: given, else from the trace, else from the name, else by order."""
    given = _given_ranks(candidates, ranks)
    known = [
        (rank, RankSource.GIVEN)
        if rank is not None
        else (candidate.metadata.rank, RankSource.DISTRIBUTED_INFO)
        for candidate, rank in zip(candidates, given, strict=True)
    ]
    unknown = [index for index, (rank, _) in enumerate(known) if rank is None]
    taken = {rank for rank, _ in known if rank is not None}
    named = ranks_of_names([candidates[index].name for index in unknown])
    source = RankSource.FILE_NAME
    if any(rank is None or rank in taken for rank in named):
        free = (rank for rank in itertools.count() if rank not in taken)
        named, source = tuple(next(free) for _ in unknown), RankSource.ORDER
    for index, rank in zip(unknown, named, strict=True):
        known[index] = (rank, source)
    return [
        TraceFile(
            path=candidate.path,
            member=candidate.member,
            offset=candidate.offset,
            rank=rank or 0,
            rank_source=rank_source,
            world_size=candidate.metadata.world_size,
        )
        for candidate, (rank, rank_source) in zip(candidates, known, strict=True)
    ]


def _given_ranks(
    candidates: Sequence[_Candidate], ranks: Mapping[str, int] | Sequence[int] | None
) -> list[int | None]:
    """The rank that the user gave to each candidate."""
    if ranks is None:
        return [None] * len(candidates)
    if not isinstance(ranks, Mapping):
        if len(ranks) != len(candidates):
            raise InputError(
                f"{len(ranks)} ranks were given for {len(candidates)} traces. Give one for each."
            )
        return list(ranks)
    given: list[int | None] = []
    used = set()
    for candidate in candidates:
        keys = [
            key
            for key in (candidate.name, candidate.path, PurePosixPath(candidate.name).name)
            if key in ranks
        ]
        used.update(keys)
        given.append(ranks[keys[0]] if keys else None)
    if stray := sorted(ranks.keys() - used):
        raise InputError(f"a rank was given for {stray[0]!r}, which is none of the traces found.")
    return given
