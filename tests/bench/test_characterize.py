"""Pairs by strategies, on a simulator and on a fake."""

import pytest

from conccl.bench.bench import ExactBench
from conccl.bench.characterize import Characterizer, pair_key, require_memory
from conccl.bench.store import Store
from conccl.core.errors import InputError
from conccl.core.hardware import System
from conccl.core.kinds import CollectiveKind
from conccl.core.measurement import Environment, Status
from conccl.core.metrics import PairClass
from conccl.core.ops import Collective, Gemm
from conccl.core.pair import Pair
from conccl.sim.executor import SimExecutor
from conccl.strategies.choices import strategy
from made_kernels import device, made_collective, tiled_gemms

SYSTEM = System(device=device(), gpus=4)
HERE = Environment(executor="sim", device="round", gpus=4)
NAMES = ("serial", "baseline", "prioritized", "ce", "chunked")


def pair(m: int = 2560, nbytes: int = 64 << 20, source: str = "") -> Pair:
    return Pair(
        compute=Gemm(m=m, n=2560, k=2048),
        communication=Collective(kind=CollectiveKind.ALL_GATHER, nbytes=nbytes, ranks=4),
        source=source,
    )


class CountingExecutor:
    def __init__(self):
        self.inner = SimExecutor(system=SYSTEM, kernels_of=tiled_gemms, collective_cost=made_collective)
        self.runs = 0

    def run(self, plan):
        self.runs += 1
        return self.inner.run(plan)


def characterizer(executor=None, store=None, names=NAMES) -> Characterizer:
    executor = executor or CountingExecutor()
    return Characterizer(
        bench=ExactBench(executor=executor, environment=HERE),
        system=SYSTEM,
        kernels_of=tiled_gemms,
        strategies={name: lambda _pair, _system, name=name: strategy(name) for name in names},
        store=store,
    )


def test_a_pair_is_measured_alone_and_by_every_strategy():
    result = characterizer().pair(pair())
    assert result.alone is not None
    assert list(result.strategies) == list(NAMES)
    serial = result.strategies["serial"].overlap
    assert serial is not None
    assert serial.concurrent_ns == pytest.approx(result.alone.serial_ns, rel=0.001)
    ce = result.strategies["ce"].overlap
    assert ce is not None
    assert ce.speedup > serial.speedup


def test_a_strategy_that_a_pair_cannot_have_is_unsupported_and_not_averaged():
    found = characterizer().characterize([pair()])
    chunked = found.pairs[0].strategies["chunked"]
    assert chunked.measurement.status is Status.UNSUPPORTED
    assert "independent" in chunked.measurement.reason
    assert found.average_fraction("chunked") is None
    assert found.average_fraction("ce") == found.pairs[0].strategies["ce"].overlap.fraction_of_ideal


def test_averages_go_by_class():
    found = characterizer(names=("ce",)).characterize([pair(), pair(m=25600), pair(nbytes=1 << 20)])
    classes = [one.pair_class for one in found.pairs]
    for class_ in PairClass:
        fractions = found.fractions("ce", of=class_)
        assert len(fractions) <= classes.count(class_)
    assert len(found.fractions("ce")) == sum(len(found.fractions("ce", of=class_)) for class_ in PairClass)


def test_an_interrupted_sweep_goes_on_where_it_stopped(tmp_path):
    class Interrupting(CountingExecutor):
        def run(self, plan):
            if self.runs == 4:
                raise KeyboardInterrupt
            return super().run(plan)

    path = tmp_path / "store.jsonl"
    with pytest.raises(KeyboardInterrupt):
        characterizer(Interrupting(), Store(path, environment=HERE)).characterize([pair(), pair(m=1280)])
    second = CountingExecutor()
    found = characterizer(second, Store(path, environment=HERE)).characterize([pair(), pair(m=1280)])
    assert second.runs == 2 * (len(NAMES) - 1 + 2) - 4  # chunked never reaches an executor
    third = CountingExecutor()
    again = characterizer(third, Store(path, environment=HERE)).characterize([pair(), pair(m=1280)])
    assert third.runs == 0
    assert again == found == characterizer().characterize([pair(), pair(m=1280)])


def test_a_pair_beyond_memory_is_skipped_and_the_others_are_not():
    huge = pair(m=10_000_000, source="too large")
    found = characterizer().characterize([huge, pair()])
    assert len(found.pairs) == 1
    (skipped,) = found.skipped
    assert skipped.source == "too large"
    with pytest.raises(InputError, match=r"needs .* and round has 16 GiB: .* too much"):
        require_memory(huge, SYSTEM)


def test_a_pairs_key_does_not_depend_on_its_name():
    assert pair_key(pair(source="a")) == pair_key(pair(source="b"))
    assert pair_key(pair()) != pair_key(pair(m=1280))
