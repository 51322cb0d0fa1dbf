import math
import re

import pytest

from conccl.core.errors import UnknownNameError
from conccl.core.ops import Collective, CollectiveKind
from conccl.costs.catalogue import load_device
from conccl.costs.collective import collective_cost
from conccl.costs.kernel import CtaGroup, CtaWork, Footprint, kernel_cost
from conccl.costs.kernels import MODELS, kernels_of, register
from conccl.costs.prediction import mape_percent, predict_rows

H200 = load_device("h200-sxm")
ROW = {"op": "all_reduce", "nbytes": 1 << 20, "ranks": 8}


def test_rows_are_predicted_one_by_one():
    op = Collective(kind=CollectiveKind.ALL_REDUCE, nbytes=1 << 20, ranks=8)
    (prediction,) = predict_rows([ROW | {"us": 30.0}], H200)
    assert prediction.predicted_us == pytest.approx(collective_cost(op, H200).time_ns / 1e3, rel=0.001)
    assert prediction.error_percent == pytest.approx(100 * (prediction.predicted_us / 30 - 1))
    assert prediction.uncertainty == pytest.approx(0.064, abs=0.02)
    assert mape_percent([prediction]) == abs(prediction.error_percent)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"op": "all_reduce", "ranks": 8}, "row 1: nbytes is missing"),
        ({"op": "all_reduse", "nbytes": 8, "ranks": 8}, "row 1: unknown op .* all_reduce"),
        (ROW | {"us": math.nan}, "row 1: us is nan"),
        (ROW | {"us": 0}, "row 1: us is 0"),
        (ROW | {"us": "fast"}, "row 1: us is 'fast'"),
        ([1, 2], "row 1 is list; it must be an object"),
        (None, "row 1 is NoneType"),
        ({}, "row 1: the row names no op"),
        (ROW | {"ranks": 60}, "row 1: 60 ranks"),
    ],
)
def test_a_bad_row_is_named_and_the_others_go_on(bad, said):
    device = load_device("t3-80cu") if "60 ranks" in said else H200
    first, second, third = predict_rows([ROW, bad, ROW], device)
    assert second.predicted_us is None
    assert second.problem
    assert re.search(said, second.problem), second.problem
    assert first.predicted_us == third.predicted_us is not None


def test_nothing_measured_has_no_error():
    assert mape_percent(predict_rows([ROW], H200)) is None


class Mine:
    """An op that nobody knows."""


def test_users_add_models_of_their_own():
    op = Mine()
    with pytest.raises(UnknownNameError, match="Mine"):
        kernels_of(op, H200)

    def model(op, device):
        group = CtaGroup(count=132, work=CtaWork(sm_ns=500))
        return (
            kernel_cost(
                "mine",
                device=device,
                groups=(group,),
                footprint=Footprint(threads=128),
                fixed_ns=10,
                uncertainty=0.5,
            ),
        )

    try:
        register(Mine, model)
        (kernel,) = kernels_of(op, H200)
        assert kernel.isolated_ns == 510
    finally:
        del MODELS[Mine]
        kernels_of.cache_clear()
