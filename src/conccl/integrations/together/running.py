"""Matmuls on a device: one after the other, or several streams side by side.

Streams fork from the caller's and join it again by events, so that a CUDA graph can capture them and tensors
are ready for whatever the caller does next.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from conccl.core.errors import InputError
from conccl.core.kinds import DType
from conccl.integrations.together.checks import Operands
from conccl.tune.gemms.library import Decision, Library

_DTYPES = {
    torch.bfloat16: DType.BF16,
    torch.float16: DType.FP16,
    torch.float32: DType.FP32,
    torch.float64: DType.FP64,
}


def decide(pairs: Sequence[Operands], library: Library | None, /, *, busy_sms: int) -> Decision | None:
    """What the library says of these matmuls; None where there is nothing to decide."""
    dtype = _DTYPES.get(pairs[0][0].dtype)
    if library is None or dtype is None or len(pairs) < 2 or pairs[0][0].device.type != "cuda":
        return None
    _require_made_for(library, pairs[0][0].device)
    shapes = tuple((a.shape[0], b.shape[1], a.shape[1]) for a, b in pairs)
    if any(0 in shape for shape in shapes):
        return None
    return library.decide(shapes, dtype=dtype, busy_sms=busy_sms, grouping=False)


def _require_made_for(library: Library, device: torch.device) -> None:
    """Refuse a library of another device: its degrees would be wrong here."""
    sms, name = _found(device)
    model = library.environment.device.partition("-")[0]
    if sms != library.sms or model.lower() not in name.lower().replace(" ", ""):
        raise InputError(
            f"the library was made for {library.environment.device} ({library.sms} SMs);"
            f" this is {name} ({sms} SMs)."
            " Tune for it: conccl tune gemms SETS --device NAME --library FILE."
        )


@functools.cache
def _found(device: torch.device) -> tuple[int, str]:
    found = torch.cuda.get_device_properties(device)
    return found.multi_processor_count, found.name


def run(pairs: Sequence[Operands], out: Sequence[torch.Tensor], /, *, degree: int) -> None:
    """Write every product to its output, ``degree`` at a time."""
    if degree <= 1 or pairs[0][0].device.type != "cuda":
        for (a, b), result in zip(pairs, out, strict=True):
            torch.mm(a, b, out=result)
        return
    caller = torch.cuda.current_stream(pairs[0][0].device)
    streams = _streams(pairs[0][0].device.index, degree)[: len(pairs)]
    ready = caller.record_event()
    for index, stream in enumerate(streams):
        stream.wait_event(ready)
        with torch.cuda.stream(stream):
            for (a, b), result in zip(pairs[index::degree], out[index::degree], strict=True):
                torch.mm(a, b, out=result)
        caller.wait_event(stream.record_event())
    # The caller's stream waits for all of them, so no memory can be reused before they are through.


@functools.cache
def _streams(device: int, degree: int) -> tuple[torch.cuda.Stream, ...]:
    return tuple(torch.cuda.Stream(device=device) for _ in range(degree))  # type: ignore[no-untyped-call]
