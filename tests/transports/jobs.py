"""What ranks do in the tests of the transports: functions that processes can be started with."""

from __future__ import annotations

import ctypes
import errno
import gc
import mmap
import os
import random
import re
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from conccl.collectives.layout import Place, layout_of
from conccl.collectives.reference import expected
from conccl.core.errors import ConcclError
from conccl.core.ops import Collective, CollectiveKind, DType, ReduceOp
from conccl.transports import rendezvous
from conccl.transports import segment as segments
from conccl.transports.calls import Call
from conccl.transports.host import HostTransport, algorithm_names
from conccl.transports.rendezvous import Joined, join
from conccl.transports.rules import Reads
from conccl.transports.tiles import COPY


class FolderStore:
    """A store of files: what torch.distributed's stores do, without PyTorch."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def set(self, key, value, /):
        path = self.folder / key.replace("/", "_")
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        part.write_text(value)
        part.replace(path)

    def get(self, key, /):
        return (self.folder / key.replace("/", "_")).read_bytes()

    def check(self, keys, /):
        return all((self.folder / key.replace("/", "_")).exists() for key in keys)

    def delete_key(self, key, /):
        (self.folder / key.replace("/", "_")).unlink(missing_ok=True)
        return True


def joined(rank, count, folder, *, timeout_s=20.0, **more) -> Joined:
    return join(FolderStore(folder), rank=rank, count=count, timeout_s=timeout_s, **more)


def transport(rank, count, folder, *, timeout_s=20.0, pace=None, **more) -> HostTransport:
    one = joined(rank, count, folder, timeout_s=timeout_s, **more)
    return HostTransport(
        one.segment,
        one.geometry,
        rank,
        timeout_s=timeout_s,
        name=lambda: "tests",
        pace=pace,
        fallback=one.fallback,
        reads_peers=one.reads_peers,
    )


def issue(host: HostTransport, call: Call, given: np.ndarray) -> np.ndarray:
    """Carry out a call with equal blocks on bytes; the output's bytes."""
    n, kind = host.count, call.kind
    prepared = host.prepare(call)
    sizes = call.sizes
    whole = len(sizes) == 1 and kind in ("all_reduce", "broadcast", "reduce")
    given = np.ascontiguousarray(given).view(np.uint8)
    if kind is CollectiveKind.BARRIER:
        host.run(prepared, inputs=[], outputs=[])
        return given
    if whole:
        out = given.copy() if kind != "broadcast" or host.rank == call.root else np.zeros(sizes[0], np.uint8)
        host.run(prepared, inputs=[out.ctypes.data], outputs=[out.ctypes.data])
        return out
    block = sizes[0]
    ins = 1 if kind in ("all_gather", "gather") else n
    outs = 1 if kind in ("reduce_scatter", "scatter") else n
    out = np.zeros(outs * block, np.uint8)
    host.run(
        prepared,
        inputs=[given.ctypes.data + one * block for one in range(ins)],
        outputs=[out.ctypes.data + one * block for one in range(outs)],
    )
    return out


def call_of(kind, count, elements, *, root=0, algorithm=None, dtype="float32", reduction="sum") -> Call:
    """A call among ``count`` ranks: ``elements`` in each block, or in the whole message."""
    kind = CollectiveKind(kind)
    nbytes = elements * (4 if dtype == "float32" else 1)
    blocks = (
        1
        if kind in ("all_reduce", "broadcast", "reduce", "barrier")
        else count**2
        if kind == "all_to_all"
        else count
    )
    return Call(
        kind=kind,
        sizes=(nbytes,) * blocks,
        dtype=dtype,
        root=root,
        reduction=reduction if "reduce" in kind else "",
        algorithm=algorithm,
        place=Place.IN_PLACE if kind in ("all_reduce", "broadcast", "reduce") else Place.OUT_OF_PLACE,
    )


def inputs_for(kind, count, elements, seed) -> list[np.ndarray]:
    """Every rank's input: small whole numbers, whose sums are exact."""
    source = np.random.default_rng(seed)
    each = elements * (1 if kind in ("all_gather", "gather", "all_reduce", "broadcast", "reduce") else count)
    return [source.integers(-99, 99, each).astype(np.float32) for _ in range(count)]


def wanted(kind, count, elements, inputs, *, root=0) -> list[np.ndarray]:
    """Every rank's output, from the definition of the collective."""
    kind = CollectiveKind(kind)
    whole = kind in ("all_reduce", "broadcast", "reduce")
    layout = layout_of(
        Collective(
            kind=kind,
            nbytes=elements * 4 * (1 if whole else count),
            ranks=count,
            dtype=DType.FP32,
            reduce_op=ReduceOp.SUM,
        ),
        root=root,
    )
    return expected(layout, [one.view(np.uint8) for one in inputs])


