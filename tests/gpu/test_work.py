"""Ops as launches: parts cover everything once, and wrong results are found (on the CPU, through PyTorch)."""

import pytest
import torch

from conccl.core.errors import InputError
from conccl.core.kinds import DType, Memory, RowwiseKind
from conccl.core.ops import (
    Attention,
    Copy,
    Elementwise,
    Gemm,
    GroupedGemm,
    Move,
    Reduce,
    Region,
    Rowwise,
    Signal,
)
from conccl.core.plan import Engine, Task
from conccl.costs.catalogue import load_device
from conccl.gpu import work as module
from conccl.gpu.work import CopyKernelWork, DriverCopyWork, work_of

pytestmark = pytest.mark.torch
H200 = load_device("h200-sxm")


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch):
    monkeypatch.setattr(module, "WHERE", "cpu")


def made(op, **fields):
    return work_of(Task(id="t", op=op, **fields), H200)


def run(work, parts=1):
    for part in range(parts):
        work.launch(part, parts)


@pytest.mark.parametrize("parts", [1, 3, 8])
@pytest.mark.parametrize("op", [Gemm(m=37, n=24, k=16), Gemm(m=8, n=24, k=16, batch=3, dtype=DType.FP32)])
def test_gemms_are_right_however_many_parts(op, parts):
    work = made(op)
    for _ in range(len(work.sets)):
        work.next_turn()
        run(work, parts)
        assert work.wrong() == ""
        a, b, out = work.now
        assert torch.allclose(out.float(), (a.float() @ b.float().transpose(1, 2)), rtol=0.05, atol=0.2)


def test_a_wrong_gemm_is_found():
    work = made(Gemm(m=32, n=24, k=16))
    run(work)
    work.now[2][0, 3, 5] += 50
    assert "rows are off by" in work.wrong()


def test_operands_take_turns():
    work = made(Gemm(m=32, n=24, k=16))
    first = work.now
    work.next_turn()
    assert work.now is not first


@pytest.mark.parametrize("parts", [1, 4])
def test_additions_and_copies_cover_all_elements(parts):
    for op in (
        Elementwise(name="add", read_nbytes=4000, written_nbytes=2000),
        Elementwise(name="copy", read_nbytes=2000, written_nbytes=2000),
    ):
        work = made(op)
        run(work, parts)
        inputs, out = work.now
        expected = inputs[0] + inputs[1] if len(inputs) == 2 else -inputs[0]
        assert torch.equal(out, expected)


def test_rowwise_ops_and_attention_run():
    for kind in (RowwiseKind.RMS_NORM, RowwiseKind.LAYER_NORM, RowwiseKind.SOFTMAX):
        run(made(Rowwise(kind=kind, rows=12, cols=16)), 3)
    attention = Attention(batch=1, heads=4, kv_heads=2, queries=8, keys=8, head_dim=16)
    run(made(attention))
    with pytest.raises(InputError, match="whole"):
        run(made(attention), 2)


@pytest.mark.parametrize("parts", [1, 5])
@pytest.mark.parametrize("nbytes", [0, 1, 1000, 4096])
def test_engine_copies_move_every_byte(nbytes, parts):
    for op in (
        Copy(nbytes=nbytes, destination=Memory.HOST),
        Move(
            source=Region(rank=0, buffer="a", offset=0, nbytes=nbytes),
            destination=Region(rank=1, buffer="b", offset=0, nbytes=nbytes),
        ),
    ):
        work = made(op, engine=Engine.COPY_ENGINE)
        if nbytes > 100:
            assert "differ" in work.wrong()
        run(work, parts)
        assert work.wrong() == ""


def test_unlimited_copies_inside_memory_are_the_drivers():
    assert isinstance(made(Copy(nbytes=100)), DriverCopyWork)
    assert isinstance(made(Copy(nbytes=100), sms=8), CopyKernelWork)


def test_copies_by_sms_take_as_many_ctas_as_the_task_may_have():
    assert made(Copy(nbytes=100), sms=24).ctas == 24
    assert isinstance(made(Copy(nbytes=100, source=Memory.HOST)), CopyKernelWork)
    assert made(Copy(nbytes=100, source=Memory.HOST)).ctas == 8


def test_reductions_add_all_sources_and_signals_do_nothing():
    region = Region(rank=0, buffer="a", offset=0, nbytes=200)
    work = made(Reduce(sources=(region, region, region), destination=region, dtype=DType.BF16))
    run(work, 2)
    assert torch.allclose(work._out.float(), sum(s.float() for s in work._sources), atol=0.1)
    run(made(Signal()))


def test_what_it_cannot_run_says_what_to_do():
    for op in (
        GroupedGemm(rows=(1, 2), n=8, k=8),
        Gemm(m=1, n=1, k=1, dtype=DType.INT8),
        Copy(nbytes=1, source=Memory.PEER),
        Elementwise(name="x", read_nbytes=10, written_nbytes=999),
    ):
        with pytest.raises(InputError):
            made(op)
