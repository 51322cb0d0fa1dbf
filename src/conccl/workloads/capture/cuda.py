"""``torch.cuda`` as code finds it while it is captured: streams and events that keep order, no waiting."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch

from conccl.core.hardware import Device
from conccl.workloads.capture.autocast import Autocast
from conccl.workloads.capture.graphs import CUDAGraph, capturing_graph, graphed
from conccl.workloads.capture.present import CUDA
from conccl.workloads.capture.program import DEFAULT_STREAM, HostWait, Mark, Program


class Stream:
    """A stream of the program."""

    program: Program
    events: Callable[[], Event]

    def __init__(self, device: Any = None, priority: int = 0, *, name: str | None = None, **_: Any) -> None:
        del device
        self.priority = priority
        self.name = name or self.program.new_stream()
        self.device = CUDA
        self.device_index = 0
        self.stream_id = self.cuda_stream = int(self.name.rsplit(" ", maxsplit=1)[-1])

    def wait_stream(self, other: Stream) -> None:
        """What comes next here waits for all that is on the other stream."""
        self.program.wait_for(self.program.mark(other.name), stream=self.name)

    def wait_event(self, event: Event) -> None:
        """What comes next here waits for the event."""
        self.program.wait_for(event.mark, stream=self.name)

    def record_event(self, event: Event | None = None) -> Event:
        """An event behind what is on this stream now."""
        event = event or self.events()
        event.record(self)
        return event

    def synchronize(self) -> None:
        """The host waits."""
        self.program.wait_on_host("stream synchronize", self.program.mark(self.name))

    def query(self) -> bool:
        """Nothing is ever pending."""
        return True

    def is_capturing(self) -> bool:
        """Whether a graph is being made, which programs ask so that they do nothing forbidden."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


class Event:
    """A mark on a stream."""

    program: Program

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        del enable_timing
        self.mark: Mark | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Mark what is on the stream now."""
        self.mark = self.program.mark(stream.name if stream is not None else self.program.stream)

    def wait(self, stream: Stream | None = None) -> None:
        """What comes next on the stream waits for the mark."""
        self.program.wait_for(self.mark, stream=stream.name if stream is not None else self.program.stream)

    def synchronize(self) -> None:
        """The host waits."""
        self.program.wait_on_host("event synchronize", self.mark)

    def query(self) -> bool:
        """Nothing is ever pending."""
        return True

    def elapsed_time(self, other: Event) -> float:
        """Times are what the simulator is asked for afterwards; code that reads them here gets 1 ms."""
        del other
        return 1.0


_GENERATOR: Any = torch.Generator


class Generator(torch.Generator):
    """A source of random numbers that says that it is on the device that it was asked for on."""

    _shown: torch.device

    def __new__(cls, device: Any = None) -> Generator:
        """PyTorch here makes none for a GPU."""
        made: Generator = _GENERATOR.__new__(cls, device="cpu")
        made._shown = torch.device("cpu" if device is None else device)
        return made

    def __init__(self, device: Any = None) -> None:
        """It is complete."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where it is shown to be."""
        return CUDA if self._shown.type == "cuda" else self._shown


@contextlib.contextmanager
def presented(program: Program, device: Device, autocast: Autocast, /) -> Iterator[None]:
    """``torch.cuda`` and its kin answer for ``device`` meanwhile; all of it is undone afterwards."""
    event_class = type("Event", (Event,), {"program": program})
    stream_class = type("Stream", (Stream,), {"program": program, "events": event_class})
    graph_class = type("CUDAGraph", (CUDAGraph,), {"program": program})
    classes = {"Stream": stream_class, "Event": event_class, "CUDAGraph": graph_class}
    with contextlib.ExitStack() as stack:
        for target, name, value in _replacements(program, device, autocast, classes):
            if hasattr(target, name):
                stack.enter_context(mock.patch.object(target, name, value))
        yield


