"""`GemmQueue`: matmuls that are collected where they stand in the code, and run together at the end."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import torch

from conccl.core.errors import InputError
from conccl.integrations.together.matmul import matmul_together
from conccl.tune.gemms.library import Library


class Product:
    """What a collected matmul will be; its ``value`` is there once the queue has run."""

    def __init__(self, name: str, shape: tuple[int, ...], bias: torch.Tensor | None) -> None:
        self._name = name
        self._shape = shape
        self._bias = bias
        self._value: torch.Tensor | None = None

    @property
    def value(self) -> torch.Tensor:
        """The product. Raises `InputError` before the queue has run."""
        if self._value is None:
            raise InputError(
                f"{self._name} has not run yet; leave the queue's block, or call flush(), first."
            )
        return self._value

    @property
    def is_ready(self) -> bool:
        """Whether the queue has run."""
        return self._value is not None

    def _set(self, value: torch.Tensor) -> None:
        value = value.reshape(self._shape)
        self._value = value if self._bias is None else value + self._bias


class GemmQueue:
    """Collects independent matmuls and runs them in one go.

    ::

        with conccl.GemmQueue() as queue:
            q = queue.linear(x, w_q)
            k = queue.linear(x, w_k)
        attention(q.value, k.value)

    An operand that is itself a product of this queue must have run: `flush` runs what is collected so far.
    """

    def __init__(self, *, library: Library | None = None, busy_sms: int = 0) -> None:
        self._library = library
        self._busy_sms = busy_sms
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._products: list[Product] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._pairs)

    def matmul(self, a: torch.Tensor | Product, b: torch.Tensor | Product, /) -> Product:
        """``a @ b``: a [..., k] and b [k, n]."""
        return self._add(_ready(a), _ready(b), bias=None)

    def linear(
        self, x: torch.Tensor | Product, weight: torch.Tensor, bias: torch.Tensor | None = None, /
    ) -> Product:
        """``x @ weight.T + bias``: x [..., k], weight [n, k], bias [n], as `torch.nn.functional.linear`."""
        return self._add(_ready(x), weight.t(), bias=bias)

    def flush(self) -> None:
        """Run what is collected; a queue that fails is empty afterwards, and its products have no values."""
        pairs, products = self._pairs, self._products
        self._pairs, self._products = [], []
        values = matmul_together(pairs, library=self._library, busy_sms=self._busy_sms)
        for product, value in zip(products, values, strict=True):
            product._set(value)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()

    def _add(self, a: torch.Tensor, b: torch.Tensor, *, bias: torch.Tensor | None) -> Product:
        if b.dim() != 2 or a.dim() < 1 or a.shape[-1] != b.shape[0]:
            raise InputError(
                f"matmul {self._count} of the queue: {tuple(a.shape)} @ {tuple(b.shape)} does not fit;"
                " give [..., k] and [k, n]."
            )
        product = Product(f"matmul {self._count} of the queue", (*a.shape[:-1], b.shape[1]), bias)
        self._count += 1
        self._pairs.append((a.reshape(-1, a.shape[-1]), b))
        self._products.append(product)
        return product


def _ready(operand: torch.Tensor | Product) -> torch.Tensor:
    if isinstance(operand, Product):
        if not operand.is_ready:
            raise InputError(
                f"an operand is {operand._name}, which has not run: these two depend on each other."
                " Call flush() between them, or use two queues."
            )
        return operand.value
    return operand
