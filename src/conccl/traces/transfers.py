"""Contention of collectives, measured on their transfer: what compute costs them without what they waited.

A matched call counts with its shortest rank, the last to arrive, whose duration is the transfer, and with
the share of it that ran under that rank's compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from conccl.core.timeline import Times
from conccl.traces.collectives import Arrivals
from conccl.traces.findings import Contention
from conccl.traces.matching import CallLabel, RankCalls
from conccl.traces.slowdown_fit import fit


def transfer_contention(
    ranks: Sequence[RankCalls], arrived: Arrivals, /, *, exposed_ns: Mapping[int, Times]
) -> tuple[Contention, ...]:
    """Collectives that met compute; ``exposed_ns``: for each rank, what no compute covered of each call."""
    places: dict[CallLabel, int] = {}
    groups, duration, covered, ctas = [], [], [], []
    for calls in ranks:
        numbers = arrived.numbers[calls.rank]
        last = np.append(arrived.last_rank, -1)[numbers] == calls.rank
        rows = np.flatnonzero(last & (calls.end_ns > calls.start_ns))
        of_label = np.array(
            [places.setdefault(label, len(places)) for label in calls.labels] + [0], dtype=np.intp
        )
        groups.append(of_label[calls.label[rows]])
        duration.append((calls.end_ns - calls.start_ns)[rows])
        covered.append((calls.end_ns - calls.start_ns - exposed_ns[calls.rank])[rows])
        ctas.append(calls.ctas[rows])
    if not groups:
        return ()
    group, held = np.concatenate(groups), np.concatenate(ctas)
    found = fit(
        group,
        duration=np.concatenate(duration).astype(np.float64),
        covered=np.concatenate(covered).astype(np.float64),
    )
    labels = list(places)
    return tuple(
        found.contention(
            int(met),
            rank=None,
            name=labels[met].name,
            side="communication",
            ctas=int(held[group == met].max()) or None,
            waits=False,
        )
        for met in np.flatnonzero(found.beside_count)
    )
