"""The real driver on made-up streams and kernels: buffers, gates, splits, evidence; times mean nothing."""

import pytest

from conccl.core.errors import InputError, WaitTimeoutError
from conccl.core.kinds import CollectiveKind, Memory
from conccl.core.measurement import Status
from conccl.core.ops import Collective, Copy, Gemm, Recurrent, RecurrentKind
from conccl.core.pair import Dependence, Pair
from conccl.core.plan import Part, Plan, Task
from conccl.costs.catalogue import load_device, system_of
from conccl.gpu import cuda_driver, work
from conccl.gpu.cuda_driver import CudaDriver
from conccl.gpu.executor import GpuExecutor
from conccl.gpu.measuring import measured
from conccl.gpu.sampling import Stopping
from conccl.strategies.choices import strategy
from conccl.strategies.lower import lower
from executor_contract import ExecutorContract
from gpu.fake_cuda import FakeCuda, FakeStream

pytestmark = pytest.mark.torch
H200 = load_device("h200-sxm")
SYSTEM = system_of(H200, gpus=8)
OUT = Copy(nbytes=1 << 12, destination=Memory.HOST)
GATHER = Collective(kind=CollectiveKind.ALL_GATHER, nbytes=1 << 12, ranks=8)


@pytest.fixture(autouse=True)
def cuda(monkeypatch):
    monkeypatch.setattr(work, "WHERE", "cpu")
    monkeypatch.setattr(cuda_driver, "_PATHS", {})
    monkeypatch.setattr(cuda_driver, "bypasses", lambda copy: copy(0) is None)
    return FakeCuda().install(monkeypatch, cuda_driver, work)


class TestCudaDriverKeepsTheContract(ExecutorContract):
    @pytest.fixture
    def run(self):
        return lambda plan: GpuExecutor(driver=CudaDriver(device=H200)).run(plan)


def outcome(name, communication=OUT, dependence=Dependence.NONE, ranks=(0,)):
    pair = Pair(compute=Gemm(m=64, n=32, k=16), communication=communication, dependence=dependence)
    plan = lower(pair, strategy(name), system=SYSTEM)
    executor = GpuExecutor(driver=CudaDriver(device=H200), ranks=ranks)
    return measured(plan, executor=executor, stopping=Stopping(fewest=2, most=3))


@pytest.mark.parametrize("communication", [OUT, GATHER, Copy(nbytes=1000)])
@pytest.mark.parametrize(
    ("name", "proved"),
    [("serial", None), ("baseline", None), ("prioritized:8", True), ("partitioned:16", True), ("ce", True)],
)
def test_every_strategy_runs_rightly_and_its_proof_is_looked_at(name, proved, communication):
    found = outcome(name, communication)
    assert (found.status, found.reason) == (Status.OK, "")
    assert found.proved is proved, found.proof


def test_prioritized_and_partitioned_together_prove_both(cuda):
    found = outcome("prioritized_partitioned:16")
    assert found.proved is True
    assert "disjoint" in found.proof
    assert "resident" in found.proof


def test_a_path_that_waits_for_sms_is_no_copy_engine(monkeypatch):
    monkeypatch.setattr(cuda_driver, "bypasses", lambda _copy: False)
    assert outcome("ce").proved is False


def test_each_path_is_tried_once_in_a_process(monkeypatch):
    tried = []
    monkeypatch.setattr(cuda_driver, "bypasses", lambda _copy: tried.append(1) or True)
    outcome("ce")
    outcome("ce")
    outcome("ce", Copy(nbytes=64, source=Memory.HOST))
    assert len(tried) == 2


@pytest.mark.parametrize("name", ["chunked:4", "ce"])
def test_dependent_pairs_run_in_chunks(name):
    assert outcome(name, dependence=Dependence.COMPUTE_FEEDS_COMMUNICATION).status is Status.OK


def test_virtual_ranks_run_in_one_process(cuda):
    assert outcome("baseline", GATHER, ranks=None).status is Status.OK
    keys = len(cuda.streams)
    assert keys >= 16


def test_shared_sms_of_a_copy_kernel_are_found(monkeypatch, cuda):
    cuda.sms = 4
    found = outcome("prioritized:8")
    assert found.status is Status.WRONG_RESULT
    assert "4 of the copy kernel's 8 CTAs shared an SM" in found.reason


def test_a_limit_on_sms_is_a_group_of_so_many(cuda):
    plan = Plan(tasks=(Task(id="gemm", op=Gemm(m=8, n=8, k=8), sms=124),))
    GpuExecutor(driver=CudaDriver(device=H200)).run(plan)
    assert [len(group) for group in cuda.groups.values()] == [120, 12]


def test_more_groups_than_one_split_makes_are_refused():
    gemm = Gemm(m=8, n=8, k=8)
    tasks = tuple(Task(id=name, op=gemm, lane=name, partition=name) for name in "abc")
    three = Plan(tasks=tasks, partitions=dict.fromkeys("abc", 8))
    both = Plan(tasks=(tasks[0], Task(id="d", op=gemm, lane="d", sms=64)), partitions={"a": 8})
    for plan in (three, both):
        with pytest.raises(InputError, match="splits SMs"):
            GpuExecutor(driver=CudaDriver(device=H200)).run(plan)


def test_a_binding_stands_for_an_op_that_the_executor_does_not_know():
    op = Recurrent(kind=RecurrentKind.LSTM, batch=1, steps=1, input_size=4, hidden_size=4)
    plan = Plan(tasks=(Task(id="lstm", op=op),))
    with pytest.raises(InputError, match="binding"):
        GpuExecutor(driver=CudaDriver(device=H200)).run(plan)
    ran = []
    driver = CudaDriver(device=H200, bindings={"lstm": lambda task: ran.append(task.id)})
    assert len(GpuExecutor(driver=driver).run(plan)) == 1
    assert ran == ["lstm"]
    parted = Plan(tasks=(Task(id="lstm", op=op, parts=(Part(start=0, stop=1), Part(start=1, stop=2))),))
    with pytest.raises(InputError, match="as a whole"):
        GpuExecutor(driver=driver).run(parted)


def test_streams_that_never_finish_are_named(monkeypatch):
    monkeypatch.setattr(FakeStream, "query", lambda _self: False)
    plan = Plan(tasks=(Task(id="gemm", op=Gemm(m=8, n=8, k=8), lane="compute"),))
    with pytest.raises(WaitTimeoutError, match="rank 0 lane compute"):
        GpuExecutor(driver=CudaDriver(device=H200), patience_s=0.01).run(plan)
