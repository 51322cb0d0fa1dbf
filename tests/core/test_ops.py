import pytest

from conccl.core.errors import InputError
from conccl.core.ops import (
    Convolution,
    DType,
    Gather,
    Gemm,
    GroupedGemm,
    Layout,
    Op,
    OptimizerKind,
    OptimizerStep,
    Order,
    OrderKind,
    Pass,
    Pooling,
    Recurrent,
    RecurrentKind,
)
from conccl.core.plan import Plan, Task
from conccl.core.records import from_json_value, to_json_value


def convolution(**fields: object) -> Convolution:
    """ResNet's first layer."""
    given = {
        "batch": 1,
        "in_channels": 3,
        "out_channels": 64,
        "in_size": (224, 224),
        "kernel_size": (7, 7),
        "stride": (2, 2),
        "padding": (3, 3),
        "dilation": (1, 1),
    }
    return Convolution(**(given | fields))


def test_a_convolution_is_the_gemm_that_it_becomes():
    op = convolution()
    assert op.out_size == (112, 112)
    assert op.flops == 2 * 112 * 112 * 64 * 3 * 49
    assert op.nbytes == 2 * (3 * 224 * 224 + 64 * 3 * 49 + 64 * 112 * 112)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"stride": (2,)}, "a number for each"),
        ({"stride": (0, 1)}, "1 or more"),
        ({"groups": 2}, "do not divide"),
        ({"in_size": (2, 2), "padding": (0, 0)}, "smaller than its kernel"),
        ({"batch": 0}, "must be 1 or more"),
    ],
)
def test_an_impossible_convolution_is_refused(fields, said):
    with pytest.raises(InputError, match=said):
        convolution(**fields)


def test_a_recurrent_network_counts_every_weight_each_step():
    op = Recurrent(kind=RecurrentKind.LSTM, batch=2, steps=3, input_size=4, hidden_size=5, layers=2)
    assert op.weight_numel == 4 * 5 * (4 + 5) + 4 * 5 * (5 + 5)
    assert op.flops == 2 * op.weight_numel * 6


def test_grouped_gemm_reads_only_the_matrices_in_use():
    op = GroupedGemm(rows=(2, 0, 3), n=8, k=16)
    assert op.flops == 2 * 5 * 8 * 16
    assert op.nbytes == 2 * (5 * 16 + 2 * 8 * 16 + 5 * 8)


def test_fp8_writes_bf16():
    assert Gemm(m=1, n=1, k=1, dtype=DType.FP8_E4M3).output_dtype is DType.BF16
    assert Gemm(m=1, n=1, k=1, dtype=DType.FP8_E4M3, out_dtype=DType.FP32).output_dtype is DType.FP32


@pytest.mark.parametrize("m", [0, -1, float("nan")])
def test_a_size_must_be_a_size(m):
    with pytest.raises(InputError, match=r"Gemm\.m"):
        Gemm(m=m, n=1, k=1)


OPS: list[Op] = [
    convolution(),
    GroupedGemm(rows=(1, 0), n=2, k=3),
    Gemm(m=1, n=2, k=3, layout=Layout.TN),
    Recurrent(kind=RecurrentKind.GRU, batch=1, steps=1, input_size=1, hidden_size=1),
    Gather(rows=5, cols=6, table_rows=7, direction=Pass.BACKWARD),
    Pooling(batch=1, channels=2, in_size=(4, 4), out_size=(2, 2), window=4),
    Order(kind=OrderKind.TOPK, rows=2, cols=9),
    OptimizerStep(kind=OptimizerKind.ADAM, numel=10),
]


@pytest.mark.parametrize("op", OPS, ids=lambda op: type(op).__name__)
def test_ops_round_trip_in_plans(op):
    plan = Plan(tasks=(Task(id="a", op=op),))
    assert from_json_value(to_json_value(plan), Plan) == plan
