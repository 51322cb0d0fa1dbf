"""Whole runs under a translator: what QEMU's plugin and valgrind count must agree with each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from conccl.core.errors import ExecutionError, InputError
from conccl.sampling.intervals.bbv import read_bbv
from conccl.sampling.intervals.program import Program, find_program
from conccl.sampling.intervals.translate import qemu, valgrind
from conccl.sampling.intervals.windows import COUNTERS, Action, Event
from phased_program import require

INTERVAL = 5_000_000
INSTRUCTIONS = COUNTERS.index("instructions")


@pytest.fixture(scope="module")
def profile(program: Program, tmp_path_factory: pytest.TempPathFactory) -> qemu.BlockProfile:
    require("qemu-x86_64")
    return qemu.profile_blocks(program, interval=INTERVAL, keep=tmp_path_factory.mktemp("q") / "run.bb")


def test_intervals_have_the_length_asked_for(profile: qemu.BlockProfile) -> None:
    lengths = np.asarray(read_bbv(profile.path).sum(axis=1)).ravel()
    assert lengths.sum() == profile.instructions
    assert (abs(lengths[:-1] - INTERVAL) < 1000).all()  # a block more or less
    assert len(profile.bounds) == len(lengths) + 1


def test_valgrind_counts_the_same_instructions(
    profile: qemu.BlockProfile, program: Program, tmp_path: Path
) -> None:
    require("valgrind")
    slow = valgrind.profile_blocks(program, interval=INTERVAL, keep=tmp_path / "run.bb")
    assert slow.instructions == pytest.approx(profile.instructions, rel=0.001)


def test_another_run_finds_each_marker_at_the_same_instruction(
    profile: qemu.BlockProfile, program: Program
) -> None:
    events = [
        Event(marker=marker, action=Action.MARK, bound=bound)
        for bound, marker in enumerate(profile.bounds)
        if marker is not None
    ]
    run = qemu.run_with_events(program, events)
    assert list(run.order) == list(range(len(events)))
    at = [run.rows[number][0] for number in run.order]
    lengths = np.asarray(read_bbv(profile.path).sum(axis=1)).ravel()
    assert np.allclose(at, np.cumsum(lengths)[:-1], atol=1000)


def test_the_model_over_the_whole_run_counts_every_instruction(program: Program) -> None:
    require("qemu-x86_64")
    run = qemu.run_with_events(program, [], interval=INTERVAL, whole=True)
    counted = dict(zip(COUNTERS, run.rows[-1][1:].tolist(), strict=True))
    assert counted["instructions"] == run.rows[-1][0]
    assert counted["cycles"] > counted["instructions"]
    assert counted["divides"] >= 2 * 1200 * 2047  # rounds, calls, and divisions of each
    assert counted["l1d_misses"] >= 2 * 700 * 4096  # each load of `stream` is in a line of its own
    fixed = np.diff(run.fixed[:, 1:], axis=0, prepend=0)
    assert (fixed.sum(axis=0) == run.rows[-1][1:]).all()


def test_an_interval_in_detail_is_like_the_same_one_in_the_whole_run(
    profile: qemu.BlockProfile, program: Program
) -> None:
    chosen = 9
    events = [
        Event(marker=profile.bounds[chosen - 1], action=Action.FOLLOW, bound=chosen, before=True),
        Event(marker=profile.bounds[chosen], action=Action.MARK, bound=chosen),
        Event(marker=profile.bounds[chosen + 1], action=Action.UNFOLLOW, bound=chosen + 1),
    ]
    some = qemu.run_with_events(program, events).detail(events, end=len(profile.bounds) - 1).interval(chosen)
    whole = qemu.run_with_events(program, events, interval=INTERVAL, whole=True)
    all_of_it = whole.detail(events, end=len(profile.bounds) - 1).interval(chosen)
    assert some[INSTRUCTIONS] == pytest.approx(all_of_it[INSTRUCTIONS], rel=1e-3)
    assert some[0] == pytest.approx(all_of_it[0], rel=0.05)


@pytest.mark.parametrize(
    ("how", "error", "complaint"),
    [
        ("thread", InputError, "1 more threads"),
        ("fail", InputError, r"exit status 3\. It said: out of luck"),
        ("kill", InputError, "SIGKILL"),
        ("exec", ExecutionError, "replaced itself by another program"),
    ],
)
def test_runs_that_cannot_be_sampled(
    binary: Path, tmp_path: Path, how: str, error: type[Exception], complaint: str
) -> None:
    require("qemu-x86_64")
    with pytest.raises(error, match=complaint):
        qemu.profile_blocks(
            find_program([str(binary), "1", how]), interval=INTERVAL, keep=tmp_path / "run.bb"
        )


def test_children_are_counted_and_not_followed(binary: Path, tmp_path: Path) -> None:
    require("qemu-x86_64")
    found = qemu.profile_blocks(
        find_program([str(binary), "1", "fork"]), interval=INTERVAL, keep=tmp_path / "run.bb"
    )
    assert found.forks == 1


def test_without_qemu_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="apt install qemu-user"):
        qemu.find_qemu()
    with pytest.raises(InputError, match="apt install valgrind"):
        valgrind.find_valgrind()


def test_a_qemu_that_knows_another_interface_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / qemu.EXECUTABLE
    fake.write_text("#!/bin/sh\necho qemu-x86_64 version 9.1.0\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"9\.1\.0.*needs QEMU 6\.0 to 8\.2"):
        qemu.find_qemu()
