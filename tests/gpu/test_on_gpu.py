"""What needs a GPU: the contract, cells of every strategy with their proofs, and the doctor's probes."""

import pytest
import torch

from conccl.core.kinds import CollectiveKind, Memory
from conccl.core.measurement import Status
from conccl.core.ops import Collective, Copy, Gemm
from conccl.core.pair import Pair
from conccl.costs.catalogue import device_names, load_device, system_of
from conccl.gpu.bench import open_bench
from conccl.gpu.cuda_driver import CudaDriver
from conccl.gpu.doctor import PROBES
from conccl.gpu.executor import GpuExecutor
from conccl.gpu.findings import State
from conccl.gpu.probing import probed
from conccl.strategies.choices import strategy
from conccl.strategies.lower import lower
from executor_contract import ExecutorContract

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here"),
]


def here():
    """The known device that this GPU is."""
    name = torch.cuda.get_device_name(0).lower()
    known = next((one for one in device_names() if one.partition("-")[0] in name), None)
    if known is None:
        pytest.skip(f"{name} is no device of the catalogue")
    return load_device(known)


class TestCudaDriverKeepsTheContract(ExecutorContract):
    @pytest.fixture
    def run(self):
        return lambda plan: GpuExecutor(driver=CudaDriver(device=here())).run(plan)


@pytest.fixture(scope="module")
def bench():
    return open_bench(device=here(), gpus=1)


@pytest.mark.parametrize("name", ["serial", "baseline", "prioritized:8", "partitioned:16", "ce"])
@pytest.mark.parametrize("source", [Memory.HOST, Memory.DEVICE])
def test_a_host_transfer_beside_a_gemm_is_right_and_proved(bench, name, source):
    copy = Copy(
        nbytes=32 << 20,
        source=source,
        destination=Memory.DEVICE if source is Memory.HOST else Memory.HOST,
    )
    pair = Pair(compute=Gemm(m=4096, n=8192, k=4096), communication=copy)
    plan = lower(pair, strategy(name), system=system_of(here(), gpus=1))
    found = bench.measure(plan, label=name)
    assert found.status is Status.OK, found.reason
    assert found.proved is not False, found.proof
    assert found.relative_iqr < 0.2


def test_copy_engines_inside_memory_are_found_out(bench):
    """On an H200 they run on SMs; where they do not, the proof may hold."""
    gather = Collective(kind=CollectiveKind.ALL_GATHER, nbytes=64 << 20, ranks=8)
    pair = Pair(compute=Gemm(m=4096, n=8192, k=4096), communication=gather)
    found = bench.measure(lower(pair, strategy("ce"), system=system_of(here(), gpus=8)), label="ce")
    assert found.status is Status.OK, found.reason
    if "h200" in here().name:
        assert found.proved is False


def test_memory_that_is_not_there_is_a_status(bench):
    pair = Pair(
        compute=Gemm(m=1 << 19, n=1 << 18, k=1024), communication=Copy(nbytes=1 << 20, source=Memory.HOST)
    )
    plan = lower(pair, strategy("serial"), system=system_of(here(), gpus=1))
    assert bench.measure(plan, label="huge").status is Status.OUT_OF_MEMORY


@pytest.mark.parametrize("name", PROBES)
def test_every_probe_ends_and_finds_something(name):
    found = list(probed([name]))
    assert found
    assert not [one for one in found if one.state in (State.FAILED, State.HUNG)], found
