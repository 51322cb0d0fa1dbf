"""Streams, events and graphs: what runs beside what, what waits, and what the host waits for."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from conccl.bench.step import simulate_step  # noqa: E402
from conccl.workloads.captured import Phase  # noqa: E402
from workloads.capture.made_steps import DEVICE, captured, recorded  # noqa: E402

pytestmark = pytest.mark.torch


def test_work_on_another_stream_waits_for_what_it_is_told_to():
    def run(_):
        side = torch.cuda.Stream()
        a = torch.ones(64, 64)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            b = a @ a
        c = a + 1
        torch.cuda.current_stream().wait_stream(side)
        return b + c

    fill, product, add, last = recorded(run)[0].kernels
    assert fill.lane == add.lane == last.lane != product.lane
    assert product.after == (0,)
    assert add.after == ()
    assert last.after == (1,)


def test_events_mark_a_place_and_not_what_comes_later():
    def run(_):
        side, event = torch.cuda.Stream(), torch.cuda.Event()
        a = torch.ones(8)
        event.record()
        a += 1
        side.wait_event(event)
        with torch.cuda.stream(side):
            a * 2

    assert recorded(run)[0].kernels[-1].after == (0,)


def test_events_of_an_earlier_step_are_in_the_past():
    def build():
        side, event, a = torch.cuda.Stream(), torch.cuda.Event(), torch.ones(8)

        def step():
            side.wait_event(event)
            with torch.cuda.stream(side):
                a * 2
            a.add_(1)
            event.record()

        return step

    assert [call.after for call in captured(build).kernels] == [(), ()]


def test_the_host_waits_for_an_event_a_stream_or_all():
    def run(_):
        side, event = torch.cuda.Stream(), torch.cuda.Event()
        a = torch.ones(8)
        with torch.cuda.stream(side):
            a * 2
            event.record()
            a * 3
        event.synchronize()
        side.synchronize()
        torch.cuda.synchronize()

    waits = [call.waits_for for call in recorded(run)[0].calls if call.waits_for]
    assert waits == [(1,), (2,), (0, 2)]


def test_streams_overlap_in_the_simulation():
    def build(streams):
        a, b = torch.randn(2, 256, 256, dtype=torch.bfloat16)

        def step():
            for stream in streams():
                with torch.cuda.stream(stream):
                    for _ in range(200):
                        torch.mm(a, b)

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    def two():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        yield torch.cuda.current_stream()
        yield side
        torch.cuda.current_stream().wait_stream(side)

    together = simulate_step(captured(lambda: build(two)), device=DEVICE)
    one = simulate_step(captured(lambda: build(lambda: [torch.cuda.current_stream()] * 2)), device=DEVICE)
    assert together.kernels == one.kernels
    assert together.iteration_ns < 0.8 * one.iteration_ns


def test_a_replayed_graph_is_one_launch():
    def build():
        model, x = torch.nn.Linear(64, 64), torch.randn(8, 64)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)
            y.relu_()
        return graph.replay

    step = captured(build)
    (call,) = step.calls
    assert (call.phase, call.count) == (Phase.REPLAY, 2)
    assert [kernel.kernel.name for kernel in step.kernels] == ["addmm", "relu_"]


def test_what_a_program_sets_as_default_device_ends_with_the_capture():
    def build():
        torch.set_default_device("cuda")
        return lambda: torch.ones(2) + 1

    captured(build)
    assert torch.ones(1).device.type == "cpu"
