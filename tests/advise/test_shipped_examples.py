"""The two recordings that the project ships: what CUDA events measured comes out of the trace alone."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

import conccl
from conccl.advise.analysis import Analysis

EXAMPLES = Path(__file__).parents[2] / "examples" / "overlap_step"


@functools.cache
def recorded(engine: str) -> Analysis:
    return conccl.analyze(EXAMPLES / f"{engine}.pt.trace.json.gz", host_copies="communication")


def measured(engine: str) -> dict[str, dict[str, float]]:
    figures: dict[str, dict[str, float]] = json.loads((EXAMPLES / f"{engine}.figures.json").read_text())
    return figures


@pytest.mark.parametrize("engine", ["sm", "ce"])
def test_the_fraction_of_ideal_is_the_measured_one(engine: str) -> None:
    """The script timed its steps in two ways, with and without the profiler: between those, within 0.02."""
    (window,) = [each for each in recorded(engine).ranks[0].windows if each.name == "concurrent"]
    assert window.count == 6
    assert window.overlap.source == "measured"
    overlap = window.overlap.overlap
    assert overlap is not None
    ways = [measured(engine)[way] for way in ("cuda_events", "trace")]
    fractions = [way["fraction_of_ideal"] for way in ways]
    assert overlap.fraction_of_ideal is not None
    assert min(fractions) - 0.02 <= overlap.fraction_of_ideal <= max(fractions) + 0.02
    for side, mine in (("compute_ms", overlap.compute_ns), ("communication_ms", overlap.communication_ns)):
        assert mine / 6e6 == pytest.approx(measured(engine)["trace"][side], rel=0.05)


def test_what_each_engine_costs_the_gemms() -> None:
    """On 8 of 132 SMs the persistent GEMMs wait for CTAs; copy engines leave them alone."""
    lost = {
        engine: sum(
            kernel.excess_ns or 0
            for kernel in recorded(engine).contention
            if kernel.side == "compute" and "nvjet" in kernel.name
        )
        for engine in ("sm", "ce")
    }
    assert lost["sm"] > 40_000_000
    assert abs(lost["ce"]) < 2_000_000
    worst = max(recorded("sm").contention, key=lambda kernel: kernel.excess_ns or 0)
    assert worst.ctas == 8
    assert worst.firm
    assert any(advice.title == "Communication slows compute" for advice in recorded("sm").advice)
    assert not any(advice.title == "Communication slows compute" for advice in recorded("ce").advice)


def test_host_copies_are_copies_unless_asked() -> None:
    analysis = conccl.analyze(EXAMPLES / "ce.pt.trace.json.gz")
    assert analysis.ranks[0].split.communication_ns == 0
    assert analysis.ranks[0].split.copy_only_ns > 0
    assert analysis.rules.host_copies == "copy"


def test_steps_are_the_recorded_ones() -> None:
    (rank,) = recorded("sm").ranks
    assert [step.number for step in rank.steps] == list(range(2, 16))
    isolated = rank.steps[:8]
    assert all(step.split.both_ns == 0 for step in isolated)
    assert rank.unattributed_ns == 0
