"""QEMU user mode with a plugin of ours: basic-block vectors, chosen intervals in detail, or the whole run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from conccl.core.errors import ExecutionError, InputError
from conccl.sampling.intervals.bbv import read_bbv
from conccl.sampling.intervals.build import built
from conccl.sampling.intervals.elf import file_offset, link_address, read_bytes
from conccl.sampling.intervals.markers import Marker, Site, SiteKind
from conccl.sampling.intervals.program import Child, Ended, Program, require_one_thread
from conccl.sampling.intervals.windows import COUNTERS, Detail, Event, is_boundary, sites_of

EXECUTABLE = "qemu-x86_64"
_FIXED, _EVENTS = 0, 1
_ROW = 5 + len(COUNTERS)
_BYTES_OF = {SiteKind.CALL: 5, SiteKind.JUMP: 5, SiteKind.BRANCH: 6}
"""Instructions that can be counted end in a displacement of 4 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockProfile:
    """Basic-block vectors of a whole run in n intervals of equal instructions."""

    path: Path
    """The file of vectors: [n, blocks] executions times instructions."""
    bounds: tuple[Marker | None, ...]
    """n + 1 of them, where the translator counts blocks; else all None."""
    instructions: int
    forks: int
    ended: Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """What a run with events left."""

    rows: dict[int, NDArray[np.int64]]
    """Number of the event -> instructions of the run so far, then the model's counters; -1 is the end."""
    order: tuple[int, ...]
    """Events in the order in which they were reached."""
    executions: tuple[int, ...]
    """Of each site, over the whole run."""
    fixed: NDArray[np.int64]
    """[intervals, 1 + counters] the same at the end of each interval of equal instructions."""
    vectors: sparse.csr_array | None
    """[intervals] of equal instructions, where a profile was asked for."""
    marked: sparse.csr_array | None
    """Basic-block vectors from event to event, in the order reached, where a profile was asked for."""
    forks: int
    ended: Ended

    def detail(self, events: Sequence[Event], /, *, end: int) -> Detail:
        """The model's counters at each boundary; `end` is the one at the end of the program."""
        at = {
            events[number].bound: row[1:] for number, row in self.rows.items() if is_boundary(events, number)
        }
        return Detail(at=at | {end: self.rows[-1][1:]})


def find_qemu() -> str:
    """The translator's path, if it is there and knows this plugin interface."""
    found = shutil.which(EXECUTABLE)
    if found is None:
        raise InputError(
            f"{EXECUTABLE} was not found. Install QEMU user mode (Debian, Ubuntu: apt install qemu-user)."
        )
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"version (\d+)\.(\d+)", said)
    if version is None or not (6, 0) <= tuple(map(int, version.groups())) <= (8, 2):
        raise InputError(
            f"{found} says {said.splitlines()[0] if said else 'nothing'!r}; "
            "the plugin needs QEMU 6.0 to 8.2. Install one of them, or use --translator attach or valgrind."
        )
    return found


def profile_blocks(program: Program, /, *, interval: int, keep: Path) -> BlockProfile:
    """Run the program under the plugin and count its basic blocks; the vectors are kept in `keep`."""
    with _Run(program) as run:
        ended = run.go([f"interval {interval}", "profile 1"])
        instructions, forks, _ = run.status()
        shutil.move(run.prefix.with_suffix(".bb"), keep)
        rows = run.rows()
        inner = rows[rows[:, 0] == _FIXED][:-1]
        places = run.blocks()
        bounds = [Marker(site=places[int(row[3])], count=int(row[4])) for row in inner]
        return BlockProfile(
            path=keep,
            bounds=(None, *bounds, None),
            instructions=instructions,
            forks=forks,
            ended=ended,
        )


