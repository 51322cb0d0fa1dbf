"""Feeds the reader what atheris thinks up: `python tests/fuzz/fuzz_reader.py CORPUS -max_total_time=600`.

The first byte of an input says how the rest comes: as it is, gzipped, in an archive, or in small blocks,
which must give the rows that one large block gives. Anything but `TraceError` and traces that hold
together is a crash, which libFuzzer reports and keeps.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import atheris

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "src")]

with atheris.instrument_imports(include=["conccl.traces"]):
    from conccl.traces.assembly import assemble
    from conccl.traces.classify import HostCopies
    from conccl.traces.kineto import collect
    from conccl.traces.reading import read_traces
    from conccl.traces.rules import built_in_rules
    from conccl.traces.sources import TraceFile
    from conccl.traces.trace import RankSource
    from conccl.traces.unpacking import Plain, unpack

from conccl.core.errors import TraceError  # noqa: E402 (instrumentation comes first)
from odd_traces import check  # noqa: E402

FILE = TraceFile(path="fuzzed", rank=0, rank_source=RankSource.ORDER)
FOLDER = Path(tempfile.mkdtemp())


def test_one_input(data: bytes) -> None:
    how, content = data[:1], data[1:]
    if how in (b"A", b"B"):  # an archive with the content as member, or as the archive itself
        path = FOLDER / "t.tar"
        path.write_bytes(archive_of(content) if how == b"A" else content)
        read = read_traces([path])
        check(read.traces, read.problems)
        return
    if how == b"K":
        compare_blocks(content)
        return
    packed = gzip.compress(content, 0) if how == b"Z" else content
    source = Plain(io.BytesIO(packed))
    try:
        found = collect(unpack(source, path="fuzzed"), file=FILE)
        traces = assemble(found, rules=built_in_rules(), host_copies=HostCopies.COMMUNICATION)
    except TraceError:
        return
    check(traces)


def compare_blocks(content: bytes) -> None:
    """Events of good JSON are the same whether they are sifted or, in one block, decoded."""
    try:
        json.loads(content, object_pairs_hook=without_doubles)
    except (ValueError, RecursionError):
        return
    rows = []
    for block in (256, 1 << 20):
        try:
            found = collect(Plain(io.BytesIO(content)), file=FILE, block=block)
        except TraceError:
            rows.append(())
            continue
        kinds = found.gpu.columns.array("kind", dtype="i4").tolist()
        starts = found.gpu.columns.array("start_ns", dtype="i8").tolist()
        labels = found.host.labels.array("start_ns", dtype="i8").tolist()
        rows.append((sorted(zip(kinds, starts, strict=True)), sorted(labels)))
    assert rows[0] == rows[1], rows


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of a key that stands twice nothing is promised."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def archive_of(content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        info = tarfile.TarInfo("rank-1.json")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