def every_kind(rank, count, folder, sizes, algorithms) -> int:
    """Each collective at each size; how many were right."""
    host = transport(rank, count, folder)
    right = 0
    for seed, (kind, elements) in enumerate(sizes):
        for algorithm in algorithms or [None]:
            root = seed % count
            inputs = inputs_for(kind, count, elements, seed)
            got = issue(host, call_of(kind, count, elements, root=root, algorithm=algorithm), inputs[rank])
            want = wanted(kind, count, elements, inputs, root=root)[rank]
            if kind in ("reduce", "gather") and rank != root:
                continue
            np.testing.assert_array_equal(got, want, err_msg=f"{kind} {elements} {algorithm}")
            right += 1
    host.close()
    return right


def names(folder: str) -> list[str]:
    return [one.name for one in Path(folder).iterdir()]


def segments_in_shm() -> list[str]:
    """Files in /dev/shm that are segments of ours."""
    return [one for one in names("/dev/shm") if re.fullmatch(r"conccl-[0-9a-f]{32}", one)]


def where(folder) -> dict:
    """What this process holds: descriptors, mappings, files in /dev/shm."""
    del folder
    return {
        "descriptors": len(names("/proc/self/fd")),
        "mappings": Path("/proc/self/maps").read_text().count("memfd:conccl"),
        "shm": segments_in_shm(),
        "resident": int(Path("/proc/self/statm").read_text().split()[1]) * 4096,
    }


def die(folder):
    """Be killed, and leave word of when."""
    Path(folder, "died").write_text(str(time.monotonic()))
    os.kill(os.getpid(), signal.SIGKILL)


def since_death(folder) -> float:
    """Seconds; the clock is the same for all processes of a host."""
    return time.monotonic() - float(Path(folder, "died").read_text())


class DyingStore(FolderStore):
    """A store whose user is killed when it first touches a key."""

    def __init__(self, folder, when: str) -> None:
        super().__init__(folder)
        self.when = when

    def _die(self, verb, key):
        if f"{verb} {key}".startswith(self.when):
            die(self.folder)

    def set(self, key, value, /):
        self._die("before set", key)
        super().set(key, value)
        self._die("after set", key)

    def get(self, key, /):
        self._die("get", key)
        return super().get(key)


def killed_while_joining(rank, count, folder, victim, when, named):
    """The victim dies at a point of the rendezvous; how long others need to say so."""
    store = DyingStore(folder, when) if rank == victim else FolderStore(folder)
    if when == "joined":
        one = join(store, rank=rank, count=count, timeout_s=20, named=named)
        if rank == victim:
            die(folder)
        host = HostTransport(one.segment, one.geometry, rank, timeout_s=20, name=lambda: "tests")
        told, _ = _until_told(lambda: issue(host, call_of("barrier", count, 0), np.zeros(1)))
    else:
        told, _ = _until_told(lambda: join(store, rank=rank, count=count, timeout_s=20, named=named))
    return told, since_death(folder)


def killed_at_an_instruction(rank, count, folder, victim, kind, number, elements, algorithm):
    """The victim dies before its instruction of this number; how long others need to say so."""
    done = 0

    def pace(what):
        nonlocal done
        done += 1
        if rank == victim and done == number:
            die(folder)

    host = transport(rank, count, folder, pace=pace, slot_nbytes=16 * 1024)
    call = call_of(kind, count, elements, algorithm=algorithm)
    inputs = inputs_for(kind, count, elements, 0)

    def go_on():
        for _ in range(200):
            issue(host, call, inputs[rank])
            Path(folder, f"alive{rank}").touch()

    told, _ = _until_told(go_on)
    return told, since_death(folder)


def _until_told(run) -> tuple[str, float]:
    """What a run raises, and how long it took from when the victim can have died at the latest."""
    began = time.monotonic()
    try:
        run()
    except ConcclError as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - began
    return "nothing", time.monotonic() - began


def large_by_default(rank, count, folder):
    """What is chosen for a large all_to_all, and whether it is right."""
    return _large(transport(rank, count, folder), rank, count)


def peers_that_cannot_be_read(rank, count, folder):
    """Rank 1 may not read what others have."""
    if rank == 1:
        rendezvous.why_not = lambda *_: errno.EPERM
    host = transport(rank, count, folder)
    told, right = _large(host, rank, count)
    return host.fallbacks, told, right


def _large(host, rank, count):
    call = call_of("all_to_all", count, 300_000)
    inputs = inputs_for("all_to_all", count, 300_000, 0)
    choice = host.prepare(call).choice
    got = issue(host, call, inputs[rank])
    host.close()
    right = np.array_equal(got, wanted("all_to_all", count, 300_000, inputs)[rank])
    return f"{choice.algorithm} of {choice.reads} ({choice.reason})", right


