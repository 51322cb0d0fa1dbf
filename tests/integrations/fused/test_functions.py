"""Fused operators with real processes: right by every way, with gradients, and never a hang."""

import pytest
import torch

from integrations.fused import fused_jobs as jobs
from ranks import outcomes, run_ranks

pytestmark = pytest.mark.torch

EACH = len(jobs.SHAPES) * len(jobs.WAYS) * 5


@pytest.mark.parametrize(("backend", "count"), [("conccl", 1), ("conccl", 2), ("conccl", 3), ("gloo", 4)])
def test_results_are_those_of_float64_by_every_way(tmp_path, backend, count):
    dtypes = [torch.float32, torch.bfloat16] if count % 2 else [torch.float16, torch.float64]
    assert run_ranks(count, jobs.results, tmp_path, backend, dtypes) == [2 * EACH] * count


def test_ranks_that_are_held_up_at_random_change_nothing(tmp_path):
    assert run_ranks(3, jobs.repeated, tmp_path, "conccl", 20) == [100] * 3


@pytest.mark.soak
@pytest.mark.parametrize(("backend", "count"), [("conccl", 2), ("conccl", 4), ("gloo", 3)])
def test_five_hundred_repeats(tmp_path, backend, count):
    assert run_ranks(count, jobs.repeated, tmp_path, backend, 500, timeout_s=280) == [2500] * count


@pytest.mark.parametrize(("backend", "count"), [("conccl", 2), ("gloo", 3)])
def test_gradients_are_those_of_plain_ops(tmp_path, backend, count):
    assert run_ranks(count, jobs.gradients, tmp_path, backend) == [3 * 3 * 2 * 4] * count


def test_gradients_are_those_of_differences_on_one_rank(tmp_path):
    run_ranks(1, jobs.checked_gradients, tmp_path)


def test_custom_ops_pass_pytorchs_own_checks(tmp_path):
    assert all(run_ranks(2, jobs.operators_are_sound, tmp_path))


@pytest.mark.parametrize(("backend", "count"), [("conccl", 2), ("gloo", 3)])
def test_layers_are_those_of_the_whole_model(tmp_path, backend, count):
    assert run_ranks(count, jobs.layers, tmp_path, backend) == [36] * count


def test_compiled_code_computes_the_same(tmp_path):
    """Takes seconds: torch.compile traces forward and backward in both processes."""
    assert all(run_ranks(2, jobs.compiled, tmp_path, "conccl", timeout_s=120))


REFUSED = {
    "k": "InputError: x is (4, 3) and weight (5, 4): the last dimensions must be equal",
    "dtype": "InputError: weight is torch.float64 on cpu; it must be torch.float32 on cpu",
    "bias": "InputError: bias is (4,); it must be (5,)",
    "int": "InputError: x is torch.int32; it must be one of",
    "vector": "InputError: x is (3,) and weight (5, 3)",
    "activation": "UnknownNameError: unknown activation 'gelo'. Did you mean gelu",
    "way": "UnknownNameError: unknown way 'chunky:3'. Did you mean chunked",
    "number": "InputError: 1 chunks: give 2 or more, or use serial",
    "order": "InputError: gemm_all_reduce sends all rows to all ranks",
    "tracked": "InputError: gemm_reduce_scatter by tracked needs a CUDA GPU",
    "group": "InputError: no process group is called 'nobody' here",
    "not a member": "InputError: group is",
    "rows": "InputError: all_gather_gemm: rank",
    "first dimension": "InputError: x is (3, 2, 3): its first dimension is divided among 2 ranks",
    "features": "InputError: RowParallelLinear(3, 4) over 2 ranks: 3 is no multiple of 2",
    "m differs": "DisagreementError",
    "dtype differs": "DisagreementError",
    "way differs": "DisagreementError",
    "call differs": "DisagreementError",
}


def test_what_cannot_be_is_refused_on_all_ranks_and_the_group_goes_on(tmp_path):
    for rank, told in enumerate(run_ranks(2, jobs.refused, tmp_path)):
        for name, words in REFUSED.items():
            assert told[name].startswith(words), (name, told[name])
        assert f"rank {rank} calls gemm_reduce_scatter m={4 + 2 * rank} n=5 k=3" in told["m differs"]
        assert told.keys() == REFUSED.keys()


@pytest.mark.parametrize("backend", ["conccl", "gloo"])
@pytest.mark.parametrize("how", ["dies", "stays away"])
def test_a_rank_that_is_gone_ends_in_an_error_that_says_where(tmp_path, backend, how):
    first, second, _ = outcomes(3, jobs.left_alone, tmp_path, backend, how)
    for rank, one in enumerate((first, second)):
        assert not one.error, one.trace
        words, seconds = one.value
        assert "gemm_reduce_scatter, chunk " in words, words
        assert f" of 4, rank {rank} of 3: " in words, words
        assert seconds < 6
