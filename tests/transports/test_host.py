"""The host transport with real processes: results, and what becomes of calls in trouble."""

import signal

import pytest

from ranks import outcomes, run_ranks
from transports import jobs

KINDS = tuple(kind for kind in jobs.MOVING if kind != "barrier")


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_collective_gives_what_it_must_at_odd_sizes(tmp_path, count):
    sizes = [(kind, elements) for kind in KINDS for elements in (0, 1, 1000, 65_537)]
    assert all(right > 0 for right in run_ranks(count, jobs.every_kind, tmp_path, sizes, ()))


@pytest.mark.parametrize(
    ("count", "slot_nbytes", "delay_s"), [(2, 1024, 0.0), (3, None, 0.002), (4, 8192, 0.0005)]
)
def test_calls_in_a_row_by_any_algorithm_stay_right_whoever_is_late(tmp_path, count, slot_nbytes, delay_s):
    run_ranks(count, jobs.random_calls, tmp_path, 60, count, slot_nbytes, delay_s)


def test_blocks_may_all_differ(tmp_path):
    assert run_ranks(3, jobs.uneven, tmp_path) == [True] * 3


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        (("all_gather", 100, {}), "all_gather of 800 bytes"),
        (("all_reduce", 101, {}), "all_reduce of 404 bytes"),
        (("all_reduce", 400, {"dtype": "uint8"}), "of uint8 by sum"),
        (("all_reduce", 100, {"reduction": "max"}), "by max"),
        (("all_reduce", 100, {"algorithm": "ring"}), "[ring]"),
        (("barrier", 0, {}), "barrier"),
        (("broadcast", 100, {"root": 1}), "broadcast of 400 bytes of float32 with root 1"),
    ],
)
def test_ranks_that_disagree_are_told_both_calls(tmp_path, theirs, words):
    told = run_ranks(2, jobs.disagreeing, tmp_path, ("all_reduce", 100, {}), theirs)
    for text, seconds in told:
        assert text.startswith("DisagreementError: group 'tests' call 2: ")
        assert "all_reduce of 400 bytes of float32 by sum" in text
        assert words in text
        assert seconds < 4, "found out by the header and not by the time"


def test_ranks_that_disagree_about_the_root_are_told(tmp_path):
    told = run_ranks(
        2, jobs.disagreeing, tmp_path, ("broadcast", 9, {"root": 0}), ("broadcast", 9, {"root": 1})
    )
    assert any("with root 0" in text and "with root 1" in text for text, _ in told)


@pytest.mark.parametrize(
    ("kind", "number", "algorithm"),
    [
        *(("all_reduce", number, None) for number in (1, 2, 3, 4, 9, 40, 77)),
        ("all_gather", 2, None),
        ("broadcast", 30, None),
        *(("all_reduce", number, "direct") for number in (2, 3, 5, 7, 9, 26)),
        ("all_to_all", 4, "direct"),
    ],
)
def test_a_killed_rank_is_named_by_all_others_within_two_seconds(tmp_path, kind, number, algorithm):
    """In every phase: each instruction of a call, the first tile and later ones, the first call and later.

    By staging, and ("direct") while its memory is read.
    """
    found = outcomes(3, jobs.killed_at_an_instruction, tmp_path, 1, kind, number, 9000, algorithm)
    assert found[1].ended_by == signal.SIGKILL
    for one in (found[0], found[2]):
        text, seconds = one.value
        assert text.startswith("PeerLostError: rank 1 (process ")
        assert "has died or exited" in text
        assert seconds < 2, "since it died"
    assert not jobs.segments_in_shm()


def test_large_messages_are_read_in_peers_memory(tmp_path):
    for told, right in run_ranks(2, jobs.large_by_default, tmp_path):
        assert told == "direct of peers (large: bytes are copied once, out of their rank's own memory)"
        assert right


def test_ranks_that_cannot_read_peers_say_so_and_go_by_staging(tmp_path):
    for fallbacks, told, right in run_ranks(3, jobs.peers_that_cannot_be_read, tmp_path):
        assert fallbacks == (
            "large messages pass through staging: rank 1 cannot read peers' memory: Operation not permitted",
        )
        assert told == "staged of staging (each byte is copied out once and read where it lies)"
        assert right


def test_a_rank_that_does_not_want_to_read_peers_is_no_fallback(tmp_path):
    for fallbacks, reads in run_ranks(2, jobs.staging_wanted, tmp_path):
        assert (fallbacks, reads) == ((), False)


def test_memory_that_is_gone_ends_the_group_and_names_the_rank(tmp_path):
    told = run_ranks(2, jobs.unmapped, tmp_path)
    assert "cannot read 4096 bytes of rank 1's memory: Bad address" in told[0][0]
    assert "(told by rank 0)" in told[1][0]
    assert told[0][1] < 4


@pytest.mark.parametrize(
    ("victim", "when", "named"),
    [
        (1, "after set hello", False),
        (0, "before set offer", False),
        (0, "after set offer", False),
        (1, "before set reply", False),
        (1, "after set reply", False),
        (0, "after set verdict", False),
        (1, "get verdict", False),
        (1, "joined", False),
        (0, "after set verdict", True),
        (0, "after set made", True),
        (1, "get verdict", True),
        (0, "joined", True),
    ],
)
def test_a_rank_killed_while_the_group_is_made_is_named_and_leaves_nothing(tmp_path, victim, when, named):
    found = outcomes(3, jobs.killed_while_joining, tmp_path, victim, when, named)
    assert found[victim].ended_by == signal.SIGKILL
    for rank, one in enumerate(found):
        if rank != victim:
            assert "Error: " in one.value[0], one
            assert f"rank {victim} (process" in one.value[0]
            assert one.value[1] < 2, "since it died"
    assert not jobs.segments_in_shm()


@pytest.mark.parametrize("how", ["sleeps", "leaves", "exits"])
def test_a_rank_that_does_not_come_is_named(tmp_path, how):
    told = run_ranks(3, jobs.late, tmp_path, how)
    for text, seconds in told[:2]:
        if how == "sleeps":
            assert text.startswith("WaitTimeoutError: group 'tests' call 2, all_gather of 36 bytes")
            assert "waiting for rank 2" in text
            assert "rank 2 came to call 1, all_reduce of 12 bytes" in text
            assert 0.5 < seconds < 2
        else:
            assert text.startswith("PeerLostError: rank 2")
            assert ("has left the group" if how == "leaves" else "has died or exited") in text
    if how == "sleeps":
        assert told[2][0].startswith("WaitTimeoutError")  # it is told what it has missed


def test_an_interrupted_rank_ends_the_call_of_the_others(tmp_path):
    told = run_ranks(2, jobs.interrupted, tmp_path)
    assert told[1][0] == "KeyboardInterrupt"
    assert "was interrupted on rank 1 (told by rank 1)" in told[0][0]


def test_a_group_that_was_ended_stays_so_and_a_new_one_works(tmp_path):
    for told, got in run_ranks(2, jobs.again_after_a_failure, tmp_path):
        assert all("was ended by rank 0: test" in text for text in told)
        assert got == [2.0, 2.0]


def test_groups_leave_nothing_behind(tmp_path):
    for early, late in run_ranks(2, jobs.groups, tmp_path, 40):
        assert late["descriptors"] == early["descriptors"]
        assert late["mappings"] == 0
        assert not late["shm"]
