"""Fourier transforms as cuFFT runs them."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import torch

from conccl.core.kinds import Access
from conccl.core.ops import Elementwise
from conccl.workloads.capture.kernels.call import AtenCall, Rule
from conccl.workloads.capture.kernels.copies import copied
from conccl.workloads.capture.tensors import touched_nbytes
from conccl.workloads.captured import Kernel

ONE_KERNEL = 1 << 13
"""Lengths up to here stay in shared memory through one kernel; longer ones are split in two factors."""

PRIMES = (2, 3, 5, 7, 11, 13)
"""Lengths of other factors go through two transforms of padded length (Bluestein)."""

NO_SCALE = 0
"""fft_norm_mode::none."""


def passes(size: int, /) -> int:
    """How often cuFFT goes over the data for one dimension."""
    rest = size
    for prime in PRIMES:
        while rest % prime == 0 and rest > 1:
            rest //= prime
    if rest > 1:
        return 5  # chirp, transform, product, transform back, chirp
    return 1 if size <= ONE_KERNEL else 2


def _transform(call: AtenCall) -> Iterator[Kernel]:
    """A pass or more a dimension; complex to real works on a copy; a scale is a kernel of its own.

    aten/src/ATen/native/cuda/SpectralOps.cpp.
    """
    source, out = call.inputs[0], call.outputs[0]
    if not (source.numel() and out.numel()):
        return
    real = out if call.name == "_fft_c2r" else source
    dims = call.argument("dim")
    if call.name == "_fft_c2r":
        yield copied(source, torch.empty(source.shape, dtype=source.dtype, device="meta"))
    first, last = touched_nbytes(source), touched_nbytes(out)
    total = sum(passes(int(real.shape[dim])) for dim in dims)
    inner = max(first if call.name == "_fft_c2r" else last, 1)
    for index in range(total):
        op = Elementwise(
            name="fft",
            read_nbytes=first if index == 0 else inner,
            written_nbytes=last if index == total - 1 else inner,
            numel=out.numel(),
            access=Access.STRIDED,
        )
        yield call.kernel(op)
    if call.name == "_fft_r2c" and not call.argument("onesided"):  # the other half, by symmetry
        yield call.elementwise(kind="fft", reads=[out], writes=[out], access=Access.STRIDED)
    if call.argument("normalization") != NO_SCALE and prod(int(real.shape[dim]) for dim in dims) > 1:
        yield call.elementwise(kind="mul", reads=[out], writes=[out])


RULES: dict[str, Rule] = dict.fromkeys(("_fft_r2c", "_fft_c2r", "_fft_c2c"), _transform)
