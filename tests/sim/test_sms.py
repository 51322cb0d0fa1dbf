"""SMs are handed out CTA by CTA: waves, priority, packing, partitions, limits."""

import dataclasses

import pytest

from conccl.core.errors import PlanError
from conccl.core.plan import Dependency, Part
from made_kernels import Simulated, host_copy, kernel, task


def test_a_kernel_runs_in_waves():
    run = Simulated({"k": kernel(ctas=250, least_ns=100)})
    assert run(task("k"))["k"].duration_ns == 300


def test_latency_and_body_of_every_wave_and_the_fixed_time_once():
    run = Simulated({"k": kernel(ctas=200, latency_ns=10, least_ns=100, fixed_ns=7)})
    assert run(task("k"))["k"].duration_ns == 227


def test_several_ctas_share_an_sm():
    run = Simulated({"k": kernel(ctas=400, share=0.5, sm_ns=100)})
    assert run(task("k"))["k"].duration_ns == 400  # two waves of two CTAs an SM, each at half speed


def test_the_first_kernel_has_all_sms_and_the_next_comes_in_behind_its_last_wave():
    run = Simulated({"gemm": kernel(ctas=250, least_ns=100), "comm": kernel(ctas=10, share=0.5, least_ns=50)})
    rows = run(task("gemm"), task("comm"))
    assert rows["gemm"].duration_ns == 300
    assert (rows["comm"].start_ns, rows["comm"].end_ns) == (200, 250)


def test_priority_gets_the_sms_that_a_wave_leaves():
    run = Simulated({"gemm": kernel(ctas=300, least_ns=100), "comm": kernel(ctas=10, least_ns=150)})
    rows = run(task("gemm"), host_copy("wait", 500), task("comm", priority=-1, after=["wait"]))
    assert (rows["comm"].start_ns, rows["comm"].end_ns) == (100, 250)
    assert rows["gemm"].end_ns == 400  # 100, 90, 90, 10 at 250, and 10 at 300


def test_without_priority_the_later_kernel_waits_for_all_waves():
    run = Simulated({"gemm": kernel(ctas=300, least_ns=100), "comm": kernel(ctas=10, least_ns=150)})
    rows = run(task("gemm"), host_copy("wait", 500), task("comm", after=["wait"]))
    assert (rows["gemm"].end_ns, rows["comm"].start_ns) == (300, 300)


def test_nothing_is_preempted():
    run = Simulated({"gemm": kernel(ctas=100, least_ns=1000), "comm": kernel(ctas=10, least_ns=50)})
    rows = run(task("gemm"), host_copy("wait", 500), task("comm", priority=-1, after=["wait"]))
    assert rows["comm"].start_ns == 1000


def test_communication_first_takes_its_sms_and_the_compute_has_the_rest():
    run = Simulated({"gemm": kernel(ctas=200, least_ns=100), "comm": kernel(ctas=10, least_ns=1000)})
    rows = run(task("comm", priority=-1), task("gemm"))
    assert rows["comm"].duration_ns == 1000
    assert rows["gemm"].duration_ns == 300  # 90 + 90 + 20


def test_ctas_on_freed_sms_are_packed_as_far_as_they_fit():
    kernels = {"gemm": kernel(ctas=100, least_ns=100), "comm": kernel(ctas=8, share=0.25, sm_ns=100)}
    rows = Simulated(kernels)(task("gemm"), task("comm"))
    assert rows["comm"].duration_ns == 400  # four to an SM
    rows = Simulated(kernels)(task("gemm"), task("comm", ctas_per_sm=1))
    assert rows["comm"].duration_ns == 100
    rows = Simulated(kernels)(task("comm"))
    assert rows["comm"].duration_ns == 100  # idle SMs: one each


def test_a_partition_is_for_its_own_tasks():
    run = Simulated({"gemm": kernel(ctas=92, least_ns=100), "comm": kernel(ctas=8, least_ns=100)})
    rows = run(
        task("gemm", partition="compute"),
        task("comm", partition="communication"),
        partitions={"compute": 92, "communication": 8},
    )
    assert rows["gemm"].duration_ns == rows["comm"].duration_ns == 100
    rows = run(
        task("gemm", partition="compute"),
        partitions={"compute": 48, "communication": 52},
    )
    assert rows["gemm"].duration_ns == 200


def test_a_limit_on_sms_holds():
    run = Simulated({"gemm": kernel(ctas=100, least_ns=100)})
    assert run(task("gemm", sms=20))["gemm"].duration_ns == 500


def test_kernels_share_an_sm_where_their_footprints_allow():
    kernels = {"a": kernel(ctas=100, share=0.5, least_ns=100), "b": kernel(ctas=100, share=0.5, least_ns=80)}
    rows = Simulated(kernels)(task("a"), task("b"))
    assert (rows["a"].end_ns, rows["b"].start_ns, rows["b"].end_ns) == (100, 0, 80)


def test_the_units_of_an_sm_are_shared():
    kernels = {"a": kernel(ctas=100, share=0.5, sm_ns=100), "b": kernel(ctas=100, share=0.5, sm_ns=50)}
    rows = Simulated(kernels)(task("a"), task("b"))
    assert rows["a"].end_ns == 150


