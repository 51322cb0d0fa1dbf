"""The constants of the cost models: what each means, its range, and where its value comes from.

A device's file holds what was fitted to it. What it does not hold is taken from the H200, for which all were
fitted: they are latencies in clocks and shares of what a data sheet promises, and so carry over. Only the
uncertainty does not: a model with another device's constants reports the wide one that is written here.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conccl.core.errors import UnknownNameError
from conccl.core.hardware import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One constant of a model."""

    start: float
    """Where a fit begins; the value of an uncertainty where none was fitted."""
    low: float
    high: float
    meaning: str


def _constants(prefix: str, /, **given: tuple[float, float, float, str]) -> dict[str, Constant]:
    return {
        f"{prefix}.{name}": Constant(start=start, low=low, high=high, meaning=meaning)
        for name, (start, low, high, meaning) in given.items()
    }


_CYCLES = (0.0, 1e6)


def _protocols(family: str, /, **defaults: float) -> dict[str, Constant]:
    """The constants of a family of collectives: a start, a hop and a share of the link for each protocol."""
    found: dict[str, Constant] = {}
    for protocol in ("ll", "ll128", "simple"):
        found |= _constants(
            f"collective.{family}",
            **{
                f"{protocol}_cycles": (defaults[f"{protocol}_cycles"], *_CYCLES, "clocks to start"),
                f"{protocol}_hop_cycles": (
                    defaults[f"{protocol}_hop_cycles"],
                    *_CYCLES,
                    "clocks a hop",
                ),
                f"{protocol}_share": (defaults[f"{protocol}_share"], 1e-4, 1.5, "of the bandwidth reached"),
            },
        )
    return found | _constants(
        f"collective.{family}",
        few_ranks=(defaults["few_ranks"], 0.0, 100.0, "behind a switch, n ranks reach n / (n + this)"),
        ctas=(defaults["ctas"], 1.0, 1024.0, "CTAs that drive it, one an SM"),
    )


_NS = (0.0, 1e6)
_SHARE = (0.01, 2.0)


def _gemm(family: str, /, *, rate: float, step: float, latency: float, hbm: float) -> dict[str, Constant]:
    """The constants of a family of GEMM kernels."""
    return _constants(
        f"gemm.{family}",
        rate_share=(rate, *_SHARE, "of the peak, on the matrix (or vector) units"),
        step_ns=(step, *_NS, "the least that a step of the K loop takes"),
        latency_ns=(latency, *_NS, "memory latency that a tile's stages hide"),
        hbm_share=(hbm, *_SHARE, "of the bandwidth that the best kernels reach"),
        uncertainty=(0.15, 0.001, 10.0, "relative error with another device's constants"),
    )


def _stream(
    kind: str,
    /,
    *,
    start: float = 1050,
    cta: float = 0.0,
    step: float = 700,
    instructions: float = 0.0,
    hbm: float = 0.97,
) -> dict[str, Constant]:
    """The constants of a kind of streaming kernel."""
    return _constants(
        kind,
        start_ns=(start, *_NS, "start and end of a kernel"),
        cta_ns=(cta, *_NS, "of a CTA's time, what uses nothing shared"),
        step_ns=(step, *_NS, "the least that one of its steps takes"),
        instructions=(instructions, 0.0, 1e5, "for each element, lanes counted one by one"),
        hbm_share=(hbm, *_SHARE, "of the bandwidth that the best kernels reach"),
        uncertainty=(0.2, 0.001, 10.0, "relative error with another device's constants"),
    )


