"""Weighs what is known of a row beside its name: metadata, labels around its launch, devices of a copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.timeline import Activity, Ids
from conccl.traces.classify import UNKNOWN, HostCopies, classify
from conccl.traces.columns import Table
from conccl.traces.evidence import call_of_label, call_of_metadata, call_of_name
from conccl.traces.gpu_rows import GpuRows
from conccl.traces.host_rows import HostRows
from conccl.traces.linking import Links, around
from conccl.traces.rules import RowKind, Rules
from conccl.traces.trace import CollectiveCall

EVIDENCE = ("copy between devices", "collective metadata", "communication label")
"""What counts where the table of rules does not decide; behind the rules' names in ``Trace.rules``.

A copy whose arguments name two devices; a kernel with "Collective name" that no rule calls communication; a
kernel that no rule knows, launched inside a label like ``nccl:all_reduce``.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Verdict:
    """For each row what it is, by which rule or evidence, and the collective's call."""

    activity: npt.NDArray[np.int8]
    rule: npt.NDArray[np.int16]
    collective: Ids
    """Index into ``calls``; -1: none."""
    calls: tuple[CollectiveCall, ...]
    rules: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """What is to be weighed: parallel arrays, one entry a row."""

    gpu: GpuRows
    host: HostRows
    links: Links
    name: Ids
    metadata: Ids
    between_devices: npt.NDArray[np.bool_]


def weigh(
    case: Case, /, *, rules: Rules, host_copies: HostCopies, groups: Mapping[str, tuple[int, ...]]
) -> Verdict:
    """Names first, then the evidence, then the calls of what communicates."""
    table = case.gpu.all_names
    kinds = [kind for _, kind in table]
    classes = classify([text for text, _ in table], kinds, rules=rules, host_copies=host_copies)
    activity, rule = classes.activity[case.name], classes.rule[case.name]
    is_kernel = np.array([kind is RowKind.KERNEL for kind in kinds], dtype=np.bool_)[case.name]
    is_copy = np.array([kind is RowKind.MEMCPY for kind in kinds], dtype=np.bool_)[case.name]
    host = case.host.labels
    details = host.array("details", dtype=np.int32)
    talking = (details >= 0) & ~host.array("on_gpu", dtype=np.bool_)
    label = around(case.links, host, talking, threads=case.host.thread_numbers(host))
    silent = ~np.isin(activity, (Activity.COMMUNICATION, Activity.FUSED))
    found = (
        is_copy & silent & case.between_devices,
        is_kernel & silent & (case.metadata >= 0),
        is_kernel & (rule == UNKNOWN) & (case.metadata < 0) & (label >= 0),
    )
    for number, rows in enumerate(found):
        activity[rows] = Activity.COMMUNICATION
        rule[rows] = len(rules.rules) + number
    talks = np.isin(activity, (Activity.COMMUNICATION, Activity.FUSED))
    calls = Table()
    collective = np.full(len(activity), -1, dtype=np.int32)
    collective[talks] = _calls(case, label, np.flatnonzero(talks), groups, calls)
    return Verdict(
        activity=activity,
        rule=rule,
        collective=collective,
        calls=tuple(calls),
        rules=(*rules.ids, *EVIDENCE),
    )


def _calls(
    case: Case, label: Ids, rows: npt.NDArray[np.intp], groups: Mapping[str, tuple[int, ...]], calls: Table
) -> Ids:
    """The number of each row's call; what rows have in common is read once."""
    labels = case.host.labels
    around_it = [
        np.append(labels.array(column, dtype=np.int32), -1)[label[rows]] for column in ("name", "details")
    ]  # the last entry stands for no label: its index is -1
    names, metadata = case.gpu.all_names, list(case.gpu.metadata)
    label_names, details = list(case.host.names), list(case.host.details)
    keys = np.stack([case.name[rows], case.metadata[rows], *around_it], axis=1)
    unique, inverse = np.unique(keys, axis=0, return_inverse=True)
    numbers: list[int] = []
    call: CollectiveCall | None
    for name, described, label_name, detail in unique.tolist():
        kernel = names[name][0]
        if described >= 0:
            call = call_of_metadata(metadata[described], groups=groups, kernel=kernel)
        elif detail >= 0:
            call = call_of_label(label_names[label_name], details[detail], groups=groups, kernel=kernel)
        else:
            call = call_of_name(kernel)
        numbers.append(-1 if call is None else calls[call])
    return np.array(numbers, dtype=np.int32)[inverse.reshape(-1)]