def staging_wanted(rank, count, folder):
    host = transport(rank, count, folder, reads=Reads.STAGING if rank == 1 else Reads.PEERS)
    issue(host, call_of("barrier", count, 0), np.zeros(1))
    host.close()
    return host.fallbacks, host.reads_peers


def unmapped(rank, count, folder):
    """Rank 1 gives addresses of which nothing is mapped."""
    host = transport(rank, count, folder)
    call = call_of("all_gather", count, 1024, algorithm="direct")
    given, out = np.zeros(4096, np.uint8), np.zeros(8192, np.uint8)
    nowhere = mmap.mmap(-1, 8192)
    address = ctypes.addressof(ctypes.c_char.from_buffer(nowhere))
    gc.collect()
    nowhere.close()
    outputs = [out.ctypes.data, out.ctypes.data + 4096]
    prepared = host.prepare(call)
    if rank == 1:  # its own copy would not survive it
        prepared.lowered.code = tuple(code for code in prepared.lowered.code if code[0] != COPY)
    return _until_told(
        lambda: host.run(prepared, inputs=[address if rank == 1 else given.ctypes.data], outputs=outputs)
    )


def disagreeing(rank, count, folder, ours, theirs):
    """The last rank issues another call than the others; what each is told."""
    host = transport(rank, count, folder)
    host.waiting.timeout_s = 5
    issue(host, call_of("barrier", count, 0), np.zeros(1))
    kind, elements, more = theirs if rank == count - 1 else ours
    call = call_of(kind, count, elements, **more)
    given = np.zeros(elements * count, np.float32)

    def both():
        issue(host, call, given)
        issue(host, call_of("barrier", count, 0), np.zeros(1))

    return _until_told(both)


def late(rank, count, folder, how):
    """The last rank does not come; what the others are told."""
    host = transport(rank, count, folder)
    host.waiting.timeout_s = 0.6
    issue(host, call_of("all_reduce", count, 3), np.zeros(3, np.float32))
    if rank == count - 1:
        if how == "sleeps":
            time.sleep(1.5)
        elif how == "leaves":
            host.close()
            return "left", 0.0
        elif how == "exits":
            return "exited", 0.0
    return _until_told(lambda: issue(host, call_of("all_gather", count, 3), np.zeros(3, np.float32)))


def again_after_a_failure(rank, count, folder):
    """A group that was ended refuses calls; a new one works."""
    Path(folder, "1").mkdir(exist_ok=True)
    Path(folder, "2").mkdir(exist_ok=True)
    host = transport(rank, count, f"{folder}/1", timeout_s=5)
    if rank == 0:
        host.end("test")
    meet = partial(issue, host, call_of("barrier", count, 0), np.zeros(1))
    told = [_until_told(meet)[0] for _ in range(2)]
    host.close()
    host = transport(rank, count, f"{folder}/2")
    got = issue(host, call_of("all_reduce", count, 2), np.ones(2, np.float32)).view(np.float32)
    host.close()
    return told, got.tolist()


def random_calls(rank, count, folder, number, seed, slot_nbytes, delay_s):
    """Calls of every kind, size and algorithm in a row, each rank late at random before every instruction."""
    moods = random.Random(seed * 1000 + rank)

    def pace(what):
        if moods.random() < 0.05:
            time.sleep(moods.random() * delay_s)

    host = transport(rank, count, folder, pace=pace if delay_s else None, slot_nbytes=slot_nbytes)
    source = random.Random(seed)
    for step in range(number):
        kind = source.choice(MOVING)
        elements = source.choice([0, 1, source.randrange(2, 3000), source.randrange(2, 20_000)])
        root, algorithm = (
            source.randrange(count),
            source.choice([None, *algorithm_names(call_of(kind, count, 1))]),
        )
        inputs = inputs_for(kind, count, elements, seed + step)
        got = issue(host, call_of(kind, count, elements, root=root, algorithm=algorithm), inputs[rank])
        if kind == "barrier" or (kind in ("reduce", "gather") and rank != root):
            continue
        want = wanted(kind, count, elements, inputs, root=root)[rank]
        np.testing.assert_array_equal(got, want, err_msg=f"call {step}: {kind} {elements} {algorithm}")
    host.close()
    return number


MOVING = (
    "all_gather",
    "all_to_all",
    "reduce_scatter",
    "all_reduce",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "barrier",
)