STREAMS: dict[str, dict[str, Constant]] = {
    kind: _stream(kind, **start)
    for kind, start in {
        "contiguous": {},
        "casting": {"start": 2200.0, "instructions": 93.0},
        "strided": {"start": 2200.0, "instructions": 80.0},
        "transposed": {"start": 2200.0, "instructions": 210.0},
        "dropout": {"start": 1900.0, "instructions": 50.0},
        "driver_copy": {},
        "driver_fill": {"start": 900.0},
        "fill": {"start": 850.0},
        "indexed": {"start": 2200.0, "instructions": 145.0},
        "scattered": {"start": 2200.0, "instructions": 200.0},
        "expanded": {"start": 2200.0, "instructions": 60.0},
        "reduce_rows": {"cta": 1700.0, "step": 100.0, "instructions": 10.0},
        "reduce_rows_pairs": {"cta": 1700.0, "step": 100.0, "instructions": 15.0},
        "reduce_all": {"start": 3000.0, "cta": 500.0, "step": 300.0, "instructions": 5.0},
        "reduce_columns": {"start": 1500.0, "cta": 1000.0, "step": 400.0, "instructions": 8.0},
        "reduce_columns_pairs": {"start": 1500.0, "cta": 1000.0, "step": 400.0, "instructions": 15.0},
        "reduce_shared_columns": {"start": 4000.0, "cta": 1000.0, "step": 400.0, "instructions": 8.0},
        "reduce_shared_columns_pairs": {
            "start": 4000.0,
            "cta": 1000.0,
            "step": 400.0,
            "instructions": 15.0,
        },
        "reduce_odd_columns": {"start": 1500.0, "cta": 1000.0, "step": 400.0, "instructions": 10.0},
        "loss": {"start": 1500.0, "step": 270.0},
        "gather": {"cta": 300.0},
        "gather_odd": {"start": 2200.0, "instructions": 100.0},
        "gather_few": {"start": 1500.0, "step": 350.0},
        "embedding_backward": {"start": 1500.0, "step": 1200.0},
        "embedding_sort": {"start": 40_000.0},
        "embedding_sums": {"start": 3000.0, "cta": 1500.0, "instructions": 40.0},
        "max_pool_first": {"start": 2000.0, "instructions": 12.0},
        "max_pool_last": {"start": 2000.0, "instructions": 12.0},
        "max_pool_backward_first": {"start": 2000.0, "instructions": 25.0},
        "max_pool_backward_last": {"start": 2000.0, "instructions": 25.0},
        "avg_pool_first": {"start": 2000.0, "instructions": 18.0},
        "avg_pool_last": {"start": 2000.0, "instructions": 18.0},
        "avg_pool_backward_first": {"start": 2000.0, "instructions": 60.0},
        "avg_pool_backward_last": {"start": 2000.0, "instructions": 60.0},
        "upsample_first": {"start": 2000.0, "instructions": 12.0},
        "upsample_last": {"start": 2000.0, "instructions": 12.0},
        "upsample_backward_first": {"start": 2000.0, "instructions": 25.0},
        "upsample_backward_last": {"start": 2000.0, "instructions": 25.0},
        "sort_tiny": {"start": 3000.0, "step": 9000.0},
        "sort_short": {"start": 8000.0, "step": 45_000.0},
        "sort_long": {"start": 40_000.0, "instructions": 600.0},
        "topk_short": {"start": 8000.0, "step": 1500.0, "instructions": 300.0},
        "topk_long": {"start": 40_000.0, "instructions": 200.0},
        "scan": {"start": 2000.0, "cta": 1000.0, "step": 1400.0},
        "scan_columns": {"start": 1500.0, "step": 173.0},
        "scan_whole": {"start": 3000.0, "instructions": 100.0},
        "multi_tensor_fused": {"start": 1500.0, "step": 1300.0, "instructions": 130.0},
        "multi_tensor": {"start": 1100.0, "step": 550.0, "instructions": 30.0},
        "gemv": {"start": 1200.0, "step": 300.0},
        "joined": {"start": 2000.0, "instructions": 136.0},
        "layer_norm": {"start": 1000.0, "cta": 2200.0, "step": 500.0, "hbm": 0.8},
        "rms_norm": {"start": 1000.0, "cta": 1200.0, "step": 400.0, "hbm": 0.8},
        "moments": {"cta": 3000.0, "step": 500.0},
        "norm_apply": {"cta": 1000.0, "step": 200.0},
        "norm_backward": {"cta": 1600.0, "step": 500.0, "hbm": 0.8},
        "layer_weight_backward": {"step": 900.0},
        "rms_weight_backward": {"step": 700.0},
        "softmax_warp": {"step": 100.0, "instructions": 50.0},
        "softmax_warp_backward": {"step": 60.0, "instructions": 60.0},
        "softmax_registers": {"cta": 300.0, "step": 900.0},
        "softmax_shared": {"cta": 2400.0, "step": 3000.0},
        "softmax_long": {"cta": 4000.0, "step": 1000.0, "hbm": 0.8},
        "softmax_backward": {"cta": 1000.0, "step": 300.0},
        "softmax_backward_long": {"cta": 1000.0, "step": 600.0, "hbm": 0.7},
        "batch_statistics_first": {"cta": 3000.0, "step": 430.0},
        "batch_statistics_last": {"start": 3000.0, "step": 100.0},
        "batch_apply_first": {"cta": 2000.0, "step": 100.0, "instructions": 60.0},
        "batch_apply_last": {"step": 100.0},
        "batch_whole_first": {"cta": 3000.0, "step": 250.0},
        "batch_whole_last": {"start": 3000.0, "step": 50.0},
        "batch_whole_backward_first": {"cta": 3000.0, "step": 600.0, "instructions": 100.0},
        "batch_whole_backward_last": {"start": 3000.0, "step": 50.0},
        "batch_backward_first": {"cta": 4000.0, "step": 600.0, "instructions": 100.0},
        "batch_reduce_last": {"start": 3000.0, "step": 50.0},
        "batch_once_first": {"cta": 2000.0, "step": 100.0},
        "batch_once_backward_first": {"cta": 2000.0, "step": 150.0},
        "batch_gradient_last": {"step": 50.0},
        "attention_decode": {"start": 2000.0, "cta": 1000.0, "step": 2000.0},
        "attention_flash_decode": {"start": 2000.0, "cta": 3000.0, "step": 2500.0},
        "attention_combine": {"start": 2000.0},
        "attention_dot": {"start": 1500.0},
        "attention_convert": {"start": 1500.0, "hbm": 0.7},
        "attention_heads": {"start": 1200.0},
        "convolution_layout": {"start": 1500.0, "step": 1000.0, "hbm": 0.8},
        "convolution_sum": {"start": 1500.0},
        "depthwise_forward_first": {"start": 2000.0, "instructions": 15.0},
        "depthwise_dgrad_first": {"start": 2000.0, "instructions": 25.0},
        "depthwise_wgrad_first": {"start": 2000.0, "instructions": 20.0},
        "depthwise_forward_last": {"start": 2000.0, "instructions": 5.0},
        "depthwise_dgrad_last": {"start": 2000.0, "instructions": 8.0},
        "depthwise_wgrad_last": {"start": 3000.0, "instructions": 8.0},
        "group_moments": {"cta": 2000.0, "step": 450.0},
        "group_parameters": {"start": 1800.0},
        "group_gamma": {"start": 1500.0, "step": 330.0},
        "group_reduce": {"cta": 2000.0, "step": 300.0, "instructions": 20.0},
        "group_apply": {"start": 2000.0, "step": 700.0, "instructions": 80.0, "hbm": 0.7},
        "group_gradient": {"start": 2000.0, "step": 700.0, "instructions": 110.0, "hbm": 0.7},
    }.items()
}
"""Kinds of streaming kernels, with the constants of each."""


