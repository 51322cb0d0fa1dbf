"""Native runs under the counting agent: exact counts, and a program that does what it would do without."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import numpy as np
import pytest

from conccl.core.errors import InputError
from conccl.sampling.intervals import counters, native
from conccl.sampling.intervals.counters import Backend, Event
from conccl.sampling.intervals.flow import sample_intervals
from conccl.sampling.intervals.methods import Method, Translator
from conccl.sampling.intervals.native import Slices, load_slices, run_natively, save_slices
from conccl.sampling.intervals.program import Program, find_program
from phased_program import require


@pytest.fixture(scope="module")
def slices(program: Program) -> Slices:
    return run_natively(program, instructions=1_000_000, backend=Backend.CLOCK)


def test_calls_are_counted_exactly(slices: Slices) -> None:
    totals = np.asarray(slices.increases.sum(axis=0)).ravel()
    calls = {int(total) for site, total in zip(slices.sites, totals, strict=True) if site.kind == "call"}
    assert {2 * 700, 2 * 1200, 2 * 900} <= calls  # rounds, and calls of each phase


def test_phases_come_one_after_the_other(slices: Slices) -> None:
    totals = np.asarray(slices.increases.sum(axis=0)).ravel().tolist()
    stream, divide = (slices.increases[:, [totals.index(n)]].toarray().ravel() for n in (1400, 2400))
    assert not ((stream > 1) & (divide > 1)).sum() > 4  # only where one ends and the other begins
    assert slices.count > 20


def test_times_of_the_slices_are_the_run(slices: Slices) -> None:
    assert slices.lengths.sum() == pytest.approx(slices.ended.cpu_ns, rel=0.5)
    assert (slices.lengths > 0).all()


def test_a_profile_is_kept_whole(slices: Slices, tmp_path: Path) -> None:
    save_slices(slices, tmp_path / "x")
    back = load_slices(tmp_path / "x")
    assert back.sites == slices.sites
    assert (back.increases != slices.increases).nnz == 0
    assert back.lengths.tolist() == slices.lengths.tolist()
    assert (back.backend, back.forks, back.ended) == (slices.backend, slices.forks, slices.ended)


def test_further_events_are_counted_beside_the_first(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hardware events are rare on virtual machines; software ones take the same way."""
    faults = Event(name="page_faults", type=1, config=2)
    clock = counters.EVENTS[Backend.CLOCK]
    monkeypatch.setitem(counters.EVENTS, Backend.CLOCK, (*clock, faults))
    found = run_natively(program, instructions=1_000_000, backend=Backend.CLOCK)
    assert found.extras.shape == (found.count, 1)
    assert found.extras[: found.count // 4].sum() > 1000  # 4 MiB are touched at the start
    assert found.extras[found.count // 2 :].sum() < 100


def test_the_program_sees_the_environment_that_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    script = 'echo "<$LD_PRELOAD$CONCCL_AGENT>" >&2; exit 3'
    with pytest.raises(InputError, match="It said: <>"):
        run_natively(find_program(["/bin/sh", "-c", script]), instructions=1_000_000, backend=Backend.CLOCK)


@pytest.mark.parametrize("translator", [Translator.ATTACH, Translator.QEMU])
def test_what_a_program_writes_is_not_changed(
    tmp_path: Path, attachable: None, qemu: None, translator: Translator
) -> None:
    require("gzip")
    rng = random.Random(5)
    content = b"".join(rng.choice((b"abc", b"de\n", b"fghi", rng.randbytes(3))) for _ in range(250_000))
    path = tmp_path / "file"
    path.write_bytes(content)
    program = find_program(["gzip", "-kf", str(path)])
    found = sample_intervals(
        program, method=Method.DARTS, translator=translator, interval=2_000_000, max_clusters=6
    )
    assert gzip.decompress((tmp_path / "file.gz").read_bytes()) == content
    assert found.projected is not None


def test_events_that_cannot_be_opened_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    nonsense = Event(name="nonsense", type=1, config=10_000)
    monkeypatch.setitem(counters.EVENTS, Backend.CLOCK, (nonsense,))
    with pytest.raises(InputError, match=r"nonsense.*perf_event_paranoid"):
        counters.choose_backend(Backend.CLOCK)
    monkeypatch.undo()
    assert native.EVENTS is counters.EVENTS
