"""Capturing leaves PyTorch as it was, is repeatable, and finds the kernels that a GPU was seen to run."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from conccl.core.ops import Gemm, Layout  # noqa: E402
from conccl.workloads.capture.capture import capture_step  # noqa: E402
from conccl.workloads.capture.interception import KEYS  # noqa: E402
from workloads.capture.made_steps import DEVICE, captured, names, recorded  # noqa: E402

pytestmark = pytest.mark.torch

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def linear(width=64, **options):
    model = torch.nn.Linear(width, width, **options)
    x = torch.randn(8, width)
    return lambda: model(x).sum().backward()


def patched():
    """Everything that a capture replaces, and the state of dispatch."""
    cuda = {name: getattr(torch.cuda, name) for name in torch.cuda.__all__}
    keys = [getattr(torch._C.DispatchKey, key) for key in KEYS]
    return (
        cuda,
        torch.compile,
        torch.Generator,
        torch.nn.Module.compile,
        torch.clear_autocast_cache,
        torch._C._group_tensors_by_device_and_dtype,
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        [torch._C._dispatch_tls_is_dispatch_key_excluded(key) for key in keys],
        [torch._C._dispatch_tls_is_dispatch_key_included(key) for key in keys],
        [
            torch._C._dispatch_has_kernel_for_dispatch_key("aten::scaled_dot_product_attention", key)
            for key in KEYS
        ],
        torch.get_rng_state().tolist(),
    )


def test_nothing_stays_patched_after_a_capture():
    torch.manual_seed(3)
    before = patched()
    captured(linear)
    assert patched() == before


def test_nothing_stays_patched_after_an_exception():
    before = patched()

    def build():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        capture_step(build, device=DEVICE)
    with pytest.raises(ZeroDivisionError):
        recorded(lambda _: 1 // 0)
    assert patched() == before
    assert torch.nn.functional.scaled_dot_product_attention(*torch.ones(3, 1, 1, 2, 2)).shape == (1, 1, 2, 2)


def test_captures_of_the_same_step_are_equal():
    assert captured(linear) == captured(linear)


def test_linear_layer_forward_and_backward_by_hand():
    step = captured(linear)
    # The gradient of a sum is one number seen everywhere: cuBLAS cannot read that, so it is copied first.
    assert names(step) == {"addmm": 1, "sum": 2, "fill_": 1, "copy_": 1, "mm": 1, "add_": 2}
    (product,) = [call.kernel.op for call in step.kernels if call.kernel.name == "addmm"]
    assert product == Gemm(m=8, n=64, k=64, dtype=product.dtype, out_dtype=product.dtype, layout=Layout.NT)
    assert product.dtype == "fp32"


def test_tensors_look_like_cuda_tensors():
    def run(_):
        x = torch.ones(2, 3)
        assert x.is_cuda
        assert not x.is_cpu
        assert not x.is_meta
        assert str(x.device) == "cuda:0"
        assert x.get_device() == 0
        assert x.type() == "torch.cuda.FloatTensor"
        assert x.cpu().device.type == "cpu"
        assert torch.nn.Linear(2, 2).cuda().weight.device.type == "cuda"
        assert torch.zeros(1, device="cpu").to(0).is_cuda
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_properties(0).multi_processor_count == DEVICE.sm_count
        assert "cuda:0" in repr(x)
        return True

    assert recorded(run)[1]


def measured():
    return json.loads(
        gzip.decompress((BENCHMARKS / "data" / "h200-sxm" / "2026-11-30" / "models.json.gz").read_bytes())
    )["rows"]


def run_of(row):
    def build():
        name, function = row["model"].split(":")
        spec = importlib.util.spec_from_file_location(f"measured_{name[:-3]}", BENCHMARKS / "models" / name)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, function)(*row["arguments"])

    return captured(build)


@pytest.mark.parametrize(
    "target",
    [
        "dcgan.py:train 32",
        "deepspeech.py:train 16 400",
        "dlrm.py:train 2048",
        "gpt2.py:infer small 8 1024",
        "gpt2.py:train small 8 1024",
        "llama.py:prefill 8 1 4096",
        "llama.py:train 4 1 2048",
        "lstm_lm.py:train 32 35",
        "mixtral.py:train 2 4 1024",
        "mlp.py:train foreach",
        "mlp.py:train forloop",
        "mlp.py:train fused",
        "mobilenet.py:infer 64",
        "resnet.py:infer 32",
        "unet.py:train 16 128",
        "vit.py:train 16",
    ],
)
def test_as_many_kernels_as_an_h200_ran(target):
    row = next(r for r in measured() if " ".join([r["model"], *r["arguments"]]) == target)
    assert run_of(row).launches == pytest.approx(row["n_kernels"], rel=0.05)
