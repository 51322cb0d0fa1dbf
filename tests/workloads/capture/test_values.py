"""Small tensors of integers are followed exactly; what only a GPU knows is assumed, with a warning."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from conccl.core.ops import Copy, Memory  # noqa: E402
from workloads.capture.made_steps import names, recorded  # noqa: E402

pytestmark = pytest.mark.torch


def test_integers_are_followed_through_views_and_changes_in_place():
    def run(_):
        lengths = torch.tensor([3, 1, 2])
        ids = torch.arange(12).view(3, 4)
        ids[1:] += 100
        mask = torch.arange(4)[None, :] < lengths[:, None]
        return (
            ids.tolist(),
            mask.sum().item(),
            int(lengths.max()),
            ids[mask].tolist(),
            mask.nonzero().shape[0],
        )

    step, (ids, count, most, chosen, rows) = recorded(run)
    assert ids == [[0, 1, 2, 3], [104, 105, 106, 107], [108, 109, 110, 111]]
    assert (count, most, rows) == (6, 3, 6)
    assert chosen == [0, 1, 2, 104, 108, 109]
    assert step.warnings == ()


def test_an_unknown_write_makes_contents_unknown():
    def run(_):
        x = torch.zeros(4)
        assert x[1].item() == 0
        y = torch.randn(10_000)
        x.copy_(y[:4])
        return x[1].item()

    step, value = recorded(run)
    assert value == 1.0
    assert "taken as 1.0" in step.warnings[0]
    assert "test_values.py" in step.warnings[0]


def test_reading_a_number_copies_it_and_waits():
    def run(_):
        loss = (torch.randn(100_000) ** 2).mean()
        return loss.item()

    step, value = recorded(run)
    assert value == 1.0
    assert step.kernels[-1].kernel.op == Copy(nbytes=4, source=Memory.DEVICE, destination=Memory.HOST)
    assert step.calls[-1].waits_for == (len(step.kernels) - 1,)


def test_conditions_by_unknown_values():
    def run(_):
        x = torch.randn(100_000)
        assert not torch.isnan(x).any()
        assert torch.isfinite(x).all()
        assert torch.allclose(x, x)
        return bool((x > 0).all())

    assert recorded(run)[1]


def test_experts_chosen_by_unknown_scores_are_spread_evenly():
    def run(_):
        scores = torch.randn(64, 256) @ torch.randn(256, 8)
        _, experts = scores.softmax(-1).topk(2, dim=-1)
        return torch.bincount(experts.flatten(), minlength=8).tolist()

    assert recorded(run)[1] == [16] * 8


def test_sizes_by_unknown_data_are_the_largest():
    def run(_):
        x = torch.randn(300, 100)
        return x[x > 0].shape, (x > 0).nonzero().shape

    step, shapes = recorded(run)
    assert shapes == ((30_000,), (30_000, 2))
    assert names(step)["nonzero"] > 0


def test_copies_between_host_and_device_keep_known_values():
    def run(_):
        host = torch.arange(6, device="cpu").view(2, 3)
        device = host.to("cuda")
        device += 1
        return device.t().cpu().tolist(), torch.equal(device, host.cuda() + 1)

    step, (values, equal) = recorded(run)
    assert values == [[1, 4], [2, 5], [3, 6]]
    assert equal
    ends = [
        (c.kernel.op.source, c.kernel.op.destination) for c in step.kernels if isinstance(c.kernel.op, Copy)
    ]
    assert ends.count((Memory.HOST, Memory.DEVICE)) == 2
    assert ends.count((Memory.DEVICE, Memory.HOST)) == 2


def test_large_host_tensors_have_no_values_and_cost_nothing():
    def run(_):
        host = torch.zeros(1 << 31, device="cpu")
        return host.mul_(2).to("cuda").shape

    assert recorded(run)[1] == (1 << 31,)
