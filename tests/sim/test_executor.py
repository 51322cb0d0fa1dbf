"""The simulated executor: the contract, and times that can be worked out by hand."""

import pytest

from conccl.costs.catalogue import load_device, system_of
from conccl.sim.executor import SimExecutor
from executor_contract import ExecutorContract
from made_kernels import made_collective


class TestSimExecutorKeepsTheContract(ExecutorContract):
    @pytest.fixture
    def run(self):
        system = system_of(load_device("h200-sxm"), gpus=8)
        executor = SimExecutor(system=system, kernels_of=lambda *_: (), collective_cost=made_collective)
        return executor.run
