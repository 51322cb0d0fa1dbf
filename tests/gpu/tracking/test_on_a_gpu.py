"""The tracked way and the host link on a real GPU: results, early transfers, and a stuck producer's end."""

import importlib

import pytest
import torch

import conccl
from conccl.core.errors import WaitTimeoutError
from integrations.fused import fused_jobs
from ranks import run_ranks

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
WAYS = ("serial", "chunked:2", "chunked:8:shrinking", "tracked:4", "tracked:16")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (127, 333, 65), (2048, 1536, 512), (4099, 257, 1000)], ids=str)
def test_what_goes_to_the_host_is_right(shape, dtype, way):
    m, n, k = shape
    for seed in range(3):
        torch.manual_seed(seed)
        x, weight, bias = (torch.randn(*size, dtype=dtype, device="cuda") for size in ((m, k), (n, k), (n,)))
        torch.full((m * n,), float("nan"), dtype=dtype, device="cuda")  # freed memory is poisoned
        out = conccl.gemm_offload(x, weight, bias, activation="relu", way=way)
        assert out.device.type == "cpu"
        wanted = torch.relu(x.double() @ weight.double().t() + bias.double()).cpu()
        fused_jobs.close(out, wanted, dtype)


@pytest.mark.parametrize("way", ["serial", "chunked:8"])
def test_what_comes_from_the_host_is_right(way):
    x = torch.randn(4099, 512).pin_memory()
    weight = torch.randn(300, 512, device="cuda", requires_grad=True)
    x.requires_grad_()
    out = conccl.prefetch_gemm(x, weight, way=way)
    out.sum().backward()
    fused_jobs.close(out.detach().cpu(), (x.double() @ weight.double().cpu().t()).detach(), torch.float32)
    assert x.grad.device.type == "cpu"


def test_copies_begin_before_the_kernel_ends():
    x = torch.randn(16384, 4096, dtype=torch.bfloat16, device="cuda")
    weight = torch.randn(8192, 4096, dtype=torch.bfloat16, device="cuda")
    conccl.gemm_offload(x, weight, way="tracked:16")
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        conccl.gemm_offload(x, weight, way="tracked:16")
    rows = list(profile.events())
    [gemm] = [row for row in rows if row.name.startswith("tracked_gemm_kernel")]
    copies = [row for row in rows if row.name.startswith("Memcpy DtoH")]
    assert len(copies) == 16
    assert min(row.time_range.start for row in copies) < gemm.time_range.end


def test_a_stuck_producer_is_released_and_named(monkeypatch):
    tracked = importlib.import_module("conccl.integrations.fused.tracked")
    kernel = importlib.import_module("conccl.gpu.tracking.gemm")
    whole = kernel.tracked_gemm

    def half(*tensors, order, **more):
        whole(*tensors, order=order, **{**more, "part": (0, len(order.table) // 2)})

    monkeypatch.setattr(kernel, "tracked_gemm", half)
    monkeypatch.setattr(tracked._watchdog(), "timeout_s", 1.0)
    x = torch.randn(4096, 256, dtype=torch.bfloat16, device="cuda")
    with pytest.raises(WaitTimeoutError, match=r"gemm_offload, rank 0: chunk \d of 8 had \d+ of \d+ tiles"):
        conccl.gemm_offload(x, x, way="tracked:8")
    monkeypatch.undo()
    conccl.gemm_offload(x, x, way="tracked:8")  # and the next one is right again


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_ranks_on_gpus_by_nccl(tmp_path):
    assert all(run_ranks(2, fused_jobs.on_gpus, tmp_path, timeout_s=240))
