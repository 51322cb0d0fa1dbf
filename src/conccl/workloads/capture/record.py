"""The mode that notes each aten op, gives its outputs shapes, and launches the kernels it becomes.

It stands below autograd and sees forward and backward alike. An op that PyTorch puts together from others on
every device (BCE with logits, padding, repeat) is put together here too, so that its parts are seen.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from conccl.workloads.capture import crossing, host
from conccl.workloads.capture.collectives import Communication, is_collective
from conccl.workloads.capture.devices import require_one_device
from conccl.workloads.capture.interception import without_interception
from conccl.workloads.capture.kernels.call import AtenCall
from conccl.workloads.capture.kernels.collectives import called
from conccl.workloads.capture.kernels.table import has_rule, launch
from conccl.workloads.capture.outputs import shaped
from conccl.workloads.capture.program import Program
from conccl.workloads.capture.residency import Residency
from conccl.workloads.capture.tensors import is_on_device, tensors_in
from conccl.workloads.capture.values import Values
from conccl.workloads.captured import Phase


class _Way(enum.Enum):
    """What is done with an op on the device."""

    VIEW = enum.auto()
    """Nothing runs on the GPU."""
    CROSSING = enum.auto()
    """Bytes or values go to the host or come from it, or may."""
    PARTS = enum.auto()
    """PyTorch's formula for all devices runs, and its parts are recorded."""
    NEW_PARTS = enum.auto()
    """The same for an op that returns new memory."""
    UNSEEN_PARTS = enum.auto()
    """The same for an op that autograd takes apart, where autograd is not there (inference mode)."""
    KERNELS = enum.auto()


class Record(TorchDispatchMode):
    """Active while code is captured."""

    def __init__(self, program: Program, values: Values) -> None:
        super().__init__()
        self._program = program
        self._values = values
        self._ways: dict[Any, _Way] = {}
        self._residency = Residency(l2_nbytes=program.device.l2_nbytes)
        self._communication = Communication(program)
        self._border = crossing.Border(program=program, values=values, recording=self)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do without the wrapper that hides modes from torch.compile: it imports the whole of it."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the op on shapes alone and launch its kernels."""
        if any(kind not in _PLAIN for kind in types):
            if any(issubclass(kind, _ASIDE) for kind in types):
                return func(*args, **(kwargs or {}))  # PyTorch asks itself for shapes
            return NotImplemented  # a tensor class of someone's (DTensor): its parts come back here
        self._program.depth += 1
        try:
            with torch._C.DisableTorchFunction(), without_interception():
                return self._recorded(func, args, dict(kwargs or {}))
        finally:
            self._program.depth -= 1

    def _recorded(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if not _concerns_device(args, options):
            return host.run(func, args, options)
        backward = torch._C._current_graph_task_id() != -1
        self._program.phase = Phase.BACKWARD if backward else Phase.PYTHON
        return self._on_device(func, args, options)

    def _among_ranks(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        name = func._schema.name.partition("::")[2]
        if name == "wait_tensor":
            self._communication.wait(args[0])
            return args[0]
        out = func(*args, **options)
        if name == "_wrap_tensor_autograd":
            self._communication.rename(args[0], out)
        call = called(func, args, options, out)
        if call is not None:
            self._communication.launch(name, call)
        return out

    def _on_device(self, func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if is_collective(func):
            return self._among_ranks(func, args, options)
        way = self._ways.get(func)
        if way is None:
            way = self._ways[func] = _way_of(func)
        if way is _Way.CROSSING:
            result = crossing.OPS[func](self._border, *args, **options)
            if result is not NotImplemented:
                return result
            way = _Way.KERNELS
        if way in _PARTS:
            with self:
                return func._op_dk(_PARTS[way], *args, **options)
        if way is _Way.KERNELS:
            require_one_device(func, args, options)
        out = shaped(func, args, options, self._values)
        if way is _Way.VIEW:
            self._program.launch(func._schema.name.removeprefix("aten::"))
            return out
        call = AtenCall(func=func, args=args, kwargs=options, out=out, device=self._program.device)
        self._communication.touch([*call.inputs, *call.outputs])
        launch(call, self._program, cached=self._residency.share(call.inputs))
        self._residency.touch([*call.inputs, *call.outputs])
        self._values.follow(func, args, options, out)
        return out


_PARTS = {
    _Way.PARTS: torch._C.DispatchKey.CompositeExplicitAutograd,
    _Way.NEW_PARTS: torch._C.DispatchKey.CompositeExplicitAutogradNonFunctional,
    _Way.UNSEEN_PARTS: torch._C.DispatchKey.CompositeImplicitAutograd,
}

_PLAIN = frozenset(
    {torch.Tensor, torch.nn.Parameter, torch.nn.parameter.UninitializedParameter, torch.nn.Buffer}
)


_ASIDE = FakeTensor


def _concerns_device(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    device = kwargs.get("device")
    if device is not None and device.type == "meta":
        return True
    for value in args:
        if isinstance(value, torch.Tensor):
            if value.is_meta:
                return True
        elif isinstance(value, (list, tuple)) and any(is_on_device(item) for item in value):
            return True
    return bool(kwargs) and any(is_on_device(tensor) for tensor in tensors_in(kwargs))


def _way_of(func: Any) -> _Way:
    name = func.name()
    if func in crossing.OPS:
        return _Way.CROSSING
    if func.is_view or func in _VIEWS:
        return _Way.VIEW
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    by_number = torch.Tag.pointwise in func.tags and "Scalar" in func._overloadname
    if by_number or has_rule(func) or name.startswith("aten::_foreach") or has(name, "CPU"):
        return _Way.KERNELS
    if has(name, "CompositeImplicitAutograd"):
        return _Way.UNSEEN_PARTS
    if has(name, "CompositeExplicitAutogradNonFunctional"):
        return _Way.NEW_PARTS
    return _Way.PARTS if has(name, "CompositeExplicitAutograd") else _Way.KERNELS


_VIEWS = frozenset(
    {
        torch.ops.aten.detach.default,
        torch.ops.aten._reshape_alias.default,
        torch.ops.aten.lift.default,
        torch.ops.aten.lift_fresh.default,
        torch.ops.aten._unsafe_view.default,
        torch.ops.aten.is_coalesced.default,
        torch.ops.aten._coalesced_.default,
        torch.ops.aten._nnz.default,
        torch.ops.aten.sparse_dim.default,
        torch.ops.aten.dense_dim.default,
    }
)
"""Views that PyTorch does not call so, because nothing but autograd uses them."""