def _tiled(kind: str, /, *, rate: float, step: float, cta: float = 1600.0) -> dict[str, Constant]:
    """The constants of a kind of kernel whose CTAs loop over blocks on matrix (or vector) units."""
    return _constants(
        kind,
        start_ns=(2000, *_NS, "start and end of a kernel"),
        cta_ns=(cta, *_NS, "of a tile's time, what is no block's"),
        step_ns=(step, *_NS, "what a block of 128 x 128 takes beside its products, or at least"),
        rate_share=(rate, *_SHARE, "of the peak, during the products"),
        uncertainty=(0.2, 0.001, 10.0, "relative error with another device's constants"),
    )


TILED: dict[str, dict[str, Constant]] = {
    kind: _tiled(kind, **start)
    for kind, start in {
        "convolution_forward": {"rate": 0.75, "step": 150.0, "cta": 2000.0},
        "convolution_dgrad": {"rate": 0.7, "step": 150.0, "cta": 2000.0},
        "convolution_wgrad": {"rate": 0.6, "step": 150.0, "cta": 3000.0},
        "convolution_forward_tf32": {"rate": 0.75, "step": 150.0, "cta": 2000.0},
        "convolution_dgrad_tf32": {"rate": 0.6, "step": 150.0, "cta": 2000.0},
        "convolution_wgrad_tf32": {"rate": 0.3, "step": 150.0, "cta": 3000.0},
        "convolution_forward_few": {"rate": 0.3, "step": 200.0, "cta": 3000.0},
        "convolution_dgrad_few": {"rate": 0.3, "step": 200.0, "cta": 1000.0},
        "convolution_wgrad_few": {"rate": 0.3, "step": 200.0, "cta": 3000.0},
        "attention_cudnn": {"rate": 1.2, "step": 600.0},
        "attention_cudnn_backward": {"rate": 0.9, "step": 1000.0},
        "attention_flash": {"rate": 0.7, "step": 1500.0},
        "attention_flash_backward": {"rate": 0.4, "step": 1500.0},
        "attention_efficient": {"rate": 0.3, "step": 3000.0},
        "attention_efficient_backward": {"rate": 0.2, "step": 4000.0},
        "attention_fp32": {"rate": 1.0, "step": 3000.0},
        "attention_fp32_backward": {"rate": 0.8, "step": 4000.0},
    }.items()
}
"""Kinds of kernels that go over blocks, with the constants of each."""


