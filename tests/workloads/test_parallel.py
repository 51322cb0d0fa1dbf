"""Degrees that fit, and what is said of those that do not."""

from __future__ import annotations

import pytest

from conccl.core.errors import InputError
from conccl.workloads.models import model
from conccl.workloads.parallel import Parallelism


def test_degrees_that_fit() -> None:
    Parallelism(tp=8, pp=4, fsdp=4).require_fits(model("llama3-70b"), gpus=128)


@pytest.mark.parametrize(
    ("degrees", "message"),
    [
        ({"tp": 3}, "--tp 3 does not divide 64 heads. These fit: 1, 2, 4, 8"),
        ({"pp": 7}, "--pp 7 does not divide 80 layers"),
        ({"ep": 2}, "has no experts"),
    ],
)
def test_degrees_that_do_not_divide(degrees: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Parallelism(**degrees).require_fits(model("llama3-70b"))


def test_product_must_be_the_gpu_count() -> None:
    with pytest.raises(InputError, match="With --fsdp 128 it fits"):
        Parallelism(tp=8).require_fits(model("llama3-70b"), gpus=1024)


def test_experts_need_data_parallel_ranks() -> None:
    with pytest.raises(InputError, match="data-parallel ranks"):
        Parallelism(ep=8).require_fits(model("mixtral-8x7b"))
    Parallelism(ep=8, fsdp=8).require_fits(model("mixtral-8x7b"), gpus=8)


def test_degrees_below_one() -> None:
    with pytest.raises(InputError, match="--tp is 0"):
        Parallelism(tp=0)


def test_sharding_divides_parameters() -> None:
    llama = model("llama3-8b")
    assert Parallelism(fsdp=8).parameters_per_gpu(llama) == pytest.approx(llama.parameters / 8, rel=1e-6)
