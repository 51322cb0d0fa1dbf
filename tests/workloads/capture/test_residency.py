"""What L2 still holds of a tensor, by the bytes touched since."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from conccl.workloads.capture.residency import Residency  # noqa: E402

pytestmark = pytest.mark.torch


def of(nbytes):
    return torch.empty(nbytes, dtype=torch.uint8, device="meta")


def test_a_tensor_fades_as_others_are_touched():
    residency = Residency(l2_nbytes=200)
    first = of(20)
    assert residency.share([first]) == 0
    residency.touch([first])
    shares = [residency.share([first])]
    for _ in range(4):
        residency.touch([of(40)])
        shares.append(residency.share([first]))
    assert shares[0] == 1
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0


def test_shares_weigh_by_bytes_and_views_share_their_storage():
    residency = Residency(l2_nbytes=1 << 20)
    known = of(100)
    residency.touch([known])
    assert residency.share([known.view(10, 10), of(100)]) == 0.5
    assert residency.share([]) == 0