@pytest.mark.parametrize("ctas", [99, 100, 101, 1000, 12345])
def test_many_waves_are_few_events(ctas):
    run = Simulated({"k": kernel(ctas=ctas * 100, least_ns=100)})
    assert run(task("k"))["k"].duration_ns == ctas * 100


def test_every_sm_has_the_same_share_of_short_memory_and_leaves_what_it_does_not_need():
    kernels = {
        "a": kernel(ctas=50, least_ns=100, hbm_read_nbytes=1000),
        "b": kernel(ctas=50, least_ns=100, hbm_read_nbytes=2000),
    }
    rows = Simulated(kernels)(task("a"), task("b"))
    assert rows["a"].duration_ns == 100  # 10 bytes/ns for each of 100 SMs are all that it asks for
    assert rows["b"].duration_ns == 150


def test_several_ctas_share_what_one_sm_can_have_in_flight():
    kernels = {
        "a": kernel(ctas=50, least_ns=100, hbm_read_nbytes=2000),
        "b": kernel(ctas=200, share=0.25, least_ns=100, hbm_read_nbytes=500),
    }
    rows = Simulated(kernels)(task("a"), task("b"))
    assert rows["a"].duration_ns == rows["b"].duration_ns == 200


def persistent(tiles: int, workers: int = 100, **work):
    return dataclasses.replace(kernel(ctas=tiles, **work), workers=workers)


def test_workers_go_from_tile_to_tile():
    run = Simulated({"k": persistent(450, least_ns=100)})
    assert run(task("k"))["k"].duration_ns == 500


def test_a_worker_that_finds_no_sm_does_its_own_tile_when_the_others_are_through():
    # 96 workers do 446 tiles in five rounds, and then four late ones their own: with 4 of 132 SMs taken, a
    # cuBLAS GEMM of 3.9 rounds takes 1.43x on an H200, of 12.6 rounds 1.12x (measured 2026-11-30)
    run = Simulated({"k": persistent(450, least_ns=100), "comm": kernel(ctas=4, least_ns=10_000)})
    rows = run(task("comm"), task("k"))
    assert rows["k"].end_ns == 600


def test_workers_that_come_late_share_the_tiles_that_are_left():
    # 4 workers do their first tiles from 0 on, 96 from 100 on: 4 tiles, then 100 every 100 ns
    run = Simulated({"first": kernel(ctas=96, least_ns=100), "k": persistent(300, least_ns=100)})
    rows = run(task("first"), task("k"))
    assert (rows["k"].start_ns, rows["k"].end_ns) == (0, 400)


def test_a_worker_gives_its_sm_to_nobody_before_it_is_through():
    run = Simulated({"k": persistent(400, least_ns=100), "comm": kernel(ctas=4, least_ns=50)})
    rows = run(task("k"), host_copy("wait", 500), task("comm", priority=-1, after=["wait"]))
    assert (rows["k"].end_ns, rows["comm"].start_ns) == (400, 400)


def test_a_limit_on_sms_is_a_limit_on_workers():
    run = Simulated({"k": persistent(400, least_ns=100)})
    assert run(task("k", sms=80))["k"].duration_ns == 500


def test_workers_leave_together():
    run = Simulated({"k": persistent(150, least_ns=100), "comm": kernel(ctas=20, least_ns=50)})
    rows = run(task("k"), task("comm"))
    assert (rows["k"].end_ns, rows["comm"].start_ns) == (200, 200)


def test_parts_of_a_persistent_kernel_are_tiles_in_order():
    parts = tuple(Part(start=i * 100, stop=(i + 1) * 100) for i in range(4))
    run = Simulated({"k": persistent(400, least_ns=100), "after": kernel(ctas=1, least_ns=1)})
    rows = run(
        task("k", parts=parts),
        *(host_copy(f"c{i}", 500, after=[Dependency(task="k", part=i)]) for i in range(4)),
    )
    assert [rows[f"c{i}"].start_ns for i in range(4)] == [100, 200, 300, 400]


def test_tasks_that_wait_for_each_others_sms_are_told_and_do_not_hang():
    parts = tuple(Part(start=i * 100, stop=(i + 1) * 100) for i in range(2))
    run = Simulated({"k": persistent(200, least_ns=100), "other": kernel(ctas=1, least_ns=10)})
    waits = Dependency(task="other", needed_by=1)
    with pytest.raises(PlanError, match="'k', 'other' unfinished"):
        run(task("k", parts=parts, after=[waits]), host_copy("w", 500), task("other", after=["w"]))


def test_a_part_that_waits_keeps_its_sms():
    parts = tuple(Part(start=i * 100, stop=(i + 1) * 100) for i in range(2))
    for k in (kernel(ctas=200, least_ns=100), persistent(200, least_ns=100)):
        run = Simulated({"k": k, "other": kernel(ctas=1, least_ns=10)})
        rows = run(
            host_copy("c", 50_000),
            task("k", parts=parts, after=[Dependency(task="c", needed_by=1)]),
            task("other", priority=-1, after=["w"]),
            host_copy("w", 10_000),
        )
        assert rows["k"].end_ns == 1300
        assert rows["other"].start_ns == 1300
