"""Kernels in Triton's interpreter, in a process of their own: it must be chosen before Triton is loaded."""

from __future__ import annotations

import ctypes
import importlib
import json
import sys

import torch

from conccl.gpu.tracking.tiles import Span, tile_order
from conccl.gpu.tracking.trigger import Counters, Watchdog
from conccl.integrations.fused.rows import Blocks, pieces
from conccl.integrations.fused.tracked import spans_of_blocks


def interpreted():
    """The kernel's module with Triton's interpreter in the place of its compiler."""
    module = importlib.import_module("conccl.gpu.tracking.gemm")
    assert module._INTERPRETED
    return module


class Streams:
    """A driver whose streams are lists: each goes on when what stands first in it can."""

    def __init__(self):
        self.queues = {}
        self.log = []
        self.fails_with = None

    def _put(self, stream, ready, act):
        self.queues.setdefault(stream, []).append((ready, act))

    def wait_until(self, stream, address, value):
        self.log.append(("wait", stream, address, value))
        self._put(stream, lambda: self.word(address).value >= value, lambda: None)

    def write(self, stream, address, value):
        def act():
            self.word(address).value = value

        self.log.append(("write", stream, address, value))
        self._put(stream, lambda: True, act)

    def read(self, stream, address, count):
        self.pump()
        assert not self.queues.get(stream), "the stream for rescue is stuck too"
        return tuple(self.word(address + 4 * i).value for i in range(count))

    def record(self, stream):
        def is_done():
            if self.fails_with is not None:
                raise self.fails_with
            self.pump()
            return not self.queues.get(stream)

        return is_done

    def enqueue(self, stream, act):
        """A transfer, as any other work on a stream."""
        self._put(stream, lambda: True, act)

    def pump(self):
        """Carry out all that can be, on all streams."""
        going = True
        while going:
            going = False
            for queue in self.queues.values():
                while queue and queue[0][0]():
                    queue.pop(0)[1]()
                    going = True

    @staticmethod
    def word(address):
        return ctypes.c_uint32.from_address(address)


def products():
    """The kernel beside float64 for odd sizes, layouts, element types, epilogues; counters beside counts."""
    module = interpreted()
    source = torch.Generator().manual_seed(0)
    functional = torch.nn.functional
    epilogues = {
        "none": lambda x: x,
        "relu": functional.relu,
        "gelu": functional.gelu,
        "silu": functional.silu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    }
    compared = 0
    for index, (m, n, k, ctas) in enumerate(
        [(1, 1, 1, 1), (70, 45, 33, 3), (33, 64, 100, 7), (64, 32, 16, 1), (17, 130, 5, 99)]
    ):
        for dtype, tolerance in ((torch.float32, 1e-6), (torch.float16, 2e-3), (torch.bfloat16, 1.6e-2)):
            activation = list(epilogues)[index]
            x = torch.randn(m, k, generator=source).to(dtype)
            weight = torch.randn(n, k, generator=source).to(dtype)
            if index % 2:
                x, weight = x.t().contiguous().t(), weight.t().contiguous().t()
            bias = torch.randn(n, generator=source).to(dtype) if index else None
            half = m // 2
            spans = (
                Span(chunk=0, x_row=half, out_row=0, rows=m - half),
                Span(chunk=1, x_row=0, out_row=m - half, rows=half),
            )
            order = tile_order(spans, columns=n, block_m=16, block_n=32)
            out = torch.full((m + 1, n), float("nan"), dtype=dtype)
            counters = torch.zeros(2, dtype=torch.int32)
            module.tracked_gemm(
                out,
                x,
                weight,
                bias,
                order=order,
                blocks=module.Blocks(m=16, n=32, k=16),
                tracking=module.Tracking(counters=counters),
                activation=activation,
                ctas=ctas,
            )
            moved = torch.cat([x[half:], x[:half]]).double()
            wanted = epilogues[activation](
                moved @ weight.double().t() + (0 if bias is None else bias.double())
            )
            scale = max(1.0, wanted.abs().max().item())
            error = (out[:m].double() - wanted).abs().max().item() / scale
            assert error <= tolerance, (m, n, k, dtype, error)
            assert out[m].isnan().all(), "rows that are no tile's were written"
            assert tuple(counters.tolist()) == order.by_chunk
            compared += 1
    return compared


