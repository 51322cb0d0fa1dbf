"""Programs do what their fragments say: every algorithm, any sizes, tiles, calls in a row, interleavings."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collective_cases import UNEVEN, inputs_of
from conccl.collectives.catalogue import algorithms
from conccl.collectives.layout import Place, layout_of
from conccl.collectives.reference import expected
from conccl.collectives.transfer import Reach
from conccl.core.errors import InputError, PlanError
from conccl.core.ops import Collective, CollectiveKind, DType, ReduceOp
from conccl.transports import compiling, tiles
from conccl.transports.compiling import programs
from conccl.transports.program import Await, Publish
from conccl.transports.tiles import Message, tiling_of
from transports.simulated import Call, RaceError, World, message_of, transfer_of

KINDS = [one for one in CollectiveKind if one not in (CollectiveKind.SEND, CollectiveKind.RECV)]


def able(kind, place, count):
    for name, one in algorithms(kind).items():
        layout = layout_of(Collective(kind=kind, nbytes=count * 64, ranks=count), place=place)
        if one.command is None and one.refusal(layout, transfer_of(kind, name, count)) is None:
            yield name


@st.composite
def calls(draw, count):
    """A call among this many ranks whose sums are exact, so that any order of them gives the same bits."""
    kind = draw(st.sampled_from(KINDS))
    dtype = draw(st.sampled_from([DType.FP32, DType.INT16, DType.BF16]))
    op = draw(st.sampled_from([ReduceOp.SUM, ReduceOp.MAX, ReduceOp.AVG]))
    place = draw(st.sampled_from(Place))
    algorithm = draw(st.sampled_from([*able(kind, place, count)] or [*able(kind, Place.OUT_OF_PLACE, count)]))
    if algorithm not in able(kind, place, count):
        place = Place.OUT_OF_PLACE
    nbytes = draw(st.integers(0, 700)) * dtype.nbytes
    split = None
    if kind in UNEVEN and (place is Place.OUT_OF_PLACE or kind is not CollectiveKind.ALL_TO_ALL):
        size = st.integers(0, 300).map(lambda n: n * dtype.nbytes)
        row = st.lists(size, min_size=count, max_size=count)
        split = draw(st.lists(row, min_size=count, max_size=count) if kind == "all_to_all" else row)
        nbytes = max(map(sum, split)) if kind == "all_to_all" else sum(split)
    elif kind is CollectiveKind.ALL_TO_ALL:
        nbytes = nbytes // (count * dtype.nbytes) * count * dtype.nbytes
    root = draw(st.integers(0, count - 1))
    layout = layout_of(
        Collective(kind=kind, nbytes=nbytes, ranks=count, dtype=dtype, reduce_op=op),
        root=root,
        split_nbytes=split,
        place=place,
    )
    inputs = inputs_of(layout, seed=draw(st.integers(0, 99)), exact=True)
    return Call(layout=layout, algorithm=algorithm, inputs=inputs)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.data(),
    count=st.integers(1, 6),
    slots=st.integers(1, 3),
    seed=st.integers(0, 2**16),
    reads_peers=st.booleans(),
)
def test_calls_in_a_row_give_what_they_must_in_any_interleaving(data, count, slots, seed, reads_peers):
    row = data.draw(st.lists(calls(count), min_size=1, max_size=4))
    slot_nbytes = data.draw(st.sampled_from([64 * 64, 16 * 1024]))
    world = World(count, slots=slots, slot_nbytes=slot_nbytes, seed=seed, reads_peers=reads_peers)
    outputs = world.run(row)
    for call, got in zip(row, outputs, strict=True):
        if call.layout.collective.reduce_op is ReduceOp.AVG and call.layout.kind in (
            "reduce_scatter",
            "all_reduce",
            "reduce",
        ):
            continue  # quotients round; the next test has them
        for rank, want in enumerate(expected(call.layout, call.inputs)):
            np.testing.assert_array_equal(got[rank], want, err_msg=f"{call.layout.kind} {call.algorithm}")


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind in KINDS
        for name, one in algorithms(kind).items()
        if one.reach is Reach.PEERS and one.command is None
    ],
)
def test_every_algorithm_runs_by_reading_peers(kind, name, count):
    place = Place.IN_PLACE if kind in ("all_reduce", "broadcast", "reduce") else Place.OUT_OF_PLACE
    if name not in able(kind, place, count):
        pytest.skip("needs another number of ranks")
    layout = layout_of(Collective(kind=kind, nbytes=count * 1000, ranks=count, dtype=DType.FP32), place=place)
    call = Call(layout=layout, algorithm=name, inputs=inputs_of(layout, seed=1, exact=True))
    world = World(count, slots=2, slot_nbytes=64, seed=count, reads_peers=True)
    for got in world.run([call, call]):
        for rank, want in enumerate(expected(layout, call.inputs)):
            np.testing.assert_array_equal(got[rank], want)


def test_a_rank_that_leaves_before_its_peers_have_read_is_caught(monkeypatch):
    layout = layout_of(Collective(kind=CollectiveKind.ALL_GATHER, nbytes=2048, ranks=2, dtype=DType.INT16))
    call = Call(layout=layout, algorithm="direct", inputs=inputs_of(layout, seed=0))
    add = compiling._Writer.add

    def hasty(self, pieces, *, waits, done, leaves):
        add(self, pieces, waits=() if leaves else waits, done=done, leaves=leaves)

    monkeypatch.setattr(compiling._Writer, "add", hasty)
    programs.cache_clear()
    with pytest.raises(RaceError):
        World(2, slots=1, slot_nbytes=64, seed=0, reads_peers=True).run([call])
    programs.cache_clear()


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in KINDS for name in algorithms(kind) if name not in ("swap", "bcst")],
)
def test_every_algorithm_runs_in_tiles(kind, name, count):
    layout = layout_of(Collective(kind=kind, nbytes=count * 1000, ranks=count, dtype=DType.FP32))
    if name not in able(kind, Place.OUT_OF_PLACE, count):
        pytest.skip("needs another number of ranks")
    call = Call(layout=layout, algorithm=name, inputs=inputs_of(layout, seed=1, exact=True))
    world = World(count, slots=2, slot_nbytes=64 * 3 * 2 * count, seed=count)
    outputs = world.run([call, call])
    for got in outputs:
        for rank, want in enumerate(expected(layout, call.inputs)):
            np.testing.assert_array_equal(got[rank], want)


def test_averages_divide_once():
    layout = layout_of(
        Collective(
            kind=CollectiveKind.ALL_REDUCE, nbytes=400, ranks=3, dtype=DType.FP32, reduce_op=ReduceOp.AVG
        )
    )
    inputs = inputs_of(layout, seed=0)
    for name in able(CollectiveKind.ALL_REDUCE, Place.OUT_OF_PLACE, 3):
        call = Call(layout=layout, algorithm=name, inputs=inputs)
        (outputs,) = World(3, slots=2, slot_nbytes=4096, seed=0).run([call])
        want = np.mean([one.view(np.float32) for one in inputs], axis=0)
        for got in outputs:
            np.testing.assert_allclose(got.view(np.float32), want, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(got, outputs[0])


def test_the_race_detector_sees_a_missing_wait(monkeypatch):
    """Programs whose staging is not waited for before it is used again are caught."""
    layout = layout_of(Collective(kind=CollectiveKind.ALL_GATHER, nbytes=2048, ranks=2, dtype=DType.UINT8))
    call = Call(layout=layout, algorithm="staged", inputs=inputs_of(layout, seed=0))
    made = programs(
        kind=layout.kind, algorithm="staged", count=2, transfer=transfer_of(layout.kind, "staged", 2)
    )
    for one in made.of_rank:
        assert one.release, "peers read staging after the program is over"
    whole = tiles.Lowered.__init__

    def forgetful(self, programs, rank, /):
        whole(self, programs, rank)
        self.release = ()

    monkeypatch.setattr(tiles.Lowered, "__init__", forgetful)
    with pytest.raises(RaceError):
        World(2, slots=1, slot_nbytes=64, seed=0).run([call])


def test_a_program_tells_its_progress_where_peers_wait_for_it():
    made = programs(kind=CollectiveKind.ALL_REDUCE, algorithm="staged", count=4)
    told = {(p.rank, i.steps) for p in made.of_rank for i in p.instructions if isinstance(i, Publish)}
    for program in made.of_rank:
        for one in program.instructions:
            if isinstance(one, Await):
                assert any(rank == one.rank and steps >= one.steps for rank, steps in told)
        for wait in program.release:
            assert any(rank == wait.rank and steps >= wait.steps for rank, steps in told)


def test_what_only_its_own_rank_touches_is_not_staged():
    gather = programs(kind=CollectiveKind.ALL_GATHER, algorithm="staged", count=4)
    assert gather.staging_units == 1  # one copy out, whoever reads it
    pushed = programs(
        kind=CollectiveKind.ALL_GATHER,
        algorithm="ring",
        count=4,
        transfer=transfer_of(CollectiveKind.ALL_GATHER, "ring", 4),
    )
    assert pushed.staging_units == 5  # neighbours read the input, and what has reached the output


def test_commands_that_processors_do_not_have_are_refused():
    with pytest.raises((PlanError, InputError)):
        programs(kind=CollectiveKind.ALL_TO_ALL, algorithm="swap", count=2, place=Place.IN_PLACE)


@pytest.mark.parametrize(
    ("sizes", "kind", "slot", "unit", "tiles"),
    [
        ((100, 100), "all_gather", 4096, 128, 1),
        ((5000, 100), "all_gather", 4096, 4096, 2),
        ((0, 0), "all_gather", 4096, 64, 1),
        ((10_000,), "all_reduce", 1024, 1024, 5),
        ((7,), "all_reduce", 1024, 64, 1),
    ],
)
def test_a_message_passes_in_as_few_tiles_as_staging_allows(sizes, kind, slot, unit, tiles):
    message = Message(kind=CollectiveKind(kind), count=2, sizes=sizes)
    made = tiling_of(message, staging_units=1, slot_nbytes=slot)
    assert (made.unit_nbytes, made.tiles) == (unit, tiles)


def test_too_little_staging_is_an_error_that_says_how_much_is_needed():
    message = Message(kind=CollectiveKind.ALL_TO_ALL, count=8, sizes=(64,) * 64)
    with pytest.raises(InputError, match="Give 448 or more"):
        tiling_of(message, staging_units=7, slot_nbytes=100)


def test_a_message_of_a_layout_has_its_blocks():
    layout = layout_of(
        Collective(kind=CollectiveKind.ALL_TO_ALL, nbytes=30, ranks=2), split_nbytes=[[1, 2], [3, 4]]
    )
    assert message_of(layout).sizes == (1, 2, 3, 4)
