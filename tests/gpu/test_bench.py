"""The bench: samples until the spread is small, results and proofs checked, processes that die or hang."""

import sys

import pytest

from conccl.core.errors import ExecutionError, InputError, MissingExtraError
from conccl.core.measurement import Environment, Status
from conccl.core.ops import Elementwise
from conccl.core.plan import Plan, Task
from conccl.costs.catalogue import load_device
from conccl.gpu.bench import GpuBench, _start, open_bench, require_device
from conccl.gpu.executor import GpuExecutor
from conccl.gpu.measuring import WARM_UP, measured
from conccl.gpu.sampling import Stopping, sample
from conccl.gpu.worker import Worker, WorkerDiedError
from gpu import worker_jobs as jobs
from gpu.fake_driver import FakeDriver

HERE = Environment(executor="gpu", device="fake")
PLAN = Plan(tasks=(Task(id="t", op=Elementwise(name="add", read_nbytes=8, written_nbytes=4)),))


def outcome(driver, **options):
    return measured(PLAN, executor=GpuExecutor(driver=driver), stopping=Stopping(fewest=3, most=9), **options)


def test_a_steady_cell_takes_the_fewest_samples_after_a_warm_up():
    driver = FakeDriver(ns={"t": 500})
    found = outcome(driver)
    assert found.samples_ns == (500, 500, 500)
    assert driver.runs == 3 + WARM_UP + 1


def test_a_noisy_cell_takes_as_many_as_allowed():
    driver = FakeDriver(ns={"t": 100}, jitter=lambda run: 100 * (run % 5))
    assert len(outcome(driver).samples_ns) == 9


def test_wrong_results_are_a_status_with_what_is_wrong():
    found = outcome(FakeDriver(wrong="t: bytes differ"))
    assert (found.status, found.reason) == (Status.WRONG_RESULT, "t: bytes differ")


def test_a_cell_is_repeated_once_where_clocks_fell():
    answers = [["software power cap"], []]
    driver = FakeDriver()
    assert outcome(driver, slowed=lambda: answers.pop(0)).status is Status.OK
    assert driver.runs == 2 * (3 + WARM_UP + 1)
    again = outcome(FakeDriver(), slowed=lambda: ["hardware slowdown"])
    assert again.status is Status.THROTTLED
    assert "hardware slowdown" in again.reason


def test_sampling_stops_by_time_too():
    found = sample(lambda: 600_000_000, stopping=Stopping(fewest=2, most=100, relative_iqr=1e-9, seconds=1.0))
    assert len(found) == 2
    with pytest.raises(InputError):
        Stopping(fewest=5, most=4)


@pytest.fixture(scope="module")
def bench():
    worker = Worker(jobs.start)
    yield GpuBench(worker=worker, environment=HERE, seconds=2.0)
    worker.close()


def plan(label):
    return Plan(tasks=PLAN.tasks, label=label)


@pytest.mark.parametrize(
    ("label", "status", "says"),
    [
        ("die", Status.CRASHED, "signal 9"),
        ("exit", Status.CRASHED, "code 3"),
        ("memory", Status.OUT_OF_MEMORY, "8 GiB"),
        ("fault", Status.CRASHED, "illegal memory access"),
        ("wait", Status.TIMEOUT, "rank 0 waits"),
        ("unsupported", Status.UNSUPPORTED, "Do this"),
    ],
)
def test_a_cell_that_fails_has_its_status_and_the_next_one_is_measured(bench, label, status, says):
    found = bench.measure(plan(label), label="cell")
    assert (found.status, found.samples_ns) == (status, ())
    assert says in found.reason
    after = bench.measure(plan(""), label="after")
    assert (after.status, after.samples_ns) == (Status.OK, (700, 700, 700))
    assert after.environment == HERE


def test_a_cell_that_hangs_is_stopped(bench):
    assert bench.measure(plan(""), label="warm").status is Status.OK
    found = bench.measure(plan("hang"), label="cell")
    assert found.status is Status.TIMEOUT
    assert "within 2 s" in found.reason


def test_a_worker_that_cannot_start_says_why():
    worker = Worker(jobs.failing_start)
    with pytest.raises((ExecutionError, WorkerDiedError), match="no kernel image"):
        worker.ask(1, seconds=5.0)
    worker.close()


def test_a_missing_extra_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "conccl.gpu.serving", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'conccl\[gpu\]'"):
        _start(device=load_device("h200-sxm"), gpus=1)


def test_times_of_one_gpu_are_not_filed_under_another():
    require_device("NVIDIA H200", load_device("h200-sxm"))
    with pytest.raises(InputError, match="NVIDIA A100"):
        require_device("NVIDIA A100-SXM4-80GB", load_device("h200-sxm"))


@pytest.mark.torch
def test_without_a_gpu_the_bench_says_what_to_use():
    import torch  # noqa: PLC0415

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(InputError, match=r"no GPU can be used here.*--executor sim"):
        open_bench(device=load_device("h200-sxm"), gpus=1)
