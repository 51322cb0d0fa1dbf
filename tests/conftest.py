"""What every test starts from: no GPU tests where there is no GPU, a fixed terminal, the same examples."""

from __future__ import annotations

import importlib.util
import shutil

import hypothesis
import pytest

# The same examples on every run, however busy the machine is; `make soak` looks for new ones.
hypothesis.settings.register_profile("conccl", deadline=None, derandomize=True)
hypothesis.settings.load_profile("conccl")


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = _missing()
    for item in items:
        for marker, reason in missing.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def _missing() -> dict[str, str]:
    """Marker -> why its tests cannot run here."""
    reasons = {}
    if importlib.util.find_spec("torch") is None:
        reasons["torch"] = "PyTorch is not installed"
        reasons["gpu"] = "PyTorch is not installed"
    elif not _has_gpu():
        reasons["gpu"] = "no CUDA GPU"
    if not (shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")):
        reasons["browser"] = "Chromium is not installed"
    elif not shutil.which("chromedriver"):
        reasons["browser"] = "chromedriver is not installed"
    return reasons


def _has_gpu() -> bool:
    """Whether there is an NVIDIA device file: cheaper than importing torch to collect tests."""
    return shutil.which("nvidia-smi") is not None
