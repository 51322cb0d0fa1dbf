"""Environment settings that kill overlap in silence, each with what it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from conccl.gpu.findings import Finding, State

GROUP = "settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A variable, the values that harm, and why."""

    name: str
    harms: Callable[[str], bool]
    why: str
    advice: str = "Unset it."


def _is_on(value: str) -> bool:
    return value.strip().lower() not in ("", "0", "false", "no", "off")


def _is_off(value: str) -> bool:
    return value.strip().lower() in ("0", "false", "no", "off")


def _is_one(value: str) -> bool:
    return value.strip() == "1"


def _is_given(value: str) -> bool:
    return bool(value.strip())


SETTINGS = (
    Setting(
        name="CUDA_DEVICE_MAX_CONNECTIONS",
        harms=_is_one,
        why="All streams share one hardware queue: work of one stream waits behind unrelated work of another,"
        " and a wait for a flag in memory can block the very copy that would set it. Megatron-LM sets it to"
        " get communication launched first.",
        advice="Leave it unset (8) or set 32; use a high-priority stream to get communication first.",
    ),
    Setting(
        name="CUDA_LAUNCH_BLOCKING",
        harms=_is_on,
        why="Every launch waits for its kernel: nothing overlaps.",
    ),
    Setting(
        name="TORCH_NCCL_ENABLE_TIMING",
        harms=_is_on,
        why="Timed events around every collective can serialise it with computation (pytorch #143890).",
        advice="Unset it while measuring or training; it is for debugging.",
    ),
    Setting(
        name="TORCH_NCCL_BLOCKING_WAIT",
        harms=_is_on,
        why="wait() blocks the host until the collective has ended, so nothing is launched beside it.",
    ),
    Setting(
        name="PYTORCH_NO_CUDA_MEMORY_CACHING",
        harms=_is_on,
        why="Every allocation and release synchronises the device.",
    ),
    Setting(
        name="NCCL_P2P_DISABLE",
        harms=_is_on,
        why="Copies between GPUs go through host memory: a fraction of the bandwidth.",
    ),
    Setting(
        name="NCCL_SHM_DISABLE",
        harms=_is_on,
        why="Ranks without peer access talk through the network stack.",
    ),
    Setting(
        name="NCCL_CUMEM_ENABLE",
        harms=_is_off,
        why="Buffers cannot be registered as symmetric windows: NCCL's copy-engine (zero-CTA) path is off.",
    ),
    Setting(
        name="NCCL_ALGO",
        harms=_is_given,
        why="NCCL's own choice of algorithm is overruled for every size.",
        advice="Unset it unless you are comparing algorithms.",
    ),
    Setting(
        name="NCCL_PROTO",
        harms=_is_given,
        why="NCCL's own choice of protocol is overruled for every size; LL halves large ones' bandwidth.",
        advice="Unset it unless you are comparing protocols.",
    ),
    Setting(
        name="NCCL_LAUNCH_ORDER_IMPLICIT",
        harms=_is_on,
        why="Collectives of different communicators are put in one order: safe, and none overlaps another.",
        advice="Keep it only if communicators hang without.",
    ),
)

TOLD = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MODULE_LOADING",
    "CUDA_MPS_PIPE_DIRECTORY",
    "NCCL_CTA_POLICY",
    "NCCL_MAX_CTAS",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_NVLS_ENABLE",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST",
)
"""Settings that change what is measured and are neither good nor bad."""


def setting_findings(environment: Mapping[str, str], /) -> Iterator[Finding]:
    """What is set: warnings with their reason, then plain facts; a line that all is well if nothing harms."""
    harmful = [one for one in SETTINGS if one.harms(environment.get(one.name, ""))]
    for one in harmful:
        yield Finding(
            group=GROUP,
            name=one.name,
            state=State.WARNING,
            value=environment[one.name],
            evidence=one.why,
            advice=one.advice,
        )
    if not harmful:
        yield Finding(
            group=GROUP,
            name="settings that kill overlap",
            state=State.OK,
            value="none is set",
            evidence=f"looked for {len(SETTINGS)}",
        )
    for name in TOLD:
        if environment.get(name):
            yield Finding(
                group=GROUP, name=name, state=State.INFO, value=environment[name], evidence="environment"
            )
