"""Names that drivers give -> devices of the catalogue."""

from __future__ import annotations

import dataclasses

import pytest

from conccl.advise.devices import device_named, device_of
from conccl.core.errors import UnknownNameError
from made_traces import made_trace


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm"),
        ("A100-SXM4-40GB", "a100-sxm"),
        ("NVIDIA A100-PG509-200", "a100-sxm"),
        ("NVIDIA B200", "b200-sxm"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Instinct MI210", "mi210"),
    ],
)
def test_names_of_drivers(name: str, known: str) -> None:
    device = device_named(name)
    assert device is not None
    assert device.name == known


@pytest.mark.parametrize(
    "name",
    [
        "Tesla V100-SXM2-32GB",
        "NVIDIA H200 NVL",
        "NVIDIA GH200 480GB",
        "NVIDIA H100 PCIe",
        "NVIDIA A100-PCIE-40GB",
        "NVIDIA A100 80GB PCIe",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "AMD Instinct MI300A",
        "AMD Radeon Graphics",
        "",
    ],
)
def test_other_models_are_not_taken_for_one_that_is_known(name: str) -> None:
    assert device_named(name) is None


def test_the_smaller_a100_has_its_own_memory() -> None:
    small, large = device_named("NVIDIA A100-SXM4-40GB"), device_named("NVIDIA A100-SXM4-80GB")
    assert small is not None
    assert large is not None
    assert small.hbm_bandwidth < large.hbm_bandwidth
    assert small.hbm_nbytes == 40e9


def test_why_there_is_none_is_told() -> None:
    trace = made_trace([])
    assert "--device" in device_of(trace).reason
    unknown = dataclasses.replace(trace, device_name="Tesla V100-SXM2-32GB")
    assert "Tesla V100-SXM2-32GB is not in the catalogue" in device_of(unknown).reason
    part = dataclasses.replace(trace, device_name="NVIDIA H200", sm_count=66)
    assert device_of(part).device is None
    assert "66 SMs here, in the catalogue 132" in device_of(part).reason
    whole = dataclasses.replace(trace, device_name="NVIDIA H200", sm_count=132)
    assert device_of(whole).device is not None


def test_what_the_user_names_counts() -> None:
    trace = dataclasses.replace(made_trace([]), device_name="Tesla V100-SXM2-32GB")
    found = device_of(trace, given="mi300x").device
    assert found is not None
    assert found.name == "mi300x"
    with pytest.raises(UnknownNameError):
        device_of(trace, given="h300")