RECURRENT: dict[str, Constant] = {
    name: constant
    for kind, step_ns in {
        "recurrent_forward": 5000,
        "recurrent_backward": 8000,
        "recurrent_forward_fp32": 7000,
        "recurrent_backward_fp32": 12000,
    }.items()
    for name, constant in _constants(
        kind,
        start_ns=(10_000, *_NS, "start and end of a layer"),
        step_ns=(step_ns, *_NS, "that a step takes however small it is"),
        layer_share=(0.5, 0.0, 1.0, "of a chain that each further layer adds"),
        way_share=(0.3, 0.0, 1.0, "of a chain that the other way adds"),
        l2_share=(0.8, *_SHARE, "of the L2 bandwidth at which weights are read"),
        rate_share=(0.3, *_SHARE, "of the peak that a step's product reaches"),
        odd_factor=(1.8, 1.0, 10.0, "by which it is slower where rows are not aligned"),
        uncertainty=(0.3, 0.001, 10.0, "relative error with another device's constants"),
    ).items()
}
"""Kinds of recurrent chains."""


CONSTANTS: dict[str, Constant] = {
    **_constants(
        "copy",
        host_ns=(1800, *_NS, "to start a copy to or from the host, and to end it"),
        peer_ns=(1800, *_NS, "the same to or from a peer"),
        uncertainty=(0.15, 0.001, 10.0, "relative error with another device's constants"),
    ),
    "stream.busy_ns": Constant(start=700, low=0.0, high=1e5, meaning="until HBM is busy, where it will be"),
    **{name: constant for kind in STREAMS.values() for name, constant in kind.items()},
    **{name: constant for kind in TILED.values() for name, constant in kind.items()},
    **RECURRENT,
    **_gemm("aligned", rate=0.94, step=104, latency=785, hbm=0.98),
    **_gemm("tf32", rate=0.85, step=104, latency=785, hbm=0.9),
    **_gemm("narrow", rate=0.28, step=200, latency=785, hbm=0.8),
    **_gemm("scalar", rate=0.15, step=300, latency=785, hbm=0.7),
    **_gemm("turned", rate=0.17, step=300, latency=785, hbm=0.7),
    **_gemm("vector", rate=0.8, step=300, latency=785, hbm=0.8),
    **_constants(
        "gemm",
        start_ns=(2180, *_NS, "start and end of a kernel, first loads included"),
        first_ns=(1000, *_NS, "until HBM is busy"),
        store_share=(0.44, *_SHARE, "of an SM's part of the L2 bandwidth, while it writes a tile"),
        l2_share=(1.9, *_SHARE, "of the L2 bandwidth, multicast within clusters included"),
        cache_share=(0.8, 0.4, 2.0, "of L2 within which operands are read from HBM once"),
        written_part=(0.27, 0.0, 2.0, "of the output's bytes that HBM traffic waits for"),
        paired_epilogue=(0.48, 0.0, 1.0, "of a tile's epilogue that the next one of a pair does not hide"),
        other_epilogue=(0.39, 0.0, 1.0, "the same where warpgroups take tiles in turn"),
        mix=(3.7, 1.0, 20.0, "exponent by which compute and HBM time add up"),
        split_ns=(1470, *_NS, "kernel that adds the parts of a split K loop"),
        split_share=(0.5, *_SHARE, "of the HBM bandwidth that it reaches"),
        burst_share=(0.88, *_SHARE, "of the peak that short kernels reach within the power limit"),
        sustained_share=(0.69, *_SHARE, "the same of long ones"),
        loaded_share=(
            1.0,
            *_SHARE,
            "of the peak that GEMMs reach in a job that runs for minutes",
        ),
        sustained_ns=(2e6, 1e3, 1e9, "how long a kernel is that lies between the two"),
        odd_tile=(0.02, 0.001, 1.0, "what a tile that is no multiple of 64 must gain to be chosen"),
        load_cycle_nbytes=(52.0, 0.1, 1e4, "bytes that an SM loads in a clock where others leave it memory"),
    ),
    **_protocols(
        "ring",
        ll_cycles=7900,
        ll_hop_cycles=1750,
        ll_share=0.0066,
        ll128_cycles=9300,
        ll128_hop_cycles=1840,
        ll128_share=0.33,
        simple_cycles=39500,
        simple_hop_cycles=1980,
        simple_share=1.0,
        few_ranks=0.96,
        ctas=24,
    ),
    **_protocols(
        "direct",
        ll_cycles=11700,
        ll_hop_cycles=210,
        ll_share=0.021,
        ll128_cycles=22000,
        ll128_hop_cycles=170,
        ll128_share=0.63,
        simple_cycles=84600,
        simple_hop_cycles=4560,
        simple_share=0.85,
        few_ranks=0.24,
        ctas=24,
    ),
    **_constants(
        "collective",
        **{
            "in_switch.cycles": (40000.0, *_CYCLES, "clocks to start and end"),
            "in_switch.share": (0.68, 0.01, 1.5, "of the bandwidth reached, each byte sent once"),
            "uncertainty": (0.2, 0.001, 10.0, "relative error with another device's constants"),
            "unmeasured_uncertainty": (
                0.3,
                0.001,
                10.0,
                "relative error of what was never measured",
            ),
        },
    ),
}

