"""The model builders give steps that run, and networks as large as the published ones."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

MODELS = Path(__file__).parents[2] / "benchmarks" / "models"

pytestmark = pytest.mark.torch


def load(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", MODELS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "build", "parameters"),
    [
        ("resnet", lambda m: m.resnet50(), 25_557_032),  # torchvision's count
        ("mobilenet", lambda m: m.mobilenet_v2(), 3_504_872),  # torchvision's count
        ("vit", lambda m: m.Vit(), 86_567_656),  # torchvision's count
        ("gpt2", lambda m: m.Gpt("small", 1024, 0.0), 124_439_808 + 47 * 768),  # vocabulary padded by 47
    ],
)
def test_networks_are_as_large_as_published(name, build, parameters):
    with torch.device("meta"):
        network = build(load(name))
    assert sum(p.numel() for p in network.parameters()) == parameters


@pytest.mark.parametrize(
    ("name", "function", "arguments"),
    [
        ("mlp", "train", ("foreach", "4", "16", "2")),
        ("mlp", "train", ("fused", "4", "16", "2")),
        ("mlp", "train", ("forloop", "4", "16", "2")),
        ("dcgan", "train", ("2",)),
        ("unet", "train", ("1", "16")),
        ("resnet", "infer", ("1",)),
        ("dlrm", "train", ("4",)),
    ],
)
def test_steps_run_with_arguments_as_strings(name, function, arguments):
    step = getattr(load(name), function)(*arguments)
    step()
    assert torch.isfinite(step()).all()
