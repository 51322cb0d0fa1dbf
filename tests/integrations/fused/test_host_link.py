"""The host link's operators where the device is a CPU: results by every way, gradients, PyTorch's checks."""

import functools

import pytest
import torch

import conccl
from conccl.core.errors import InputError
from integrations.fused import fused_jobs as jobs

pytestmark = pytest.mark.torch

BOTH = (conccl.gemm_offload, conccl.prefetch_gemm)
WAYS = ("serial", "chunked:3", "chunked:4:shrinking", "auto")


@pytest.mark.parametrize("call", BOTH, ids=lambda one: one.__name__)
@pytest.mark.parametrize("way", WAYS)
def test_results_are_those_of_float64(call, way):
    for index, (m, n, k) in enumerate(jobs.SHAPES):
        for dtype in jobs.TOLERANCE:
            [x], [weight], bias = jobs.matrices(index, m, n, k, 1, dtype)
            jobs.poison()
            out = call(x, weight, bias, way=way, activation="gelu")
            wanted = torch.nn.functional.gelu(x.double() @ weight.double().t() + bias.double())
            jobs.close(out, wanted, dtype)
            with_dimensions = call(x.view(m, 1, k), weight, way=way)
            assert with_dimensions.shape == (m, 1, n)


@pytest.mark.parametrize("call", BOTH, ids=lambda one: one.__name__)
def test_gradients_are_those_of_differences(call):
    [x], [weight], bias = jobs.matrices(0, 6, 3, 4, 1, torch.float64)
    given = [one.requires_grad_() for one in (x, weight, bias)]
    for activation in ("none", "silu"):
        run = functools.partial(call, way="chunked:2", activation=activation)
        assert torch.autograd.gradcheck(run, given)
    frozen = x.detach(), weight, bias
    call(*frozen, way="chunked:2").sum().backward()


def test_custom_ops_pass_pytorchs_own_checks():
    [x], [weight], bias = jobs.matrices(0, 6, 3, 4, 1, torch.float32)
    given = [one.requires_grad_() for one in (x, weight, bias)]
    for op in (torch.ops.conccl.gemm_offload, torch.ops.conccl.prefetch_gemm):
        torch.library.opcheck(op, (*given, "none", "chunked:2"))


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("tracked:4", "gemm_offload by tracked needs a CUDA GPU"),
        ("chunked:2:staggered", "gemm_offload has no other ranks"),
    ],
)
def test_ways_that_cannot_be_gone_are_refused(way, words):
    x = torch.randn(8, 4)
    with pytest.raises(InputError, match=words):
        conccl.gemm_offload(x, x, way=way)
    with pytest.raises(InputError, match=r"not offered yet|no other ranks"):
        conccl.prefetch_gemm(x, x, way=way)


@pytest.mark.parametrize("call", BOTH, ids=lambda one: one.__name__)
def test_autocast_casts_as_it_does_for_linear_layers(call):
    [x], [weight], bias = jobs.matrices(0, 6, 3, 4, 1, torch.float32)
    given = [one.requires_grad_() for one in (x, weight, bias)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = call(*given, way="chunked:2")
        wanted = torch.nn.functional.linear(*given)
    assert out.dtype == wanted.dtype == torch.bfloat16
    torch.testing.assert_close(out, wanted, rtol=2e-2, atol=2e-2)
    out.sum().backward()
    assert weight.grad.dtype == torch.float32
