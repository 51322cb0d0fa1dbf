"""What every moment of a rank is: compute only, communication only, both, copy only or idle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from conccl.core.timeline import Times
from conccl.traces.breakdown import Sides

STATES = ("compute_only", "communication_only", "both", "copy_only", "idle")
"""By the number that stands for each."""

STATE_LABELS = tuple(state.replace("_", " ") for state in STATES)

_COMPUTE_ONLY, _COMMUNICATION_ONLY, _BOTH, _COPY_ONLY, _IDLE = range(len(STATES))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class States:
    """Stretches that follow each other and fill a window; neighbours differ."""

    start_ns: Times
    end_ns: Times
    state: npt.NDArray[np.int8]
    """Index into `STATES`."""


def states_of(sides: Sides, /, *, start_ns: int, end_ns: int) -> States:
    """The states of the window [start, end), from when each kind of work runs."""
    inside = sides.within(start_ns, end_ns)
    window = np.array([start_ns, end_ns], dtype=np.int64)
    sets = (inside.compute, inside.communication, inside.copies)
    edges = np.unique(np.concatenate([window, *(e for s in sets for e in (s.start_ns, s.end_ns))]))
    starts = edges[:-1]
    compute, communication, copies = (each.holds(starts) for each in sets)
    state = np.select(
        [compute & communication, compute, communication, copies],
        [_BOTH, _COMPUTE_ONLY, _COMMUNICATION_ONLY, _COPY_ONLY],
        default=_IDLE,
    ).astype(np.int8)
    first = np.flatnonzero(np.diff(state, prepend=-1))
    return States(
        start_ns=starts[first],
        end_ns=np.append(starts[first][1:], edges[-1:])[: len(first)],
        state=state[first],
    )
