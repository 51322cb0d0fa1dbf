"""send and recv with real processes."""

import signal

import pytest

from ranks import outcomes, run_ranks
from transports import mail_jobs as jobs


@pytest.mark.parametrize("job", [jobs.in_any_order, jobs.in_the_background])
def test_between_two(tmp_path, job):
    assert all(run_ranks(2, job, tmp_path))


def test_messages_with_one_tag_keep_their_order(tmp_path):
    _, got = run_ranks(2, jobs.same_tag_in_order, tmp_path)
    assert got == list(range(300))


def test_from_whoever_comes_first(tmp_path):
    got, *_ = run_ranks(4, jobs.from_anyone, tmp_path)
    assert got == [(5, 1, 1), (5, 2, 2), (5, 3, 3), (6, 1, 10), (6, 2, 20), (6, 3, 30)]


def test_all_send_before_anyone_receives(tmp_path):
    assert all(run_ranks(3, jobs.both_ways_at_once, tmp_path))


@pytest.mark.parametrize("count", [2, 4])
def test_messages_between_random_pairs(tmp_path, count):
    assert sum(run_ranks(count, jobs.at_random, tmp_path, 80, count)) == 80


@pytest.mark.parametrize(
    ("nbytes", "dtype", "words"), [(50, "uint8", "recv of 50 bytes"), (25, "float32", "of float32")]
)
def test_ends_that_disagree_are_told_both(tmp_path, nbytes, dtype, words):
    for told in run_ranks(2, jobs.other_sizes, tmp_path, nbytes, dtype):
        assert told.startswith("DisagreementError: group 'tests': rank 1 issued recv")
        assert words in told
        assert "send of 100 bytes of uint8 with this tag" in told


def test_a_sender_killed_in_the_middle_of_a_message_is_named(tmp_path):
    found = outcomes(2, jobs.killed_while_sending, tmp_path)
    assert found[0].ended_by == signal.SIGKILL
    told, seconds = found[1].value
    assert told.startswith("PeerLostError: rank 0 (process")
    assert "recv of 5000000 bytes" in told
    assert seconds < 2


def test_a_message_that_nobody_asks_for_is_told_of(tmp_path):
    told, _ = run_ranks(2, jobs.nobody_receives, tmp_path)
    assert told.startswith(
        "WaitTimeoutError: group 'tests': send of 5000000 bytes of uint8 to rank 1 with tag 0"
    )
