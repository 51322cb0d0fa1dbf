"""Kineto traces made for tests: events as dicts, files as people have them."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conccl.traces.classify import HostCopies
from conccl.traces.kineto import read_trace
from conccl.traces.rules import Rules
from conccl.traces.sources import TraceFile
from conccl.traces.trace import RankSource, Trace

Event = dict[str, Any]


def kernel(
    name: str, ts: Any, dur: Any, /, *, stream: int = 7, correlation: int = -1, device: int = 0, **args: Any
) -> Event:
    """A GPU kernel; times as Kineto gives them, in us."""
    return gpu_row("kernel", name, ts, dur, stream=stream, correlation=correlation, device=device, **args)


def gpu_row(
    cat: str,
    name: str,
    ts: Any,
    dur: Any,
    /,
    *,
    stream: int = 7,
    correlation: int = -1,
    device: int = 0,
    **args: Any,
) -> Event:
    known = {"device": device, "stream": stream, "correlation": correlation}
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": device,
        "tid": stream,
        "ts": ts,
        "dur": dur,
        "args": {**known, **args},
    }


def host_row(cat: str, name: str, ts: Any, dur: Any, /, *, tid: Any = 100, **args: Any) -> Event:
    """A runtime call, label or operator of the host."""
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 100,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": args,
    }


def launch(ts: Any, correlation: int, /, *, name: str = "cudaLaunchKernel", tid: Any = 100) -> Event:
    return host_row("cuda_runtime", name, ts, 5, tid=tid, correlation=correlation)


def document(events: Sequence[Event], /, **top: Any) -> dict[str, Any]:
    return {"schemaVersion": 1, **top, "traceEvents": list(events)}


def text_of(events: Sequence[Event], /, **top: Any) -> bytes:
    return json.dumps(document(events, **top), indent=1).encode()


def write(path: Path, content: bytes | Sequence[Event], /) -> Path:
    """The file, gzipped where its name says so."""
    text = content if isinstance(content, bytes) else text_of(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return path


def write_tar(path: Path, members: Mapping[str, bytes | tarfile.TarInfo], /) -> Path:
    """A tar archive (gzipped where its name says so); a TarInfo stands for a member without content."""
    packed = path.suffix in (".gz", ".tgz")
    with tarfile.open(path, "w:gz" if packed else "w") as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                content.name = name
                archive.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return path


def file_of(path: Path, /, *, rank: int = 0) -> TraceFile:
    return TraceFile(path=str(path), rank=rank, rank_source=RankSource.GIVEN)


def read_all(
    path: Path,
    content: bytes | Sequence[Event],
    /,
    *,
    rules: Rules | None = None,
    host_copies: HostCopies = HostCopies.COPY,
) -> tuple[Trace, ...]:
    """The traces of a file with this content at this path."""
    return read_trace(file_of(write(path, content)), rules=rules, host_copies=host_copies)


def read_one(
    path: Path,
    content: bytes | Sequence[Event],
    /,
    *,
    rules: Rules | None = None,
    host_copies: HostCopies = HostCopies.COPY,
) -> Trace:
    (trace,) = read_all(path, content, rules=rules, host_copies=host_copies)
    return trace
