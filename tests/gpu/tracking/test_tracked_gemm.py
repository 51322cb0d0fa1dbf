"""The tracking kernel in Triton's interpreter, and a reduce-scatter that its counters release."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu.tracking import tracking_jobs

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed"),
]

CASES = ((1, 40, 4), (2, 64, 2), (3, 67, 3))
"""Ranks, rows and chunks of a reduce-scatter."""


@pytest.fixture(scope="module")
def found():
    """What the jobs returned, all of them in one process."""
    tests = Path(tracking_jobs.__file__).parents[2]
    paths = os.pathsep.join([str(tests.parent / "src"), str(tests)])
    done = subprocess.run(
        [sys.executable, tracking_jobs.__file__, json.dumps(CASES)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"PYTHONPATH": paths, "TRITON_INTERPRET": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_products_are_those_of_float64_and_every_tile_is_counted(found):
    assert found["products"] == 15


def test_a_chunk_that_does_not_come_is_given_up_on(found):
    assert found["waiting"] == [0, 2, 2]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_every_chunk_is_moved_when_its_tiles_are_made(found, case):
    ranks, _, chunks = CASES[case]
    stops = found["reduce_scatter"][case]
    assert stops[0] == 0  # nothing moves before its tiles are made
    assert stops[-1] == ranks * chunks
    assert stops == sorted(stops)


def test_transfers_begin_while_the_kernel_goes_on(found):
    # on a busy machine the thread that moves chunks may sleep through one kernel, hardly through all
    assert any(moved > 0 for stops in found["reduce_scatter"] for moved in stops[:-1])
