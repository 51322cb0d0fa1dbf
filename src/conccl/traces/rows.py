"""All GPU rows of a file with what is known of each: activity, rule, launch, variant, collective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from conccl.core.timeline import Mask, Times
from conccl.traces.classify import HostCopies
from conccl.traces.gpu_rows import GpuRows
from conccl.traces.host_rows import HostRows
from conccl.traces.linking import Links, link
from conccl.traces.rules import Rules
from conccl.traces.variants import Variants, variants_of
from conccl.traces.weighing import Case, Verdict, weigh


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Parallel arrays, one entry a row with usable times (`conccl.traces.trace` says what they mean)."""

    start_ns: Times
    end_ns: Times
    name: np.ndarray[tuple[int], np.dtype[np.int32]]
    lane: np.ndarray[tuple[int], np.dtype[np.int32]]
    streams: tuple[tuple[str, str], ...]
    """(device, stream) of each lane."""
    correlation: Times
    nbytes: Times
    in_graph: Mask
    links: Links
    verdict: Verdict
    variants: Variants
    bad_time_rows: int
    negative_rows: int
    nanosecond_rows: int


def linked_rows(
    gpu: GpuRows,
    host: HostRows,
    /,
    *,
    groups: Mapping[str, tuple[int, ...]],
    rules: Rules,
    host_copies: HostCopies,
) -> Rows:
    """The rows with usable times, in the order of the file."""
    good = gpu.columns.array("good", dtype=np.bool_)
    durations = gpu.columns.array("duration_ns", dtype=np.int64)
    keep = np.flatnonzero(good & (durations >= 0))
    start, correlation, nbytes = (
        gpu.columns.array(column, dtype=np.int64)[keep] for column in ("start_ns", "correlation", "nbytes")
    )
    launch_kind, metadata = (
        gpu.columns.array(column, dtype=np.int32)[keep] for column in ("launch", "metadata")
    )
    name = gpu.name_numbers()[keep]
    streams, lane = gpu.streams()
    in_graph, between_devices, nanoseconds = (
        gpu.columns.array(column, dtype=np.bool_)[keep]
        for column in ("in_graph", "between_devices", "nanoseconds")
    )
    links = link(correlation, host)
    thousandfold = links.thousandfold(start)
    divisor = np.where(thousandfold, 1000, 1)
    start, duration = start // divisor, durations[keep] // divisor
    case = Case(
        gpu=gpu, host=host, links=links, name=name, metadata=metadata, between_devices=between_devices
    )
    return Rows(
        start_ns=start,
        end_ns=start + duration,
        name=name,
        lane=lane[keep],
        streams=tuple(streams),
        correlation=correlation,
        nbytes=nbytes,
        in_graph=in_graph | links.from_graph,
        links=links,
        verdict=weigh(case, rules=rules, host_copies=host_copies, groups=groups),
        variants=variants_of(launch_kind, gpu=gpu, host=host, links=links),
        bad_time_rows=int((~good).sum()),
        negative_rows=int((good & (durations < 0)).sum()),
        nanosecond_rows=int((nanoseconds | thousandfold).sum()),
    )
