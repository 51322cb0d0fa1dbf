"""Copies share engines, links and memory."""

import pytest

from conccl.core.errors import PlanError
from conccl.core.hardware import CopyEngines, MemoryArbitration, Topology
from conccl.core.kinds import DType
from conccl.core.ops import Move, Reduce, Region
from conccl.core.plan import Dependency, Engine, Part, Plan, Side
from made_kernels import Simulated, device, host_copy, kernel, link, task


def move(id_: str, source: int, destination: int, nbytes: int, **fields):
    op = Move(
        source=Region(rank=source, buffer="a", offset=0, nbytes=nbytes),
        destination=Region(rank=destination, buffer="b", offset=0, nbytes=nbytes),
    )
    fields.setdefault("engine", Engine.COPY_ENGINE)
    return task(id_, op=op, rank=source, side=Side.COMMUNICATION, **fields)


def test_a_copy_takes_the_slowest_of_engine_link_and_memory():
    run = Simulated({}, gpus=2)
    assert run(host_copy("h", 5_000))["h"].duration_ns == 100  # 50 bytes/ns
    assert run(move("m", 0, 1, 5_000))["m"].duration_ns == 50  # 100 bytes/ns
    slow = device(copy_engines=CopyEngines(count=1, bandwidth=10e9, launch_ns=20))
    assert Simulated({}, gpus=2, on=slow)(move("m", 0, 1, 5_000))["m"].duration_ns == 520


def test_both_directions_share_what_the_link_has_for_both():
    rows = Simulated({})(host_copy("out", 4_000), host_copy("in", 4_000, out=False))
    assert rows["out"].duration_ns == rows["in"].duration_ns == 100  # 80 together


def test_commands_wait_for_an_engine():
    on = device(copy_engines=CopyEngines(count=1, bandwidth=100e9, launch_ns=0))
    rows = Simulated({}, on=on)(host_copy("a", 5_000), host_copy("b", 5_000))
    assert (rows["a"].end_ns, rows["b"].start_ns, rows["b"].end_ns) == (100, 100, 200)


def test_peers_share_a_gpus_way_out_and_a_mesh_has_a_link_for_each():
    moves = (move("a", 0, 1, 1_000), move("b", 0, 2, 1_000))
    rows = Simulated({}, gpus=3)(*moves)
    assert rows["a"].duration_ns == rows["b"].duration_ns == 20
    mesh = device(peer_topology=Topology.MESH, peer_links=4)
    assert Simulated({}, gpus=3, on=mesh)(move("a", 0, 1, 1_000))["a"].duration_ns == 40
    rows = Simulated({}, gpus=3, on=mesh)(*moves)
    assert rows["a"].duration_ns == rows["b"].duration_ns == 40


def test_a_copy_and_a_kernel_share_memory():
    # the kernel asks for all 1000 bytes/ns, the copy for 50 of them
    run = Simulated({"k": kernel(ctas=100, hbm_read_nbytes=10_000)})
    rows = run(task("k"), host_copy("c", 100_000))
    assert rows["k"].end_ns == 1053  # 950 bytes/ns are left
    assert rows["c"].end_ns == 2000


def test_a_device_may_serve_compute_first():
    fast = {
        "copy_engines": CopyEngines(count=8, bandwidth=800e9, launch_ns=0),
        "peer_link": link("peer", 800),
    }
    fair, on = device(**fast), device(memory_arbitration=MemoryArbitration.COMPUTE_FIRST, **fast)
    kernels = {"k": kernel(ctas=100, least_ns=1000, hbm_read_nbytes=8_000, made_on=on)}
    plan = (task("k"), move("c", 0, 1, 800_000))
    assert Simulated(kernels, gpus=2, on=fair)(*plan)["k"].duration_ns > 1100
    assert Simulated(kernels, gpus=2, on=on)(*plan)["k"].duration_ns < 1030


def test_parts_complete_one_after_the_other():
    parts = (Part(start=0, stop=1_000), Part(start=1_000, stop=4_000))
    rows = Simulated({}, gpus=2)(
        move("a", 0, 1, 4_000, parts=parts),
        move("b", 1, 0, 1_000, after=[Dependency(task="a", part=0)]),
    )
    assert rows["a"].duration_ns == 40
    assert rows["b"].start_ns == 10


def test_engines_reduce_only_where_they_can():
    op = Reduce(
        sources=(
            Region(rank=1, buffer="a", offset=0, nbytes=1000),
            Region(rank=0, buffer="b", offset=0, nbytes=1000),
        ),
        destination=Region(rank=0, buffer="b", offset=0, nbytes=1000),
        dtype=DType.BF16,
    )
    reduce = task("r", op=op, engine=Engine.COPY_ENGINE, side=Side.COMMUNICATION)
    with pytest.raises(PlanError, match="can_reduce"):
        Simulated({}, gpus=2)(reduce)
    able = device(copy_engines=CopyEngines(count=1, bandwidth=100e9, launch_ns=0, can_reduce=True))
    assert Simulated({}, gpus=2, on=able)(reduce)["r"].duration_ns == 10


def test_a_copy_engine_does_not_compute():
    with pytest.raises(PlanError, match="only copies"):
        Simulated({"k": kernel(ctas=1)})(task("k", engine=Engine.COPY_ENGINE))


def test_a_copy_by_sms_takes_them_from_others():
    kernels = {"k": kernel(ctas=100, least_ns=10_000)}
    copy = host_copy("c", 470_000, engine=Engine.SM, sms=10, ctas_per_sm=1, priority=-1)
    rows = Simulated(kernels)(copy, task("k"))
    assert rows["c"].end_ns == 12_000  # SMs reach 0.94 of the host link, after 2000 ns
    assert rows["k"].end_ns == 22_000  # ten CTAs wait for the copy's SMs


def test_requests_that_a_link_is_too_slow_for_slow_all_sms():
    # a CTA alone moves 15.8 bytes a clock of 1 GHz: five ask for more than the link's 50 bytes/ns
    kernels = {"k": kernel(ctas=50, least_ns=10_000)}
    alone = Simulated(kernels)(task("k"))["k"].duration_ns
    rows = Simulated(kernels)(host_copy("c", 10_000_000, engine=Engine.SM, sms=3, ctas_per_sm=1), task("k"))
    assert rows["k"].duration_ns == alone
    rows = Simulated(kernels)(host_copy("c", 10_000_000, engine=Engine.SM, sms=5, ctas_per_sm=1), task("k"))
    assert rows["k"].duration_ns == pytest.approx(alone * (1 + 0.32 * (5 * 15.8 / 50 - 1)), rel=1e-3)


def test_data_movement_counts_reads_and_writes_of_memory():
    run = Simulated({"k": kernel(ctas=10, least_ns=100, hbm_read_nbytes=1000)}, gpus=2)
    assert run.executor.hbm_nbytes(Plan(tasks=(task("k"),))) == 10_000
    assert run.executor.hbm_nbytes(Plan(tasks=(host_copy("h", 500),))) == 500
    assert run.executor.hbm_nbytes(Plan(tasks=(move("m", 0, 1, 500),))) == 1_000
    assert run.executor.hbm_nbytes(Plan(tasks=(move("m", 0, 0, 500),))) == 1_000
