"""How ranks find each other: through a store of the caller (torch.distributed's) to a segment that all have.

::

    everyone      hello/R   who I am
    rank 0        offer     the segment, as the process that made it can be asked for it
    the others    reply/R   whether it could be opened
    rank 0        verdict   use it; or the name of a file in /dev/shm to use instead; or why there is none

Then all is in the segment, and the keys are deleted. A rank that dies meanwhile is missed by its process id,
one that never says hello when the time is up.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from conccl.core.errors import ConcclError, ExecutionError, InputError, PeerLostError, WaitTimeoutError
from conccl.transports import segment as segments
from conccl.transports.board import Board
from conccl.transports.geometry import Geometry, geometry_for
from conccl.transports.peer_memory import Probe, why_not
from conccl.transports.rules import Reads
from conccl.transports.segment import Segment
from conccl.transports.waiting import LOOK_EVERY_S

_POLLS_S = (0.0002, 0.02)
_CAN, _WILL_NOT, _CANNOT = 1, 2, 3
"""Verdicts on reading peers' memory; what cannot be adds the number of its error."""


class Store(Protocol):
    """What is asked of the caller's store; torch.distributed's stores have it."""

    def set(self, key: str, value: str, /) -> None:
        """Give a key a value."""

    def get(self, key: str, /) -> bytes:
        """The value of a key that is there."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all keys are there."""

    def delete_key(self, key: str, /) -> bool:
        """Take a key away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A rank's membership of a group."""

    segment: Segment
    geometry: Geometry
    fallback: str = ""
    """What could not be had in the first way, and why; empty: nothing."""
    reads_peers: bool = False
    """Whether every rank can read every other's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hello:
    pid: int
    host: str
    boot: str
    user: int


def join(
    store: Store,
    /,
    *,
    rank: int,
    count: int,
    timeout_s: float,
    slot_nbytes: int | None = None,
    named: bool = False,
    reads: Reads = Reads.PEERS,
) -> Joined:
    """Make or open the group's segment, with everyone else; returns when all ranks have it.

    ``named`` goes by way of /dev/shm at once. Peers' memory is read only where every rank wants and can.
    """
    if not 0 <= rank < count:
        raise InputError(f"rank {rank} of {count}: ranks are counted from 0.")
    meeting = _Meeting(store, rank=rank, count=count, timeout_s=timeout_s)
    meeting.put(f"hello/{rank}", asdict(_me()))
    try:
        joined = meeting.lead(slot_nbytes, named) if rank == 0 else meeting.follow()
        joined = meeting.gather(joined, reads)
    except ConcclError as error:
        meeting.fail(str(error))
        raise
    return joined


def _me() -> _Hello:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return _Hello(pid=os.getpid(), host=socket.gethostname(), boot=boot, user=os.geteuid())


class _Meeting:
    """One rank's side of a rendezvous."""

    def __init__(self, store: Store, *, rank: int, count: int, timeout_s: float) -> None:
        self._store = store
        self._rank = rank
        self._count = count
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._pids: dict[int, int] = {}

    def put(self, key: str, value: Any) -> None:
        self._store.set(key, json.dumps(value))

    def fail(self, reason: str) -> None:
        """Let the others know, where they still look."""
        try:
            if not self._store.check(["failed"]):
                self.put("failed", f"{reason} (told by rank {self._rank})")
        except Exception:  # the store may be gone with its host; the first error is what matters
            return

    def lead(self, slot_nbytes: int | None, named: bool) -> Joined:
        """Rank 0: see that all can share memory, make it, and let everyone open it."""
        hellos = {rank: _Hello(**self._get(f"hello/{rank}", rank)) for rank in range(self._count)}
        self._pids = {rank: one.pid for rank, one in hellos.items()}
        _check_same_host(hellos)
        refusals = {0: "asked for"} if named else {}
        if not named:
            geometry = self._geometry(slot_nbytes, in_shm=False)
            made = segments.anonymous(geometry.nbytes)
            path = f"/proc/{os.getpid()}/fd/{made.descriptor}"
            self.put("offer", {"path": path, "geometry": asdict(geometry)})
            replies = {rank: self._get(f"reply/{rank}", rank) for rank in range(1, self._count)}
            refusals = {rank: reply for rank, reply in replies.items() if reply}
            if not refusals:
                self.put("verdict", {})
                return self._ready(Joined(segment=made, geometry=geometry))
            made.close()
        else:
            self.put("offer", {})
        geometry = self._geometry(slot_nbytes, in_shm=True)
        name = segments.new_name()
        self.put("verdict", {"name": name, "geometry": asdict(geometry), "why": _why(refusals)})
        made = segments.named(name, geometry.nbytes)
        self.put("made", True)
        return self._ready(Joined(segment=made, geometry=geometry, fallback=_why(refusals)))

    def follow(self) -> Joined:
        """Other ranks: open what rank 0 offers."""
        self._pids[0] = _Hello(**self._get("hello/0", 0)).pid
        offer = self._get("offer", 0)
        opened: Segment | None = None
        if offer:
            geometry = Geometry(**offer["geometry"])
            try:
                opened = segments.opened(offer["path"], geometry.nbytes)
                self.put(f"reply/{self._rank}", "")
            except (OSError, InputError) as error:
                self.put(f"reply/{self._rank}", str(error))
        verdict = self._get("verdict", 0)
        if opened is not None and not verdict:
            return self._ready(Joined(segment=opened, geometry=geometry))
        if opened is not None:
            opened.close()
        geometry = Geometry(**verdict["geometry"])
        path = segments.SHM / verdict["name"]
        try:
            self._get("made", 0)
            opened = segments.opened(path, geometry.nbytes)
        except (ConcclError, OSError):
            path.unlink(missing_ok=True)  # whoever made it may be dead
            raise
        return self._ready(Joined(segment=opened, geometry=geometry, fallback=verdict["why"]))

    def gather(self, joined: Joined, reads: Reads) -> Joined:
        """Wait until all have the segment; then nothing needs its name or the store's keys any more."""
        board = Board(joined.segment, joined.geometry, self._rank)
        try:
            board.introduce(os.getpid())
            for rank in range(self._count):
                self._until(lambda rank=rank: board.is_there(rank), rank, "has not joined the group")
            joined = self._tried(joined, board, reads)
        finally:
            board.close()
            joined.segment.unlink()
        if self._rank == 0:
            keys = ["offer", "verdict", "made"]
            keys += [f"{word}/{rank}" for rank in range(self._count) for word in ("hello", "reply")]
            for key in keys:
                try:
                    self._store.delete_key(key)
                except Exception:  # some stores cannot delete; their keys stay
                    break
        return joined

    def _tried(self, joined: Joined, board: Board, reads: Reads) -> Joined:
        """Whether all ranks can read each other's memory: each tries, and hears of the others."""
        probe = Probe()  # lives until all have tried
        board.show(probe.address, probe.value)
        others = [rank for rank in range(self._count) if rank != self._rank]
        verdict = _CAN if reads is Reads.PEERS else _WILL_NOT
        for rank in others:
            self._until(lambda rank=rank: board.shown(rank), rank, "has not joined the group")
            if verdict == _CAN and (code := why_not(board.pid(rank), *(board.shown(rank) or (0, 0)))):
                verdict = _CANNOT + code
        board.judge(verdict)
        for rank in others:
            self._until(lambda rank=rank: board.verdict(rank), rank, "has not joined the group")
        refusals = {rank: board.verdict(rank) for rank in range(self._count) if board.verdict(rank) != _CAN}
        able = {rank: code for rank, code in refusals.items() if code >= _CANNOT}
        if not able:
            return replace(joined, reads_peers=not refusals and self._count > 1)
        rank, code = next(iter(able.items()))
        cause = os.strerror(code - _CANNOT)
        why = f"large messages pass through staging: rank {rank} cannot read peers' memory: {cause}"
        return replace(joined, fallback="; ".join(one for one in (joined.fallback, why) if one))

    def _ready(self, joined: Joined) -> Joined:
        """Lock this rank's mark and get memory for what it writes."""
        joined.segment.lock(self._rank)
        geometry = joined.geometry
        if self._rank == 0:
            joined.segment.reserve(0, geometry.staging)
        joined.segment.reserve(geometry.staging_of(self._rank), geometry.staging_nbytes)
        return joined

    def _geometry(self, slot_nbytes: int | None, *, in_shm: bool) -> Geometry:
        return geometry_for(
            count=self._count,
            free_nbytes=segments.free_nbytes(in_shm=in_shm),
            where="/dev/shm" if in_shm else "this machine",
            slot_nbytes=slot_nbytes,
        )

    def _get(self, key: str, rank: int) -> Any:
        self._until(lambda: self._store.check([key]), rank, f"has not said {key.split('/', 1)[0]!r}")
        return json.loads(self._store.get(key))

    def _until(self, ready: Any, rank: int, what: str) -> None:
        poll, longest = _POLLS_S
        looked = time.monotonic()
        while not ready():
            now = time.monotonic()
            if now - looked >= LOOK_EVERY_S:
                looked = now
                self._look(rank, what)
            if now >= self._deadline:
                raise WaitTimeoutError(
                    f"rank {rank} {what} after {self._timeout_s:g} s; rank {self._rank} of {self._count}"
                    " waited."
                )
            time.sleep(poll)
            poll = min(2 * poll, longest)

    def _look(self, rank: int, what: str) -> None:
        if self._store.check(["failed"]):
            raise ExecutionError(json.loads(self._store.get("failed")))
        if rank not in self._pids and self._store.check([f"hello/{rank}"]):
            self._pids[rank] = _Hello(**json.loads(self._store.get(f"hello/{rank}"))).pid
        pid = self._pids.get(rank)
        if pid is not None and not _runs(pid):
            raise PeerLostError(f"rank {rank} (process {pid}) has died; it {what}.")


def _check_same_host(hellos: dict[int, _Hello]) -> None:
    first = hellos[0]
    for rank, one in hellos.items():
        if one.boot != first.boot:
            raise InputError(
                f"rank 0 runs on {first.host} and rank {rank} on {one.host}; the host transport joins"
                " processes of one host. Use gloo or nccl between hosts."
            )
        if one.user != first.user:
            raise InputError(
                f"rank 0 runs as user {first.user} and rank {rank} as user {one.user}; memory is shared"
                " within one user. Start all ranks as one user."
            )


def _why(refusals: dict[int, str]) -> str:
    rank, reason = next(iter(refusals.items()))
    return f"a file in /dev/shm instead of anonymous memory: rank {rank}: {reason}"


def _runs(pid: int) -> bool:
    """Whether a process that this one can see runs; one that it cannot see counts as running."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return not Path(f"/proc/{os.getpid()}").exists()
    except OSError:
        return True
    return state not in ("Z", "X")
