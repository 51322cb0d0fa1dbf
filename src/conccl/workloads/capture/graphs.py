"""CUDA graphs: kernels that are recorded aside, and launched together by each replay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from conccl.workloads.capture.program import Program
from conccl.workloads.captured import KernelCall


class CUDAGraph:
    """A graph as programs use it; ``program`` is set where it is presented."""

    program: Program

    def __init__(self, *_: Any, **__: Any) -> None:
        self._kernels: tuple[KernelCall, ...] = ()
        self._origin = ""
        self._aside: Any = None

    def capture_begin(self, *_: Any, **__: Any) -> None:
        """What is launched from here on goes into the graph."""
        self._origin = self.program.stream
        self._aside = self.program.set_aside()

    def capture_end(self) -> None:
        """The graph is complete."""
        self._kernels = self.program.take_back(self._aside)
        self._aside = None

    def replay(self) -> None:
        """All its kernels by one launch; those of the stream it was captured on go to the current one."""
        self.program.replay(self._kernels, origin=self._origin)

    def reset(self) -> None:
        """Forget its kernels."""
        self._kernels = ()

    def pool(self) -> tuple[int, int]:
        """A memory pool's handle, of which there is no need."""
        return (0, 0)

    def instantiate(self) -> None:
        """Nothing is left to do."""

    def enable_debug_mode(self) -> None:
        """Nothing is there to be dumped."""


@contextmanager
def capturing_graph(graph: CUDAGraph, *_: Any, **__: Any) -> Iterator[None]:
    """``torch.cuda.graph``: launches within go into the graph, on a stream of its own."""
    program = graph.program
    with program.on_stream(program.new_stream()):
        graph.capture_begin()
        try:
            yield
        finally:
            graph.capture_end()


def graphed(callables: Any, *_: Any, **__: Any) -> Any:
    """``torch.cuda.make_graphed_callables``: they stay as they are and are launched one by one."""
    return callables
