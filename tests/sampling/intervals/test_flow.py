"""From a program to its points: phases found, the run projected, bad runs refused, interruptions resumed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conccl.core.errors import ConcclError, InputError, MissingExtraError
from conccl.sampling.intervals import attach, blocks, darts, flow
from conccl.sampling.intervals.counters import Backend, choose_backend
from conccl.sampling.intervals.cut import cut
from conccl.sampling.intervals.document import intervals_document
from conccl.sampling.intervals.evaluate import coverage_of, errors, measure_truth
from conccl.sampling.intervals.flow import sample_intervals, sample_vectors
from conccl.sampling.intervals.methods import Method, Translator
from conccl.sampling.intervals.native import run_natively
from conccl.sampling.intervals.points import Sample
from conccl.sampling.intervals.program import Program, find_program
from conccl.sampling.intervals.store import read_points
from conccl.sampling.intervals.translate.qemu import run_with_events
from conccl.sampling.intervals.windows import events_for
from phased_program import require

INTERVAL = 2_000_000


def sample(program: Program, method: Method, translator: Translator, **options: object) -> Sample:
    return sample_intervals(
        program,
        method=method,
        translator=translator,
        **{"interval": INTERVAL, **options},  # type: ignore[arg-type]
    )


def check(found: Sample) -> None:
    assert sum(point.weight for point in found.points) == pytest.approx(1)
    assert sum(found.shares) == pytest.approx(1)
    assert len(found.phases) == len(found.shares) == len(found.bounds) - 1
    for point in found.points:
        assert found.phases[point.interval] == point.cluster
    assert len({point.cluster for point in found.points}) == len(found.points) >= 3


@pytest.mark.parametrize(
    ("method", "translator"),
    [
        (Method.SIMPOINT, Translator.QEMU),
        (Method.DARTS, Translator.QEMU),
        (Method.DARTS, Translator.ATTACH),
    ],
)
def test_points_project_the_run(
    program: Program, method: Method, translator: Translator, qemu: None, attachable: None
) -> None:
    found = sample(program, method, translator)
    check(found)
    truth = measure_truth(program, found.bounds if method is Method.DARTS else (), interval=INTERVAL)
    off = errors(found, truth)
    cycles, cpi = off["cycles"], off["cpi"]
    assert cycles is not None
    assert cpi is not None
    # on a shared machine, time tells instructions apart badly: attach has nothing else where nobody counts
    assert abs(cycles) < (0.25 if translator is Translator.ATTACH else 0.06)
    assert abs(cpi) < 0.1
    assert coverage_of(found, truth) > 0.95
    assert found.nbytes < 100_000


def test_valgrind_gives_points_without_detail(program: Program) -> None:
    require("valgrind")
    found = sample(program, Method.SIMPOINT, Translator.VALGRIND)
    check(found)
    assert found.projected is None
    assert all(point.counters is None for point in found.points)


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize(
    ("how", "complaint"),
    [("thread", "1 more threads"), ("fail", "out of luck"), ("kill", "SIGKILL"), ("exec", "replaced itself")],
)
def test_runs_that_cannot_be_sampled(
    binary: Path, method: Method, qemu: None, how: str, complaint: str
) -> None:
    with pytest.raises(ConcclError, match=complaint):
        sample(find_program([str(binary), "1", how]), method, Translator.QEMU)


@pytest.mark.parametrize("method", list(Method))
def test_children_are_worth_a_warning(binary: Path, method: Method, qemu: None) -> None:
    found = sample(find_program([str(binary), "1", "fork"]), method, Translator.QEMU, detailed=False)
    assert any("started 1 child processes" in warning for warning in found.warnings)


@pytest.mark.parametrize("method", list(Method))
def test_a_run_shorter_than_an_interval_is_refused(method: Method, qemu: None) -> None:
    with pytest.raises(InputError, match="is over before the second interval"):
        sample(find_program(["true"]), method, Translator.QEMU, interval=100_000_000)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"interval": 999}, "too short"),
        ({"max_clusters": 0}, "at least 1"),
        ({"translator": Translator.VALGRIND}, "cannot use translator valgrind"),
    ],
)
def test_settings_that_cannot_be(program: Program, options: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        sample_intervals(program, **{"method": Method.DARTS, "interval": INTERVAL, **options})  # type: ignore[arg-type]


def test_a_static_program_is_sent_to_the_other_method(tmp_path: Path) -> None:
    require("cc")
    source = tmp_path / "empty.c"
    source.write_text("int main(void) { return 0; }\n")
    done = subprocess.run(
        ["cc", "-static", "-o", tmp_path / "empty", source], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("the static C library is not installed")
    with pytest.raises(InputError, match=r"linked statically.*--method simpoint"):
        sample(find_program([str(tmp_path / "empty")]), Method.DARTS, Translator.QEMU)


def test_without_frida_the_extra_is_named(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "frida", None)
    with pytest.raises(MissingExtraError, match=r"conccl\[sample\]"):
        sample(program, Method.DARTS, Translator.ATTACH)


@pytest.mark.parametrize(
    ("method", "module", "stage"),
    [(Method.SIMPOINT, blocks, "qemu"), (Method.DARTS, darts, "run_with_events")],
)
def test_an_interrupted_call_goes_on_behind_the_profile(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qemu: None,
    method: Method, module: object, stage: str,
) -> None:  # fmt: skip
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        target = module.qemu if stage == "qemu" else module  # type: ignore[attr-defined]
        patch.setattr(target, "run_with_events", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sample(program, method, Translator.QEMU, folder=tmp_path)
    found = sample(program, method, Translator.QEMU, folder=tmp_path)
    assert [stage.resumed for stage in found.stages] == [True, False, False]
    other = sample(program, method, Translator.QEMU, folder=tmp_path)
    assert not other.stages[0].resumed  # nothing of a finished call is taken for another one


def test_files_and_document_say_the_same(program: Program, tmp_path: Path, qemu: None) -> None:
    found = sample(program, Method.SIMPOINT, Translator.QEMU, folder=tmp_path)
    document = json.loads(json.dumps(intervals_document(found), allow_nan=False))
    pairs = read_points(tmp_path / "points.simpoints", tmp_path / "points.weights")
    assert [interval for interval, _ in pairs] == [point["interval"] for point in document["points"]]
    assert [weight for _, weight in pairs] == pytest.approx([point["weight"] for point in document["points"]])
    assert document["schema"] == "conccl.sample.intervals/1"
    assert {"interval", "marker", "weight"} <= set(document["points"][0])
    assert {"pc", "count"} <= set(document["points"][-1]["marker"])
    assert (tmp_path / "program.bb").exists()
    assert document["nbytes"] == sum(file.stat().st_size for file in tmp_path.iterdir())


def test_hardware_counters_are_used_where_the_machine_has_them() -> None:
    try:
        backend = choose_backend()
    except InputError as error:
        assert "perf_event_paranoid" in str(error)  # noqa: PT017
        pytest.skip("this machine does not let performance events be opened")
    assert backend in Backend


def test_following_loses_no_instruction(program: Program, attachable: None, qemu: None) -> None:
    """The same intervals under frida and under QEMU: the model sees the same program."""
    slices = run_natively(program, instructions=INTERVAL, backend=choose_backend())
    intervals = cut(slices)
    chosen = [intervals.count // 4, intervals.count // 2, 3 * intervals.count // 4]
    events = events_for(chosen, intervals.bounds)
    followed = attach.follow(program, events, end=intervals.count).detail
    translated = run_with_events(program, events).detail(events, end=intervals.count)
    for interval in chosen:
        one, other = followed.interval(interval), translated.interval(interval)
        assert one[1] == pytest.approx(other[1], rel=0.002)  # instructions
        assert one[0] == pytest.approx(other[0], rel=0.02)  # cycles


def test_points_from_a_file_of_vectors() -> None:
    path = Path(__file__).parents[3] / "examples" / "simulation_points" / "phases.bb.gz"
    found = sample_vectors(path)
    check(found)
    assert len(found.points) == 4  # the start, and its three phases
    assert found.interval_instructions == pytest.approx(1_000_000, rel=0.001)


def test_a_file_that_is_no_vectors_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.bb").write_text("T:1:5\nT:1:")
    with pytest.raises(InputError, match="ends within this line"):
        sample_vectors(tmp_path / "x.bb")
    with pytest.raises(InputError, match="at least 1"):
        sample_vectors(tmp_path / "x.bb", max_clusters=0)


def test_places_in_the_run_are_instructions_or_unknown(
    program: Program, qemu: None, attachable: None
) -> None:
    """Where slices are cut by time, only what was followed tells instructions from nanoseconds."""
    total = sample(program, Method.DARTS, Translator.QEMU).projected["instructions"]  # type: ignore[index]
    followed = sample(program, Method.DARTS, Translator.ATTACH)
    last = followed.points[-1]
    assert last.first_instruction is not None
    assert 0 < last.first_instruction < 1.3 * total
    alone = sample(program, Method.DARTS, Translator.ATTACH, detailed=False)
    known = alone.backend is Backend.HARDWARE
    assert all((point.first_instruction is not None) == known for point in alone.points)


def test_attaching_is_the_default_where_its_package_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow.importlib.util, "find_spec", lambda name: name)
    assert flow._default(Method.DARTS) is Translator.ATTACH
    assert flow._default(Method.SIMPOINT) is Translator.QEMU
    monkeypatch.setattr(flow.importlib.util, "find_spec", lambda _: None)
    assert flow._default(Method.DARTS) is Translator.QEMU
