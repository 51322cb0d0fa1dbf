"""`analyze` on small traces made for the purpose."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import conccl
from conccl.advise.document import to_document
from conccl.advise.predictions import Predictions
from conccl.cli.main import app
from conccl.core.errors import TraceError
from conccl.core.timeline import Mask
from conccl.traces.trace import Trace
from made_kineto import kernel, text_of, write
from made_traces import Row, write_kineto

US = 1000
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas"


def step_rows(*, late: int = 0, offset: int = 0, steps: int = 4) -> list[Row]:
    """Steps of irregular spacing: a GEMM, and an all-reduce whose second half runs beside another GEMM."""
    rows = []
    for i in range(steps):
        at = offset + 1_000_000 * US + (1000 * i + 77 * i * i) * US
        rows += [
            Row(name=GEMM, start=at, end=at + 100 * US),
            Row(name=REDUCE, start=at + 100 * US + late, end=at + 200 * US, stream="20", ctas=16),
            Row(name=GEMM, start=at + 150 * US, end=at + 275 * US),
        ]
    return rows


def test_two_ranks_wait_for_the_late_one(tmp_path: Path) -> None:
    write_kineto(tmp_path / "a.json", step_rows(), rank=0, world_size=2)
    write_kineto(tmp_path / "b.json", step_rows(late=60 * US), rank=1, world_size=2)
    found = conccl.analyze(tmp_path)
    assert [rank.wait_ns for rank in found.ranks] == [4 * 60 * US, 0]
    assert [rank.transfer_ns for rank in found.ranks] == [4 * 40 * US] * 2
    assert [(s.rank, s.last, s.caused_ns) for s in found.stragglers] == [(1, 4, 240 * US)]
    assert found.world_size == 2
    assert found.missing_ranks == ()
    first = found.exposed[0]
    assert (first.rank, first.calls, first.exposed_ns, first.wait_ns) == (0, 4, 200 * US, 40 * US)


def test_contention_of_collectives_is_measured_on_their_transfer(tmp_path: Path) -> None:
    """Rank 0 always waits; rank 1's calls, 100 us alone and 150 us under a GEMM, show the transfer."""

    def rows(*, wait: int) -> list[Row]:
        found = []
        for i in range(8):
            at = 1_000_000 * US + (1000 * i + 77 * i * i) * US
            length = (150 if i % 2 else 100) * US
            found.append(Row(name=REDUCE, start=at - wait, end=at + length, stream="20", ctas=16))
            if i % 2:
                found.append(Row(name=GEMM, start=at - wait, end=at + length))
        return found

    write_kineto(tmp_path / "a.json", rows(wait=300 * US), rank=0, world_size=2)
    write_kineto(tmp_path / "b.json", rows(wait=0), rank=1, world_size=2)
    found = conccl.analyze(tmp_path)
    (transfer,) = [kernel for kernel in found.contention if kernel.rank is None]
    assert (transfer.side, transfer.alone_ns, transfer.overlapped_ns) == ("communication", 100 * US, 150 * US)
    assert transfer.slowdown == pytest.approx(1.5)
    assert (transfer.excess_ns, transfer.ctas, transfer.waits) == (4 * 50 * US, 16, False)
    assert transfer.firm
    assert not any(kernel.firm for kernel in found.contention if kernel.waits)
    assert any(advice.title == "Compute slows communication" for advice in found.advice)


def test_clocks_apart_are_aligned_and_said(tmp_path: Path) -> None:
    write_kineto(tmp_path / "a.json", step_rows(), rank=0, world_size=2)
    write_kineto(tmp_path / "b.json", step_rows(late=60 * US, offset=7_000 * US), rank=1, world_size=2)
    found = conccl.analyze(tmp_path)
    assert found.clock is not None
    assert found.clock.offsets_ns == {0: 0, 1: 7_000 * US}
    assert found.collectives[0].skew_ns == 60 * US
    assert [rank.wait_ns for rank in found.ranks] == [240 * US, 0]
    assert any("clocks differ by up to 7.000 ms" in warning for warning in found.warnings)


def test_several_ranks_without_communication_are_a_loud_warning(tmp_path: Path) -> None:
    rows = [
        Row(name=GEMM, start=1000 * US, end=2000 * US),
        Row(name="void my_tp::exchange_peers<8>(int*)", start=2000 * US, end=2300 * US),
        Row(name="mystery_kernel", start=2300 * US, end=2600 * US),
    ]
    path = write_kineto(tmp_path / "a.json", rows, rank=0, world_size=8)
    found = conccl.analyze(path)
    assert found.line() == "overlap: no communication found"
    assert found.warnings[0].startswith("NO COMMUNICATION FOUND in a run of 8 ranks")
    candidates = found.warnings[0].split("likeliest candidates: ")[1]
    assert candidates.index("exchange_peers") < candidates.index("mystery_kernel") < candidates.index(GEMM)
    alone = write_kineto(tmp_path / "b.json", rows, rank=0, world_size=1)
    assert not any("NO COMMUNICATION" in warning for warning in conccl.analyze(alone).warnings)


