"""What points project, also where a run is not the same twice."""

import numpy as np
import pytest

from conccl.sampling.intervals.parts import Parts, Unit
from conccl.sampling.intervals.projection import grown_points, projected
from conccl.sampling.intervals.simpoint import Clustering
from conccl.sampling.intervals.windows import COUNTERS, Detail


def run(*, counted: int, unit: Unit = Unit.INSTRUCTIONS) -> Parts:
    """Three intervals of 100 in two groups; 0 and 2 are chosen, at 2 and 3 cycles per instruction."""

    def counters(instructions: int, cycles: int) -> np.ndarray:
        found = np.zeros(len(COUNTERS), dtype=np.int64)
        found[COUNTERS.index("instructions")], found[COUNTERS.index("cycles")] = instructions, cycles
        return found

    first, last = counters(counted, 2 * counted), counters(100, 300)
    return Parts(
        clustering=Clustering(labels=np.array([0, 0, 1]), representatives=np.array([0, 2]), scores={}),
        bounds=(None,) * 4,
        work=np.full(3, 100.0),
        unit=unit,
        detail=Detail(at={0: counters(0, 0), 1: first, 2: first, 3: first + last}),
        backend=None,
    )


@pytest.mark.parametrize("counted", [100, 250])
def test_cycles_are_those_per_instruction_times_the_instructions_that_were_profiled(counted):
    found = projected(run(counted=counted))
    assert (found["instructions"], found["cycles"]) == (300, 700)


def test_intervals_on_the_clock_are_projected_by_their_time():
    found = projected(run(counted=250, unit=Unit.NANOSECONDS))
    assert (found["instructions"], found["cycles"]) == (600, 1300)


def test_a_group_whose_point_held_nothing_is_like_the_others():
    found = projected(run(counted=0))
    assert (found["instructions"], found["cycles"]) == (300, 900)


def test_intervals_that_held_other_instructions_are_named():
    assert grown_points(run(counted=100)) == ()
    assert grown_points(run(counted=250)) == (0,)
    assert grown_points(run(counted=0)) == (0,)
    assert grown_points(run(counted=250, unit=Unit.NANOSECONDS)) == ()