def waiting():
    """A chunk that does not come is given up on, by its number; one that has come is not."""
    module = interpreted()
    x, weight = torch.randn(32, 8), torch.randn(16, 8)
    spans = tuple(Span(chunk=i, x_row=16 * i, out_row=16 * i, rows=16) for i in range(2))
    order = tile_order(spans, columns=16, block_m=16, block_n=16)
    told = []
    for arrived in ([1, 1], [1, 0], [0, 0]):
        failed = torch.zeros(1, dtype=torch.int32)
        out = torch.zeros(32, 16)
        module.tracked_gemm(
            out,
            x,
            weight,
            None,
            order=order,
            blocks=module.Blocks(m=16, n=16, k=16),
            tracking=module.Tracking(
                arrived=torch.tensor(arrived, dtype=torch.int32), failed=failed, spin_limit=20
            ),
            ctas=1,
        )
        told.append(failed.item())
    torch.testing.assert_close(out, x @ weight.t())
    return told


def reduce_scatter(ranks, rows, chunks):
    """GEMM and reduce-scatter of virtual ranks: kernels stop after every few tiles, and transfers go on.

    Returns how many chunks had been moved at each stop; the sums are compared here.
    """
    module = interpreted()
    n, k = 20, 9
    source = torch.Generator().manual_seed(1)
    xs = [torch.randn(rows, k, generator=source) for _ in range(ranks)]
    weights = [torch.randn(n, k, generator=source) for _ in range(ranks)]
    blocks = Blocks(rows=rows, ranks=ranks)
    bounds = pieces(blocks.longest, chunks)
    driver = Streams()
    watchdog = Watchdog(driver, poll_s=0.001)
    sums = [torch.zeros(blocks.longest, n) for _ in range(ranks)]
    kernels, calls, moved, kept = [], [], [], []
    for one in range(ranks):
        staging = torch.full((blocks.longest * ranks, n), float("nan"))
        counters = torch.zeros(len(bounds), dtype=torch.int32)
        order = tile_order(tuple(spans_of_blocks(blocks, bounds, one)), columns=n, block_m=16, block_n=16)
        call = watchdog.call(
            "gemm_reduce_scatter",
            rank=one,
            counters=Counters(address=counters.data_ptr(), full=order.by_chunk),
            stream=one,
            rescue=ranks + one,
        )
        for chunk, (start, stop) in enumerate(bounds):

            def transfer(staging=staging, start=start, stop=stop, one=one, chunk=chunk):
                def act():
                    part = staging[start * ranks : stop * ranks].view(ranks, stop - start, n)
                    for owner in range(ranks):
                        begin, end = blocks.piece(owner, start, stop)
                        sums[owner][start : start + end - begin] += part[owner, : end - begin]
                    moved.append((one, chunk))

                driver.enqueue(one, act)

            call.after(chunk, transfer)
        watchdog.watch(call)
        calls.append(call)
        kept.append(counters)
        kernels.append((staging, xs[one], weights[one], order, counters))
    driver.pump()
    stops = [len(moved)]
    longest = max(len(order.table) for *_, order, _ in kernels)
    for tile in range(longest):
        for staging, x, weight, order, counters in kernels:
            module.tracked_gemm(
                staging,
                x,
                weight,
                None,
                order=order,
                blocks=module.Blocks(m=16, n=16, k=16),
                tracking=module.Tracking(counters=counters),
                ctas=2,
                part=(tile, min(tile + 1, len(order.table))),
            )
        driver.pump()
        stops.append(len(moved))
    for call in calls:
        call.wait()
    total = sum(x.double() @ w.double().t() for x, w in zip(xs, weights, strict=True))
    for owner in range(ranks):
        begin, end = blocks.bounds(owner)
        torch.testing.assert_close(
            sums[owner][: end - begin].double(), total[begin:end], atol=1e-5, rtol=1e-5
        )
    assert [chunk for one, chunk in moved if one == 0] == list(range(len(bounds)))
    return stops


if __name__ == "__main__":
    json.dump(
        {
            "products": products(),
            "waiting": waiting(),
            "reduce_scatter": [reduce_scatter(*case) for case in json.loads(sys.argv[1])],
        },
        sys.stdout,
    )
