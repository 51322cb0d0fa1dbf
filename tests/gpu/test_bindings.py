"""The calls of the CUDA driver that are used exist in the bindings that are installed."""

import re

import pytest

from conccl.gpu import toolkit

driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

SOURCES = sorted(toolkit.SOURCE.parent.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_every_call_exists(path):
    for name in set(re.findall(r"\b(?:cuda|driver\(\))\.(\w+)", path.read_text())):
        if name.startswith(("cu", "CU")) and name[2:3].isupper() | name.startswith("CU"):
            assert hasattr(driver, name), name
    for kind, member in re.findall(r"cuda\.(CU\w+)\.(CU_\w+)", path.read_text()):
        assert hasattr(getattr(driver, kind), member), member