def test_rules_of_the_user_make_it_communication(tmp_path: Path) -> None:
    rows = [Row(name=GEMM, start=0, end=90), Row(name="exchange_peers", start=50, end=100, stream="8")]
    path = write_kineto(tmp_path / "a.json", rows, rank=0, world_size=8)
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nid = "mine"\nactivity = "communication"\npattern = "exchange_peers"\n')
    found = conccl.analyze(path, rules=rules)
    assert found.ranks[0].split.communication_ns == 50
    assert "rules.toml" in found.rules.source


def test_kernels_that_no_rule_knows_are_listed_with_their_share(tmp_path: Path) -> None:
    rows = [
        Row(name=GEMM, start=0, end=60),
        Row(name="mystery", start=60, end=90),
        Row(name="riddle", start=90, end=100),
    ]
    found = conccl.analyze(write_kineto(tmp_path / "a.json", rows))
    assert [(k.name, k.count, k.duration_ns) for k in found.unclassified] == [
        ("mystery", 1, 30),
        ("riddle", 1, 10),
    ]
    assert sum(kernel.share for kernel in found.unclassified) == pytest.approx(0.4)
    assert any("40 % of kernel time" in warning for warning in found.warnings)


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    write_kineto(tmp_path / "a.json", step_rows(), rank=1, world_size=6)
    write_kineto(tmp_path / "b.json", step_rows(), rank=4, world_size=6)
    found = conccl.analyze(tmp_path)
    assert found.missing_ranks == (0, 2, 3, 5)
    assert any("4 of 6 ranks are missing here (0, 2-3, 5)" in warning for warning in found.warnings)


@pytest.mark.parametrize(("world_size", "ranks"), [(2, 2), (4, None), (None, None)])
def test_a_call_of_all_ranks_has_that_many(tmp_path: Path, world_size: int | None, ranks: int | None) -> None:
    write_kineto(tmp_path / "a.json", step_rows(), rank=0, world_size=world_size)
    write_kineto(tmp_path / "b.json", step_rows(), rank=1, world_size=world_size)
    (reduce,) = conccl.analyze(tmp_path).collectives
    assert (reduce.matched, reduce.ranks) == (8, ranks)


def test_a_world_size_below_the_ranks_is_not_believed(tmp_path: Path) -> None:
    write_kineto(tmp_path / "a.json", step_rows(), rank=3, world_size=2)
    found = conccl.analyze(tmp_path)
    assert (found.world_size, found.missing_ranks) == (None, ())


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_one_rank_of_several_is_that_rank_wherever_it_is_told(tmp_path: Path, rank: int) -> None:
    """Rank 0 and 1 are told behind the events of packed files, 3 is a second GPU in the file of rank 2."""
    for name, number in (("a", 1), ("b", 0)):
        text = {"traceEvents": [kernel(f"k{number}", 1, 5)], "distributedInfo": {"rank": number}}
        write(tmp_path / f"{name}.json.gz", json.dumps(text).encode())
    events = [kernel("k2", 1, 5), kernel("k2", 9, 5), kernel("k3", 1, 5, device=1)]
    write(tmp_path / "c.json", text_of(events, distributedInfo={"rank": 2, "world_size": 4}))
    found = conccl.analyze(tmp_path, rank=rank)
    (one,) = found.ranks
    assert one.rank == rank
    assert [kernel.name for kernel in found.unclassified] == [f"k{rank}"]
    assert 2 not in found.missing_ranks
    with pytest.raises(conccl.InputError, match="no trace of rank 4; there are 0-3"):
        conccl.analyze(tmp_path, rank=4)


def test_one_rank_that_cannot_be_read_is_told_as_that(tmp_path: Path) -> None:
    write_kineto(tmp_path / "rank-0.json", step_rows())
    (tmp_path / "rank-1.json").write_text("")
    with pytest.raises(TraceError, match="empty"):
        conccl.analyze(tmp_path, rank=1)


def test_a_trace_that_we_fail_on_costs_no_other(tmp_path: Path) -> None:
    for number in (0, 1):
        write_kineto(tmp_path / f"{number}.json", step_rows(), rank=number, world_size=2)
    found = conccl.analyze(tmp_path, predict=fails_on_rank_one)
    assert [rank.rank for rank in found.ranks] == [0]
    (problem,) = found.problems
    assert "ZeroDivisionError" in problem.problem
    assert "test_analyze.py" in problem.problem


