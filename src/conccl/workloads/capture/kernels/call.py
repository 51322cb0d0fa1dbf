"""One aten op with its arguments and outputs: what the kernel table looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from conccl.core.hardware import Device
from conccl.core.kinds import Access
from conccl.core.ops import Elementwise, Op
from conccl.workloads.capture.tensors import access_of, dense_parts, is_on_device, tensors_in, touched_nbytes
from conccl.workloads.captured import Kernel

Rule = Callable[["AtenCall"], Iterable[Kernel]]
"""From an op that was called to the kernels that CUDA would run for it."""


@dataclass(frozen=True, kw_only=True)
class AtenCall:
    """An aten op as it was called, and what it returned."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    device: Device
    """The GPU that is presented."""

    @cached_property
    def name(self) -> str:
        """As in ``addmm``: the op without namespace and overload."""
        return str(self.func._schema.name).partition("::")[2]

    @cached_property
    def inputs(self) -> list[torch.Tensor]:
        """Device tensors among the arguments, in order; ``out=`` is written alone."""
        named = {name: value for name, value in self.kwargs.items() if name != "out"}
        return dense_parts(t for t in tensors_in((self.args, named)) if is_on_device(t))

    @cached_property
    def outputs(self) -> list[torch.Tensor]:
        """Device tensors that were returned."""
        return dense_parts(t for t in tensors_in(self.out) if is_on_device(t))

    def has_argument(self, name: str, /) -> bool:
        """Whether the op's schema has an argument of this name."""
        return any(argument.name == name for argument in self.func._schema.arguments)

    def argument(self, name: str, /) -> Any:
        """The argument of this name in the op's schema; its default where it was not given."""
        for index, argument in enumerate(self.func._schema.arguments):
            if argument.name == name:
                if name in self.kwargs:
                    return self.kwargs[name]
                return self.args[index] if index < len(self.args) else argument.default_value
        raise KeyError(f"{self.name} has no argument {name!r}")

    def kernel(self, op: Op, /, *, launches: int = 1) -> Kernel:
        """A kernel, or a library call, that does this."""
        return Kernel(name=self.name, op=op, launches=launches)

    def elementwise(
        self,
        *,
        kind: str | None = None,
        reads: Sequence[torch.Tensor] | None = None,
        writes: Sequence[torch.Tensor] | None = None,
        access: Access | None = None,
        instructions: int = 0,
    ) -> Kernel:
        """One kernel that reads and writes each element of these tensors once.

        ``kind`` is what the cost models call it ("fill", "copy", "gelu_tanh"); else the op's name.
        ``instructions`` are those of an element; 0: as many as kernels of its access have.
        """
        read = self.inputs if reads is None else reads
        written = self.outputs if writes is None else writes
        numel = max((tensor.numel() for tensor in written), default=0)
        op = Elementwise(
            name=kind or self.name.removesuffix("_"),
            read_nbytes=sum(map(touched_nbytes, read)),
            written_nbytes=sum(map(touched_nbytes, written)),
            flops=2 * instructions * numel,
            numel=numel,
            access=access or access_of([*read, *written]),
        )
        return Kernel(name=self.name, op=op)