CONSTANTS |= _constants(
    "mover",
    copy_cycle_nbytes=(16.7, 0.1, 1e3, "bytes that one CTA copies in HBM in a clock"),
    link_cycle_nbytes=(15.8, 0.1, 1e3, "bytes that one CTA moves over a link in a clock"),
    host_share=(0.94, 0.05, 1.0, "of what copy engines reach over the host link, what SMs reach"),
    latency_ns=(2000.0, 0.0, 1e6, "from a copy kernel's start to its first bytes, and at its end"),
    library_ctas=(1.0, 0.0, 64.0, "a collective library's CTAs that fit on an SM; 0: as many as a copy's"),
    ctas_of_sm=(1.25, 1.0, 64.0, "CTAs copying at full pace that an SM has loads and stores for"),
    hbm_share=(0.865, 0.05, 1.0, "of the HBM bandwidth that the best kernels reach, what copies do"),
)

CONSTANTS |= _constants(
    "host",
    launch_ns=(7900.0, *_NS, "to dispatch a kernel from Python and launch it"),
    more_ns=(7000.0, *_NS, "for each further kernel that a library call launches"),
    backward_ns=(17_000.0, *_NS, "that autograd adds for each op"),
    view_ns=(2500.0, *_NS, "to dispatch an op that launches nothing"),
    python_ns=(700.0, *_NS, "to enter a Python function"),
    tensor_ns=(3000.0, *_NS, "for each tensor of a list that one op goes over"),
    plan_ns=(15_000.0, *_NS, "to find the plan of a convolution"),
    graph_ns=(3000.0, *_NS, "to launch a graph"),
    step_ns=(870_000.0, *_NS, "of a step that trains, beside its ops"),
    turn_ns=(
        170.0,
        *_NS,
        "from the end of a kernel in a graph to the next one's start, as profilers see them",
    ),
    gap_ns=(1100.0, *_NS, "on the GPU between kernels that are launched one by one"),
)

CONSTANTS |= _constants(
    "contention",
    sm_cycle_nbytes=(33.4, 0.1, 1e4, "bytes that an SM has in flight for each clock of a memory latency"),
    register_share=(0.68, 0.01, 10.0, "of that, what kernels have that load into registers"),
    latency=(0.35, 0.0, 10.0, "longer latency of memory where others use all of L2's bandwidth"),
    full_house=(1.0, 0.5, 2.0, "HBM bandwidth where not every SM computes, over that where all do"),
    blocking=(0.32, 0.0, 10.0, "slowdown of SMs for each time that others' requests exceed a link"),
)


REFERENCE = Path(__file__).parent / "devices" / "h200-sxm.toml"
"""The device to which all constants were fitted."""


def constant(device: Device, name: str, /) -> float:
    """A model's constant on this device."""
    found = device.calibration.get(name)
    if found is not None:
        return found
    if name not in CONSTANTS:
        raise UnknownNameError(kind="constant", name=name, known=CONSTANTS)
    if name.endswith("uncertainty"):
        return CONSTANTS[name].start
    return _reference().get(name, CONSTANTS[name].start)


@functools.cache
def _reference() -> dict[str, float]:
    """The reference device's constants, read apart from the catalogue, which needs this module's ranges."""
    document = tomllib.loads(REFERENCE.read_text(encoding="utf-8"))
    return dict(_numbers(document.get("calibration", {})))


def _numbers(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, entry in table.items():
        if isinstance(entry, dict):
            yield from _numbers(entry, f"{prefix}{key}.")
        elif isinstance(entry, (int, float)):
            yield f"{prefix}{key}", float(entry)
