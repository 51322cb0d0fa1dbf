"""A captured kernel as an op in its place."""

from __future__ import annotations

import pytest

from conccl.core.errors import InputError
from conccl.core.ops import Copy, Elementwise, Gemm, Warm
from conccl.costs.catalogue import load_device
from conccl.costs.kernels import kernels_of
from conccl.workloads.captured import Kernel, KernelCall
from conccl.workloads.program import placed_op

ADD = Elementwise(name="add", read_nbytes=24 << 20, written_nbytes=12 << 20, numel=6 << 20)


@pytest.mark.parametrize("op", [Gemm(m=8, n=8, k=8), Copy(nbytes=4)])
def test_only_streaming_kernels_gain_by_what_l2_holds(op):
    assert placed_op(KernelCall(kernel=Kernel(name="x", op=op), lane="0", cached=1.0)) == op


def test_operands_in_l2_make_a_streaming_kernel_faster():
    call = KernelCall(kernel=Kernel(name="add", op=ADD), lane="0", cached=0.75)
    assert placed_op(call) == Warm(op=ADD, share=0.75)
    device = load_device("h200-sxm")
    times = [kernels_of(Warm(op=ADD, share=share), device)[0].isolated_ns for share in (0.0, 0.5, 1.0)]
    assert times[0] == kernels_of(ADD, device)[0].isolated_ns
    assert times[0] > times[1] > times[2] > 0


def test_a_share_is_between_none_and_all():
    with pytest.raises(InputError, match=r"1\.5"):
        Warm(op=ADD, share=1.5)
