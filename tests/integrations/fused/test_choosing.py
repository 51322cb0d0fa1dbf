"""What "auto" means here: serial without costs, what was measured where something was."""

import pytest
import torch

from conccl.core.errors import InputError
from conccl.core.kinds import DType
from conccl.integrations.fused import choosing
from conccl.strategies.ways import Chunked, Serial, Tracked
from conccl.tune.fused_problem import Call
from conccl.tune.fused_table import Row, Table, write_table

pytestmark = pytest.mark.torch

SHAPE = {"m": 4096, "n": 256, "k": 512, "world": 2, "dtype": torch.float32, "device": torch.device("cpu")}


def row(way, us):
    sizes = {"m": 4096, "n": 256, "k": 512, "world": 2, "dtype": DType.FP32}
    return Row(call=Call.GEMM_REDUCE_SCATTER, way=way, ns=us * 1000, **sizes)


@pytest.fixture(autouse=True)
def _nothing_measured(monkeypatch):
    monkeypatch.setattr(choosing, "_tables", {})
    choosing._choice.cache_clear()
    yield
    choosing._choice.cache_clear()


def test_a_cpu_has_no_costs():
    choice = choosing.choice_of("gemm_reduce_scatter", **SHAPE)
    assert choice.way == Serial()
    assert "neither costs of this device nor measurements" in choice.reason


def test_measurements_of_this_device_decide(tmp_path):
    path = tmp_path / "table.json"
    write_table(path, Table(device="cpu", rows=(row(Serial(), 200), row(Chunked(chunks=4), 100))))
    choosing.use_measurements(path)
    choosing.use_measurements(Table(device="another", rows=(row(Tracked(chunks=8), 1),)))
    choice = choosing.choice_of("gemm_reduce_scatter", **SHAPE)
    assert choice.way == Chunked(chunks=4)
    assert choice.reason == "2.00x over serial (measured at 4096x256x512)."
    choosing.use_measurements(Table(device="cpu", rows=(row(Chunked(chunks=4), 300),)))
    assert choosing.choice_of("gemm_reduce_scatter", **SHAPE).way == Serial()


def test_a_table_without_a_device_is_refused():
    with pytest.raises(InputError, match="names no device"):
        choosing.use_measurements(Table())


def test_batches_of_changing_length_are_few_kinds_of_calls():
    kinds = {choosing._rounded(rows) for rows in range(4097)}
    assert len(kinds) <= 16 + 8 * 9
    assert all(rows <= choosing._rounded(rows) <= max(1, rows * 9 / 8) for rows in range(4097))


def test_an_h200_is_known_by_its_drivers_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    shape = {**SHAPE, "m": 8192, "n": 8192, "k": 3584, "world": 8, "dtype": torch.bfloat16}
    choice = choosing.choice_of("gemm_reduce_scatter", **{**shape, "device": torch.device("cuda", 0)})
    assert isinstance(choice.way, Chunked)  # tracked has not been measured
    assert "over serial (simulated; GEMM" in choice.reason
