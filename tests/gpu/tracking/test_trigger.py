"""Transfers behind counters, with a driver that is a list: order, deadlines, and what errors say."""

import ctypes
import threading

import pytest

from conccl.core.errors import ExecutionError, WaitTimeoutError
from conccl.gpu.tracking.trigger import Counters, Watchdog
from gpu.tracking.tracking_jobs import Streams

pytestmark = pytest.mark.torch

FULL = (4, 4, 2)


class Bench:
    """Three counters, a driver, and a watchdog whose clock is set by hand."""

    def __init__(self):
        self.words = (ctypes.c_uint32 * len(FULL))()
        self.driver = Streams()
        self.now = 0.0
        self.watchdog = Watchdog(self.driver, timeout_s=10, poll_s=0.001, clock=lambda: self.now)
        self.moved = []

    def call(self, name="gemm_reduce_scatter", rank=3):
        address = ctypes.addressof(self.words)
        call = self.watchdog.call(
            name, rank=rank, counters=Counters(address=address, full=FULL), stream=1, rescue=2
        )
        for chunk in range(len(FULL)):
            call.after(chunk, lambda chunk=chunk: self.driver.enqueue(1, lambda: self.moved.append(chunk)))
        return call


def test_a_transfer_waits_for_its_chunk_and_for_those_before_it():
    bench = Bench()
    call = bench.call()
    call.issued(deadline=10)
    address = ctypes.addressof(bench.words)
    assert bench.driver.log == [("wait", 1, address + 4 * i, full) for i, full in enumerate(FULL)]
    assert not call.check(now=0)
    bench.words[1] = 4
    assert not call.check(now=0)
    assert bench.moved == []
    bench.words[0] = 4
    assert not call.check(now=0)
    assert bench.moved == [0, 1]
    bench.words[2] = 2
    assert call.check(now=0)
    call.wait()
    assert bench.moved == [0, 1, 2]


def test_a_producer_that_is_stuck_is_named_by_chunk_and_rank():
    bench = Bench()
    call = bench.call()
    bench.words[0] = 4
    bench.words[1] = 3
    bench.watchdog.watch(call)
    bench.now = 11
    with pytest.raises(
        WaitTimeoutError,
        match=r"gemm_reduce_scatter, rank 3: chunk 1 of 3 had 3 of 4 tiles when the time was up; 2 chunks",
    ):
        call.wait()
    bench.driver.pump()
    assert not bench.driver.queues[1], "the stream still waits"
    assert list(bench.words) == list(FULL)


def test_the_next_call_is_told_once_of_one_that_failed():
    bench = Bench()
    bench.watchdog.watch(bench.call())
    bench.now = 11
    thread = bench.watchdog._thread
    if thread is not None:
        thread.join(timeout=10)
    with pytest.raises(WaitTimeoutError, match="chunk 0 of 3 had 0 of 4"):
        bench.call("gemm_offload")
    bench.call("gemm_offload")


def test_a_peer_that_is_late_is_no_fault_of_the_gemm():
    bench = Bench()
    call = bench.call()
    bench.driver._put(1, lambda: False, lambda: None)  # a collective that never ends
    bench.words[:] = FULL
    bench.watchdog.watch(call)
    bench.now = 11
    with pytest.raises(WaitTimeoutError, match="all chunks were made, and their transfers were not complete"):
        call.wait()


def test_what_the_gpu_failed_with_comes_to_the_caller():
    bench = Bench()
    call = bench.call()
    bench.driver.fails_with = ExecutionError("the CUDA driver failed with CUDA_ERROR_ILLEGAL_ADDRESS.")
    bench.watchdog.watch(call)
    with pytest.raises(ExecutionError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        call.wait()


def test_the_watchdog_runs_only_while_there_are_calls():
    bench = Bench()
    before = threading.active_count()
    for _ in range(3):
        bench.words[:] = (0, 0, 0)
        call = bench.call()
        bench.watchdog.watch(call)
        bench.words[:] = FULL
        call.wait()
        thread = bench.watchdog._thread
        if thread is not None:
            thread.join(timeout=10)
        assert threading.active_count() == before
    assert bench.moved == [0, 1, 2] * 3
