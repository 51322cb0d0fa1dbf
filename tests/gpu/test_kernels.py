"""The CUDA kernels compile for the architectures that matter, where NVRTC is installed; no GPU is needed."""

import re

import pytest

from conccl.core.errors import ExecutionError
from conccl.gpu import toolkit

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
nvrtc = pytest.importorskip("cuda.bindings.nvrtc")


def _has_nvrtc() -> bool:
    try:
        return int(nvrtc.nvrtcVersion()[0]) == 0
    except RuntimeError:
        return False


pytestmark = pytest.mark.skipif(not _has_nvrtc(), reason="NVRTC's library is not installed")


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_kernels_compile(architecture):
    cubin = toolkit.compiled(architecture)
    for name in toolkit.SIGNATURES:
        assert name.encode() in cubin


def test_arguments_are_those_of_the_source():
    source = toolkit.SOURCE.read_text()
    for name, types in toolkit.SIGNATURES.items():
        arguments = re.search(rf"{name}\(([^)]*)\)", source).group(1).split(",")
        assert len(arguments) == len(types)
        for argument, kind in zip(arguments, types, strict=True):
            size = 8 if "*" in argument or "long long" in argument else 4
            assert size == toolkit.ctypes.sizeof(kind)


def test_a_source_that_does_not_compile_says_where(monkeypatch, tmp_path):
    broken = tmp_path / "kernels.cu"
    broken.write_text("nonsense")
    monkeypatch.setattr(toolkit, "SOURCE", broken)
    with pytest.raises(ExecutionError, match="does not compile"):
        toolkit.compiled("sm_90")


def test_codes_of_the_driver_become_errors():
    with pytest.raises(ExecutionError, match="999"):
        toolkit.checked((999,))
    assert toolkit.checked((0, 7)) == 7
    assert toolkit.checked((0, 7, 8)) == (7, 8)
