"""Functions of ours in front of PyTorch's, for chosen ops, as long as code is captured.

They are registered under dispatch keys that stand above autograd and that no tensor has here (those of
autocast on devices that are not present), and the keys are switched on for this thread. So a function is
called for its op wherever that comes from, PyTorch's own C++ included, and what it calls gets its gradient
from PyTorch's formulas.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

Handler = Callable[..., Any]
"""Called with the arguments of the op; `NotImplemented` lets PyTorch's function do it."""

AUTOCAST_KEY = "AutocastPrivateUse1"
"""For casts: the outer one of the two, as autocast comes first in PyTorch."""

CHOICE_KEY = "AutocastIPU"
"""For what PyTorch does on CUDA only."""

KEYS = (AUTOCAST_KEY, CHOICE_KEY)


@contextlib.contextmanager
def intercepting(handlers: Mapping[str, Handler], /, *, key: str) -> Iterator[None]:
    """Call each handler in place of its op ("scaled_dot_product_attention", "softmax.int") meanwhile.

    Ops that this PyTorch does not have are passed over. Inside a handler its key is off.
    """
    with contextlib.ExitStack() as stack:
        rest = torch.library.Library("_", "IMPL", key)
        stack.callback(rest._destroy)
        rest.fallback(torch.library.fallthrough_kernel)
        ours = torch.library.Library("aten", "IMPL")
        stack.callback(ours._destroy)
        for name, handler in handlers.items():
            op = _op(name)
            if op is not None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ours.impl(name, _kernel(op, handler, key), key)
        dispatch_key = getattr(torch._C.DispatchKey, key)
        excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(dispatch_key)
        torch._C._dispatch_tls_set_dispatch_key_excluded(dispatch_key, False)
        stack.callback(torch._C._dispatch_tls_set_dispatch_key_excluded, dispatch_key, excluded)
        stack.enter_context(torch._C._IncludeDispatchKeyGuard(dispatch_key))
        yield


def without_interception() -> contextlib.AbstractContextManager[Any]:
    """No handler is called meanwhile: below autograd all is decided."""
    return torch._C._ExcludeDispatchKeyGuard(_ALL)


def _keys(*names: str) -> Any:
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, names[0]))
    for name in names[1:]:
        keys = keys | torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name))
    return keys


_ALL = _keys(*KEYS)


def _op(name: str) -> Any:
    packet, _, overload = name.partition(".")
    found = getattr(torch.ops.aten, packet, None)
    return None if found is None else getattr(found, overload or "default", None)


def _kernel(op: Any, handler: Handler, key: str) -> Callable[..., Any]:
    own = _keys(key)
    guard = torch._C._ExcludeDispatchKeyGuard
    # Within autocast nothing is cast again; what a choice does not take may hold ops that it does.
    composite = key == CHOICE_KEY and op.has_kernel_for_dispatch_key(_COMPOSITE)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            with guard(own):
                result = handler(*args, **kwargs)
                if result is not NotImplemented:
                    return result
                if not composite:
                    return op(*args, **kwargs)
            return op._op_dk(_COMPOSITE, *args, **kwargs)

    return kernel


_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