def uneven(rank, count, folder):
    """all_to_all of blocks that all differ, in tiles."""
    host = transport(rank, count, folder, slot_nbytes=4096)
    matrix = [[(i * 977 + j * 1409) % 5000 * 4 for j in range(count)] for i in range(count)]
    call = Call(
        kind=CollectiveKind.ALL_TO_ALL, sizes=tuple(size for row in matrix for size in row), dtype="float32"
    )
    ins = [np.full(size, 16 * rank + j, np.uint8) for j, size in enumerate(matrix[rank])]
    outs = [np.zeros(matrix[j][rank], np.uint8) for j in range(count)]
    host.run(
        host.prepare(call),
        inputs=[one.ctypes.data for one in ins],
        outputs=[one.ctypes.data for one in outs],
    )
    host.close()
    return all((one == 16 * j + rank).all() for j, one in enumerate(outs))


def interrupted(rank, count, folder):
    """A rank is interrupted (Ctrl-C) in a call; what each is told."""

    def pace(what):
        if rank == 1 and what == "publish":
            raise KeyboardInterrupt

    host = transport(rank, count, folder, pace=pace)
    try:
        return _until_told(lambda: issue(host, call_of("all_gather", count, 8), np.zeros(8, np.float32)))
    except KeyboardInterrupt:
        return "KeyboardInterrupt", 0.0


def groups(rank, count, folder, number):
    """Groups made, used and left; what this process holds before and after."""
    held = []
    for one in range(number):
        Path(folder, str(one)).mkdir(exist_ok=True)
        host = transport(rank, count, f"{folder}/{one}")
        issue(host, call_of("all_reduce", count, 5), np.ones(5, np.float32))
        issue(host, call_of("barrier", count, 0), np.zeros(1))
        host.close()
        if one in (2, number - 1):
            held.append(where(folder))
    return held


def what_a_group_holds(rank, count, folder, named):
    one = joined(rank, count, folder, named=named)
    host = HostTransport(one.segment, one.geometry, rank, timeout_s=20, name=lambda: "tests")
    issue(host, call_of("barrier", count, 0), np.zeros(1))
    found = {
        "named": one.segment.name,
        "fallback": one.fallback,
        "locked": tuple(other for other in range(count) if other != rank and one.segment.is_locked(other)),
    }
    issue(host, call_of("barrier", count, 0), np.zeros(1))
    host.close()
    return found


def without_proc(rank, count, folder):
    """Rank 1 cannot open what rank 0 offers."""
    if rank == 1:
        opened = segments.opened

        def blind(path, nbytes, /):
            if str(path).startswith("/proc"):
                raise PermissionError(13, "Permission denied")
            return opened(path, nbytes)

        segments.opened = blind
    host = transport(rank, count, folder)
    issue(host, call_of("all_reduce", count, 3), np.zeros(3, np.float32))
    host.close()
    return host.fallbacks[0]


def of_another(rank, count, folder, what):
    """Rank 1 says that it is of another host or user."""
    if rank == 1:
        me = rendezvous._me
        other = {"boot": "another"} if what == "boot" else {"user": 12345}
        rendezvous._me = lambda: replace(me(), **other)
    return _until_told(lambda: transport(rank, count, folder))[0]


def large(rank, count, folder, kind, nbytes):
    """A message of bytes, checked in pieces: memory is short."""
    host = transport(rank, count, folder, timeout_s=600)
    block = nbytes // 64 * 64 // count
    whole = kind in ("all_reduce", "broadcast")
    blocks = 1 if whole else count**2 if kind == "all_to_all" else count
    call = Call(
        kind=CollectiveKind(kind),
        sizes=(nbytes if whole else block,) * blocks,
        dtype="uint8",
        reduction="max" if "reduce" in kind else "",
    )
    size = nbytes if whole else block * (1 if kind == "all_gather" else count)
    given = np.full(size, rank + 1, np.uint8)
    given[-1] = 10 + rank
    out = given if whole else np.zeros(block * (1 if kind == "reduce_scatter" else count), np.uint8)
    host.run(
        host.prepare(call),
        inputs=[
            given.ctypes.data + one * block for one in range(1 if whole or kind == "all_gather" else count)
        ],
        outputs=[
            out.ctypes.data + one * block for one in range(1 if whole or kind == "reduce_scatter" else count)
        ],
    )
    host.close()
    if kind == "broadcast":
        return bool((out[:-1] == 1).all() and out[-1] == 10)
    if kind == "all_reduce":
        return bool((out[:-1] == count).all() and out[-1] == 9 + count)
    if kind == "reduce_scatter":
        last = 9 + count if rank == count - 1 else count
        return bool((out[:-1] == count).all() and out[-1] == last)
    right = True
    for one in range(count):
        piece = out[one * block : (one + 1) * block]
        ends = kind == "all_gather" or rank == count - 1
        right &= bool((piece[:-1] == one + 1).all() and piece[-1] == (10 + one if ends else one + 1))
    return right
