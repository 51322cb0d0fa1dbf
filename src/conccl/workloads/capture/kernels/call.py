"""One aten op with its arguments and outputs: what the kernel table looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from conccl.core.ops import Elementwise, Op
from conccl.workloads.capture.tensors import access_of, is_on_device, tensors_in, touched_nbytes
from conccl.workloads.captured import Kernel

if TYPE_CHECKING:
    Rule = Callable[["AtenCall"], Iterable[Kernel]]


@dataclass(frozen=True, kw_only=True)
class AtenCall:
    """An aten op as it was called, and what it returned."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any

    @property
    def name(self) -> str:
        """As in ``addmm``: the op without namespace and overload."""
        return str(self.func._schema.name).partition("::")[2]

    @cached_property
    def inputs(self) -> list[torch.Tensor]:
        """Device tensors among the arguments, in order."""
        return [tensor for tensor in tensors_in((self.args, self.kwargs)) if is_on_device(tensor)]

    @cached_property
    def outputs(self) -> list[torch.Tensor]:
        """Device tensors that were returned."""
        return [tensor for tensor in tensors_in(self.out) if is_on_device(tensor)]

    def argument(self, name: str, /) -> Any:
        """The argument of this name in the op's schema; its default where it was not given."""
        for index, argument in enumerate(self.func._schema.arguments):
            if argument.name == name:
                if name in self.kwargs:
                    return self.kwargs[name]
                return self.args[index] if index < len(self.args) else argument.default_value
        raise KeyError(f"{self.name} has no argument {name!r}")

    def kernel(self, op: Op, /, *, name: str | None = None) -> Kernel:
        """A kernel of this op."""
        return Kernel(name=name or self.name, op=op)

    def elementwise(
        self,
        *,
        name: str | None = None,
        reads: Iterable[torch.Tensor] | None = None,
        writes: Iterable[torch.Tensor] | None = None,
        flops_per_element: int = 1,
    ) -> Kernel:
        """One kernel that reads and writes each element of these tensors once."""
        read = list(self.inputs if reads is None else reads)
        written = list(self.outputs if writes is None else writes)
        numel = max((tensor.numel() for tensor in written), default=0)
        return Kernel(
            name=name or self.name,
            op=Elementwise(
                name=name or self.name,
                read_nbytes=sum(map(touched_nbytes, read)),
                written_nbytes=sum(map(touched_nbytes, written)),
                flops=flops_per_element * numel,
                numel=numel,
                access=access_of([*read, *written]),
            ),
        )