def run_with_events(
    program: Program, events: Sequence[Event], /, *, interval: int = 0, whole: bool = False
) -> Translated:
    """Run the program and note instructions and the model's counters at each event.

    The model runs between FOLLOW and UNFOLLOW; with `whole`, over the whole run, and basic blocks are
    counted.
    """
    sites = sites_of(events)
    settings = [f"interval {interval}", f"profile {int(whole)}", f"model {int(whole)}", "count 1"]
    settings += [_site_setting(site) for site in sites]
    for event in events:
        place = "- 0" if event.marker is None else f"{sites.index(event.marker.site)} {event.marker.count}"
        settings.append(f"event {place} {int(event.action)}")
    with _Run(program) as run:
        ended = run.go(settings)
        _, forks, executions = run.status()
        rows = run.rows()
        reached = rows[rows[:, 0] == _EVENTS]
        numbers = [int(number) if number < len(events) else -1 for number in reached[:, 1]]
        fixed = rows[rows[:, 0] == _FIXED][:, [2, *range(5, _ROW)]]
        return Translated(
            rows={number: row[[2, *range(5, _ROW)]] for number, row in zip(numbers, reached, strict=True)},
            order=tuple(number for number in numbers if number >= 0),
            executions=tuple(executions),
            fixed=fixed,
            vectors=read_bbv(run.prefix.with_suffix(".bb")) if whole else None,
            marked=read_bbv(run.prefix.with_suffix(".marked.bb")) if whole and events else None,
            forks=forks,
            ended=ended,
        )


def _site_setting(site: Site) -> str:
    if not site.path.startswith("/"):
        raise InputError(
            f"an interval begins in code at {site.pc:#x} that no file holds "
            "(the program compiles at run time), so no other run will find it. "
            "Use --translator valgrind, whose intervals are numbered only."
        )
    offset, target = file_offset(site.path, site.pc), 0
    size = _BYTES_OF.get(site.kind)
    if size is not None:
        displacement = int.from_bytes(read_bytes(site.path, site.pc + size - 4, 4), "little", signed=True)
        target = offset + size + displacement
    # the loader names a library as it was asked for; the mapping, that the plugin sees, by its file
    return f"site {site.kind.number} {offset:x} {target:x} {os.path.realpath(site.path)}"


class _Run:
    """One run under the plugin, in a folder of its own: settings in, files out."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def __enter__(self) -> _Run:
        self._folder = tempfile.TemporaryDirectory(prefix="conccl-qemu-")
        self.prefix = Path(self._folder.name) / "run"
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def go(self, settings: Sequence[str]) -> Ended:
        config = self.prefix.with_suffix(".config")
        config.write_text("\n".join([f"out {self.prefix}", *settings, ""]), encoding="utf-8")
        plugin = f"{built('plugin')},config={config}"
        command = [find_qemu(), "-cpu", "max", "-plugin", plugin, *self._program.argv]
        with Child(command, program=self._program, environment=self._program.environment()) as child:
            return child.wait()

    def status(self) -> tuple[int, int, list[int]]:
        """Instructions, forks, and executions of each site; more than one thread is an error."""
        name = self._program.executable.name
        try:
            words = self.prefix.with_suffix(".status").read_text(encoding="utf-8").split()
        except FileNotFoundError:
            raise ExecutionError(
                f"{name} ended without a word from the plugin: it replaced itself by another program (exec). "
                "Sample that command instead."
            ) from None
        pairs = list(zip(words[::2], map(int, words[1::2]), strict=True))
        single = dict(pairs)
        require_one_thread(self._program, more=single["threads"] - 1)
        return (
            single["instructions"],
            single["forks"],
            [value for key, value in pairs if key == "site"],
        )

    def rows(self) -> NDArray[np.int64]:
        return np.fromfile(self.prefix.with_suffix(".rows"), np.int64).reshape(-1, _ROW)

    def blocks(self) -> dict[int, Site]:
        """Number of a block -> the instruction that it begins with."""
        sites = {}
        for line in self.prefix.with_suffix(".blocks").read_text(encoding="utf-8").splitlines():
            number, pc, offset, _, path = line.split(" ", 4)
            known = path != "-"
            address = link_address(path, int(offset, 16)) if known else int(pc, 16)
            sites[int(number)] = Site(path=path, pc=address, kind=SiteKind.BLOCK)
        return sites
