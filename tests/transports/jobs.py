"""What ranks do in the tests of the transports: functions that processes can be started with."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from conccl.collectives.layout import layout_of
from conccl.collectives.reference import expected
from conccl.core.ops import Collective, CollectiveKind, DType, ReduceOp
from conccl.transports.calls import Call
from conccl.transports.host import HostTransport
from conccl.transports.rendezvous import Joined, join


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
        one.segment, one.geometry, rank, timeout_s=timeout_s, name=lambda: "tests", pace=pace, fallback=one.fallback
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
    blocks = 1 if kind in ("all_reduce", "broadcast", "reduce", "barrier") else count**2 if kind == "all_to_all" else count
    return Call(
        kind=kind,
        sizes=(nbytes,) * blocks,
        dtype=dtype,
        root=root,
        reduction=reduction if "reduce" in kind else "",
        algorithm=algorithm,
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


def where(folder) -> dict:
    """What this process holds: descriptors, mappings, files in /dev/shm."""
    del folder
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mappings": sum("memfd:conccl" in line for line in open("/proc/self/maps")),
        "shm": [one for one in os.listdir("/dev/shm") if one.startswith("conccl-")],
    }


def told(value) -> str:
    return json.dumps(value)