def _replacements(
    program: Program, device: Device, autocast: Autocast, classes: dict[str, Any]
) -> Iterator[tuple[Any, str, Any]]:
    stream_class = classes["Stream"]

    def current_stream(_: Any = None) -> Any:
        return stream_class(name=program.stream)

    def on_stream(stream: Any) -> AbstractContextManager[None]:
        return program.on_stream(stream.name) if stream is not None else contextlib.nullcontext()

    def set_stream(stream: Any) -> None:
        program.stream = stream.name

    def synchronize(_: Any = None) -> None:
        program.launch("synchronize", wait=HostWait.DEVICE)

    def compiled(model: Any = None, **_: Any) -> Any:
        program.warn(
            "torch.compile was captured as eager code: kernels and times are those without it. On a GPU it"
            " fuses elementwise kernels and spares the host work."
        )
        flex = sys.modules.get("torch.nn.attention.flex_attention")
        if flex is not None:  # what it says to code that is not compiled
            flex._WARNINGS_SHOWN.add("flex_attention_performance")
        return model if model is not None else (lambda function: function)

    cuda = torch.cuda
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda _: None,
        "get_device_name": lambda *_: device.name,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: _properties(device),
        "is_bf16_supported": lambda *_, **__: True,
        "current_stream": current_stream,
        "default_stream": lambda _=None: stream_class(name=DEFAULT_STREAM),
        "stream": on_stream,
        "set_stream": set_stream,
        **classes,
        "graph": capturing_graph,
        "make_graphed_callables": graphed,
        "graph_pool_handle": lambda: (0, 0),
        "synchronize": synchronize,
        "empty_cache": lambda: None,
        "ipc_collect": lambda: None,
        "memory_stats": lambda *_: {},
        "memory_summary": lambda *_, **__: "",
        "reset_max_memory_allocated": lambda *_: None,
        "reset_accumulated_memory_stats": lambda *_: None,
        "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8, device="cpu"),
        "get_rng_state_all": list,
        "set_rng_state": lambda *_: None,
        "set_rng_state_all": lambda *_: None,
        "seed": lambda: None,
        "seed_all": lambda: None,
        "initial_seed": lambda: 0,
        "get_arch_list": lambda: ["sm_90"],
        "manual_seed": lambda _: None,
        "manual_seed_all": lambda _: None,
        "reset_peak_memory_stats": lambda *_: None,
        "memory_allocated": lambda *_: 0,
        "max_memory_allocated": lambda *_: 0,
        "memory_reserved": lambda *_: 0,
        "max_memory_reserved": lambda *_: 0,
        "mem_get_info": lambda *_: (device.hbm_nbytes, device.hbm_nbytes),
        "is_current_stream_capturing": lambda: False,
        "_lazy_init": lambda: None,
        "device": lambda _: contextlib.nullcontext(),
    }
    for name, answer in answers.items():
        yield cuda, name, answer
    for name in ("range_push", "range_pop", "mark"):
        yield cuda.nvtx, name, lambda *_, **__: 0
    yield cuda.nvtx, "range", contextlib.nullcontext
    yield cuda.nccl, "version", lambda: (2, 28, 9)
    yield cuda.nccl, "is_available", lambda *_: True
    yield cuda.profiler, "start", lambda: None
    yield cuda.profiler, "stop", lambda: None
    accelerator = {
        "is_available": lambda: True,
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "device_count": lambda: 1,
        "current_device_index": lambda: 0,
        "current_device_idx": lambda: 0,
        "set_device_index": lambda _: None,
        "current_stream": current_stream,
        "set_stream": set_stream,
        "synchronize": synchronize,
    }
    for name, answer in accelerator.items():
        yield torch.accelerator, name, answer
    yield torch._C, "_get_accelerator", lambda *_: torch.device("cuda")
    yield torch.backends.cudnn, "is_acceptable", lambda tensor: tensor.is_cuda
    yield torch.backends.cudnn, "is_available", lambda: True
    yield torch.nn.parallel.comm, "scatter", lambda tensor, *_, **__: (tensor,)
    yield torch.nn.parallel.comm, "gather", lambda tensors, *_, **__: tensors[0]
    yield torch, "compile", compiled
    yield torch, "set_default_device", lambda chosen: setattr(program, "default_device", chosen)
    yield torch, "get_default_device", lambda: torch.device(program.default_device or "cpu")
    yield torch.nn.Module, "compile", lambda self, *_, **__: self
    yield torch, "Generator", Generator
    yield torch.Tensor, "record_stream", lambda *_: None
    yield torch, "clear_autocast_cache", _both(autocast.clear, torch.clear_autocast_cache)
    yield (
        torch._C,
        "_group_tensors_by_device_and_dtype",
        _grouped(torch._C._group_tensors_by_device_and_dtype),
    )


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        first()
        second()

    return call


def _grouped(original: Callable[..., Any]) -> Callable[..., Any]:
    """Groups of tensors by device, which optimizers ask for in C++, with the device called CUDA."""

    def group(*args: Any, **kwargs: Any) -> Any:
        groups = original(*args, **kwargs)
        return {
            (CUDA if device.type == "meta" else device, dtype): found
            for (device, dtype), found in groups.items()
        }

    return group


def _properties(device: Device) -> Any:
    return types.SimpleNamespace(
        name=device.name,
        major=9,
        minor=0,
        total_memory=device.hbm_nbytes,
        multi_processor_count=device.sm_count,
        max_threads_per_multi_processor=device.threads_per_sm,
        L2_cache_size=device.l2_nbytes,
        shared_memory_per_multiprocessor=device.shared_memory_nbytes,
        warp_size=32,
    )
