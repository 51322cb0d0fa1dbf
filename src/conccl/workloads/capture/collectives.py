"""Collectives while code is captured: on the stream of their group, and waited for where the program does.

ProcessGroupNCCL puts a collective that the program may wait for later on a stream of the group's, behind
what the current stream has; one that it waits for at once goes on the current stream. Nobody sees a
``wait()`` that PyTorch's C++ calls (DDP), so whatever touches the result of a collective waits for it.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from conccl.core.kinds import CollectiveKind
from conccl.workloads.capture.kernels.collectives import Called
from conccl.workloads.capture.program import Mark, Program


class Communication:
    """What is on its way."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._per_node = program.device.gpus_per_node
        self._marks: dict[int, Mark] = {}
        """Storage -> the collective that writes into it."""
        self._streams: dict[str, str] = {}
        """Name of a group -> its stream."""

    def launch(self, name: str, call: Called, /) -> None:
        """Put a collective on its stream; groups of one rank only copy, which NCCL leaves out in place."""
        program = self._program
        if call.group.size() == 1 and call.kind is not CollectiveKind.ALL_TO_ALL:
            program.launch(name)
            return
        if call.waits:
            program.launch(name, call.kernels(name, per_node=self._per_node))
            return
        stream = self._stream(call.group.group_name)
        program.wait_for(program.mark(program.stream), stream=stream)
        program.launch(name, call.kernels(name, per_node=self._per_node), stream=stream)
        mark = program.mark(stream)
        for tensor in call.tensors:
            self._marks[tensor.untyped_storage()._cdata] = mark

    def wait(self, tensor: torch.Tensor, /) -> None:
        """The current stream waits for what writes into the tensor."""
        mark = self._marks.pop(tensor.untyped_storage()._cdata, None)
        self._program.wait_for(mark, stream=self._program.stream)

    def rename(self, tensor: torch.Tensor, other: torch.Tensor, /) -> None:
        """The result is handed on as another tensor, which is not waited for yet."""
        mark = self._marks.pop(tensor.untyped_storage()._cdata, None)
        if mark is not None:
            self._marks[other.untyped_storage()._cdata] = mark

    def touch(self, tensors: list[torch.Tensor], /) -> None:
        """Whatever uses a result waits for it."""
        if self._marks:
            for tensor in tensors:
                self.wait(tensor)

    def _stream(self, group: str) -> str:
        if group not in self._streams:
            self._streams[group] = self._program.new_stream()
        return self._streams[group]


@functools.cache
def is_collective(func: Any, /) -> bool:
    """Whether an op belongs to torch.distributed."""
    return func.namespace in ("c10d", "_c10d_functional", "_dtensor")
