"""FSDP2, DDP and the functions with real processes: losses are those of the stock path, bit for bit."""

import pytest

from integrations import training_jobs as jobs
from ranks import run_ranks

pytestmark = pytest.mark.torch


def test_fsdp2_trains_to_the_same_losses(tmp_path):
    """Two ranks: a sum of two is rounded alike in either order."""
    for stock, ours, calls in run_ranks(2, jobs.fsdp, tmp_path, timeout_s=120):
        assert len(ours) == jobs.STEPS
        assert ours == stock
        assert ours[-1] < ours[0] / 2  # it learns
        assert calls > 3 * jobs.STEPS  # by our calls


def test_fsdp2_runs_on_a_mesh_of_the_backend(tmp_path):
    found = run_ranks(2, jobs.fsdp_alone, tmp_path)
    assert all(len(one) == 5 for one in found)


def test_ddp_trains_to_the_same_losses_by_hook_and_by_backend(tmp_path):
    for stock, by_hook, by_backend in run_ranks(2, jobs.ddp, tmp_path, timeout_s=120):
        assert by_hook == stock
        assert by_backend == stock


def test_functions_do_what_their_names_say(tmp_path):
    for told in run_ranks(3, jobs.functions, tmp_path):
        assert "the group's backend is 'gloo'; this takes a group of 'conccl'" in told
