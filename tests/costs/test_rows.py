import math

import pytest

from conccl.core.errors import InputError, UnknownNameError
from conccl.core.ops import (
    Attention,
    Collective,
    CollectiveKind,
    Convolution,
    ConvolutionPass,
    DType,
    Elementwise,
    Gather,
    Gemm,
    Layout,
    Pass,
    Recurrent,
    Rowwise,
    RowwiseKind,
)
from conccl.costs.rows import MAKERS, ops_of_row


def one(**row):
    (op,) = ops_of_row(row)
    return op


def test_a_row_with_m_n_k_is_a_gemm():
    assert one(m=1, n=2, k=3) == Gemm(m=1, n=2, k=3)
    assert one(m=1, n=2, k=3, dtype="fp8_e4m3", layout="tn", batch=4, family="x", us=3.0) == Gemm(
        m=1, n=2, k=3, dtype=DType.FP8_E4M3, layout=Layout.TN, batch=4
    )


def test_elementwise_rows_count_what_they_read_and_write():
    add = one(op="add", numel=100, dtype="fp32")
    assert (add.read_nbytes, add.written_nbytes, add.numel) == (800, 400, 100)
    gelu = one(op="gelu", numel=100, direction="backward")
    assert (gelu.name, gelu.read_nbytes, gelu.written_nbytes) == ("gelu_backward", 400, 200)
    assert one(op="fill", numel=100).read_nbytes == 0
    assert one(op="cast", numel=100, dtype="int64", to="fp32").nbytes == 1200


def test_layers():
    assert one(op="sdpa", b=1, h=32, s=2048, d=128, causal=True) == Attention(
        batch=1, heads=32, kv_heads=32, queries=2048, keys=2048, head_dim=128, causal=True
    )
    assert one(op="batch_norm", n=2, c=3, h=4, w=5) == Rowwise(
        kind=RowwiseKind.BATCH_NORM, rows=3, cols=40, together=20
    )
    convolution = one(op="conv2d", n=2, c=3, h=8, w=8, out=4, kernel=3, padding=0, direction="wgrad")
    assert isinstance(convolution, Convolution)
    assert convolution.direction is ConvolutionPass.WEIGHT_GRADIENT
    assert convolution.out_size == (6, 6)
    training = ops_of_row({"op": "lstm", "b": 1, "t": 2, "i": 3, "h": 4, "direction": "training"})
    assert [op.direction for op in training if isinstance(op, Recurrent)] == [Pass.FORWARD, Pass.BACKWARD]
    assert isinstance(one(op="embedding", vocabulary=10, width=4, tokens=3), Gather)
    assert one(op="all_reduce", nbytes=8, ranks=2) == Collective(
        kind=CollectiveKind.ALL_REDUCE, nbytes=8, ranks=2
    )
    assert len(ops_of_row({"op": "cross_entropy", "rows": 4, "cols": 8})) == 2
    assert isinstance(one(op="where", numel=3), Elementwise)


@pytest.mark.parametrize("bad", [0, -1, 1.5, math.nan, math.inf, "8", None, True, [3]])
def test_a_size_that_is_none_is_named(bad):
    with pytest.raises(InputError, match="n is"):
        ops_of_row({"m": 1, "n": bad, "k": 1})


def test_near_names_are_offered():
    with pytest.raises(UnknownNameError, match="layer_norm"):
        ops_of_row({"op": "layernorm", "rows": 1, "cols": 1})
    with pytest.raises(UnknownNameError, match="bf16"):
        ops_of_row({"m": 1, "n": 1, "k": 1, "dtype": "bfloat16"})
    with pytest.raises(UnknownNameError, match=r"layout.*nt"):
        ops_of_row({"m": 1, "n": 1, "k": 1, "layout": "ntt"})


def test_a_row_of_nothing():
    with pytest.raises(InputError, match="names no op"):
        ops_of_row({"us": 3})
    with pytest.raises(InputError, match="must be true or false"):
        ops_of_row({"op": "sdpa", "b": 1, "h": 1, "s": 1, "d": 1, "causal": "yes"})


@pytest.mark.parametrize("name", MAKERS)
def test_every_op_says_what_it_misses(name):
    with pytest.raises(InputError, match="is missing"):
        ops_of_row({"op": name})