def fails_on_rank_one(trace: Trace, wanted: Mask) -> Predictions:
    return nothing_known(trace, wanted[: 1 // (1 - trace.rank) * len(wanted)])


def test_nothing_need_be_drawn(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "a.json", step_rows())
    assert conccl.analyze(path, rows_drawn=0).ranks[0].drawing is None


def test_a_second_trace_of_a_rank_is_a_problem_of_that_file(tmp_path: Path) -> None:
    write_kineto(tmp_path / "a.json", step_rows(), rank=0, world_size=2)
    write_kineto(tmp_path / "b.json", step_rows(), rank=0, world_size=2)
    found = conccl.analyze(tmp_path)
    assert len(found.ranks) == 1
    assert "second trace of rank 0" in found.problems[0].problem


def test_one_problem_alone_is_raised_and_several_are_told_together(tmp_path: Path) -> None:
    bad = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in bad:
        path.write_text("")
    with pytest.raises(TraceError) as raised:
        conccl.analyze(bad[0])
    assert raised.value.path == str(bad[0])
    with pytest.raises(conccl.InputError) as together:
        conccl.analyze(bad)
    assert all(str(path) in str(together.value) for path in bad)


@pytest.mark.parametrize("nothing", [[], 7, [7], None])
def test_what_is_no_trace_is_refused(nothing: object) -> None:
    with pytest.raises(conccl.InputError, match=r"no traces were given|is no trace"):
        conccl.analyze(nothing)


def test_host_copies_must_be_one_of_two(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "a.json", step_rows())
    with pytest.raises(conccl.InputError, match="copy, communication"):
        conccl.analyze(path, host_copies="both")


def test_a_predictor_fills_what_the_trace_does_not_show(tmp_path: Path) -> None:
    """Both sides always together: no isolated instance, so unknown until a predictor says otherwise."""
    rows = [
        Row(name=GEMM, start=0, end=150 * US),
        Row(name=REDUCE, start=0, end=150 * US, stream="20"),
    ]
    path = write_kineto(tmp_path / "a.json", rows, rank=0, world_size=1)
    unknown = conccl.analyze(path, predict=None).ranks[0].overlap
    assert (unknown.overlap, unknown.source) == (None, "unknown")
    known = conccl.analyze(path, predict=hundred_us_each).ranks[0].overlap
    assert known.source == "predicted"
    assert known.predicted_ns == 150 * US
    assert (known.compute_uncertainty_ns, known.communication_uncertainty_ns) == (10 * US, 10 * US)
    assert known.fraction_range == pytest.approx((180 / 150 - 1, 220 / 150 - 1))
    assert known.overlap is not None
    assert (known.overlap.compute_ns, known.overlap.communication_ns) == (100 * US, 100 * US)
    assert known.overlap.fraction_of_ideal == pytest.approx((200 / 150 - 1) / 1)
    measured = conccl.analyze(write_kineto(tmp_path / "b.json", step_rows()), predict=nothing_known)
    assert measured.ranks[0].overlap.source == "unknown"


def hundred_us_each(trace: Trace, wanted: Mask) -> Predictions:
    """Within ten percent."""
    return Predictions(
        alone_ns=np.where(wanted, 100.0 * US, np.nan),
        uncertainty=np.where(wanted, 0.1, np.nan),
        family=np.where(wanted, 0, -1).astype(np.int32),
        families=("gemm",),
        device="made-up",
    )


def nothing_known(trace: Trace, wanted: Mask) -> Predictions:
    nothing = np.full(len(wanted), np.nan)
    return Predictions(
        alone_ns=nothing,
        uncertainty=nothing,
        family=np.full(len(wanted), -1, dtype=np.int32),
        families=(),
        device="made-up",
    )


def test_the_line_for_a_log(tmp_path: Path) -> None:
    """Four steps busy for 275 of a span of 3,968 us."""
    line = conccl.analyze(write_kineto(tmp_path / "a.json", step_rows())).line()
    assert line == "overlap: 50.0 % of 400 us communication hidden, 200 us exposed, 72.3 % idle (1 rank)"


class InMemory:
    """What `conccl.traces.live` asks of a profiler, with these rows."""

    def __init__(self, rows: list[Row]) -> None:
        events = [self._event(row, number) for number, row in enumerate(rows, start=1)]
        self.profiler = SimpleNamespace(kineto_results=SimpleNamespace(events=lambda: events))

    def export_chrome_trace(self, _: str) -> None:
        raise AssertionError("no file is needed")

    def _event(self, row: Row, correlation: int) -> SimpleNamespace:
        values = {
            "activity_type": "kernel",
            "name": row.name,
            "start_ns": row.start,
            "duration_ns": row.end - row.start,
            "device_index": 0,
            "device_resource_id": int(row.stream),
            "correlation_id": correlation,
            "metadata_json": f'"stream": {row.stream}, "grid": [{row.ctas}, 1, 1], "block": [128, 1, 1]',
        }
        return SimpleNamespace(**{name: (lambda value=value: value) for name, value in values.items()})


def test_a_profiler_in_memory_says_the_same_as_its_file(tmp_path: Path) -> None:
    live = conccl.analyze(InMemory(step_rows()))
    file = conccl.analyze(write_kineto(tmp_path / "a.json", step_rows()))
    assert live.line() == file.line()
    assert live.ranks[0].split == file.ranks[0].split
    assert live.ranks[0].path == "live profiler"
    assert live.paths == ()


def test_progress_counts_files(tmp_path: Path) -> None:
    for rank in range(3):
        write_kineto(tmp_path / f"rank{rank}.json", step_rows(), rank=rank, world_size=3)
    seen: list[tuple[int, int]] = []
    conccl.analyze(tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_the_command_prints_json_alone_and_fails_in_part(tmp_path: Path) -> None:
    good = write_kineto(tmp_path / "good.json", step_rows(), rank=0, world_size=1)
    bad = tmp_path / "bad.json"
    bad.write_text("not json")
    ran = CliRunner().invoke(app, ["analyze", str(good), str(bad), "--format", "json"])
    assert ran.exit_code == 2
    document = json.loads(ran.stdout)
    assert document == json.loads(json.dumps(to_document(conccl.analyze([good, bad]))))
    assert "bad.json" in ran.stderr
    (rank,) = document["ranks"]
    parts = ("compute_only_ns", "communication_only_ns", "both_ns", "copy_only_ns", "idle_ns")
    assert sum(rank[part] for part in parts) == rank["span_ns"]
    assert rank["wait_ns"] is rank["transfer_ns"] is None


def test_the_command_writes_page_and_perfetto(tmp_path: Path) -> None:
    good = write_kineto(tmp_path / "good.json", step_rows(), rank=0, world_size=1)
    page, perfetto = tmp_path / "page.html", tmp_path / "perfetto.json"
    ran = CliRunner().invoke(app, ["analyze", str(good), "--html", str(page), "--perfetto", str(perfetto)])
    assert ran.exit_code == 0
    assert page.stat().st_size > 10_000
    assert json.loads(perfetto.read_text())["traceEvents"]
    assert "overlaps that cost most" in ran.stdout


def test_a_step_without_compute_has_nothing_to_cover_with(tmp_path: Path) -> None:
    """Step 1 only transfers; step 2 has 30 us of compute for its 60 us of exposed transfer."""
    rows = [
        Row(name=REDUCE, start=100 * US, end=200 * US, stream="20", launch=90 * US),
        Row(name=GEMM, start=500 * US, end=530 * US, launch=480 * US),
        Row(name=REDUCE, start=530 * US, end=590 * US, stream="20", launch=485 * US),
    ]
    steps = [(1, 80 * US, 300 * US), (2, 400 * US, 600 * US)]
    found = conccl.analyze(write_kineto(tmp_path / "a.json", rows, steps=steps))
    assert [(each.exposed_ns, each.coverable_ns) for each in found.exposed] == [
        (100 * US, 0),
        (60 * US, 30 * US),
    ]
    assert [(cost.kind, cost.cost_ns, cost.worst.step) for cost in found.costs] == [("exposed", 30 * US, 2)]


def test_steps_of_a_trace(tmp_path: Path) -> None:
    """Step 4 launches work that runs while the host is in step 5."""
    rows = [
        Row(name=GEMM, start=1000 * US, end=1100 * US, launch=900 * US),
        Row(name=REDUCE, start=1300 * US, end=1400 * US, stream="20", launch=950 * US),
        Row(name=GEMM, start=1200 * US, end=1450 * US, launch=1150 * US),
    ]
    steps = [(4, 890 * US, 1000 * US), (5, 1000 * US, 1500 * US)]
    found = conccl.analyze(write_kineto(tmp_path / "a.json", rows, steps=steps))
    first, second = found.ranks[0].steps
    assert (first.number, first.start_ns, first.split.span_ns) == (4, 0, 400 * US)
    assert (first.split.compute_only_ns, first.split.both_ns) == (100 * US, 100 * US)
    assert (second.number, second.start_ns, second.split.span_ns) == (5, 200 * US, 250 * US)
    alone = conccl.analyze(tmp_path / "a.json", step=5)
    assert alone.ranks[0].split == second.split
    assert alone.collectives == ()
    assert alone.exposed == ()
