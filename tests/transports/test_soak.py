"""What takes long: thousands of calls, groups, deaths; sizes beyond 32 bits."""

import signal

import pytest

from ranks import outcomes, run_ranks
from transports import jobs, mail_jobs

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_ten_thousand_calls_stay_right_with_delays_before_every_step(tmp_path, count):
    number = 10_000 // 4
    assert (
        run_ranks(count, jobs.random_calls, tmp_path, number, count, 16_384, 0.0002, timeout_s=3000)
        == [number] * count
    )


def test_ten_thousand_calls_in_a_row_without_a_pause(tmp_path):
    assert run_ranks(4, jobs.random_calls, tmp_path, 10_000, 99, None, 0.0, timeout_s=3000) == [10_000] * 4


def test_a_thousand_groups_leave_nothing_behind(tmp_path):
    for early, late in run_ranks(2, jobs.groups, tmp_path, 1000, timeout_s=1200):
        assert late["descriptors"] == early["descriptors"]
        assert late["mappings"] == 0
        assert not late["shm"]
        assert late["resident"] < early["resident"] + 20e6


@pytest.mark.parametrize("kind", jobs.MOVING)
def test_a_rank_may_be_killed_at_any_instruction(tmp_path, kind):
    for number in range(1, 60):
        (tmp_path / str(number)).mkdir()
        folder, victim = tmp_path / str(number), number % 3
        algorithm = "direct" if number % 2 else None  # its memory is read, or what it has staged
        found = outcomes(3, jobs.killed_at_an_instruction, folder, victim, kind, number, 9000, algorithm)
        assert found[victim].ended_by == signal.SIGKILL
        for rank in {0, 1, 2} - {victim}:
            text, seconds = found[rank].value
            assert text.startswith(f"PeerLostError: rank {victim} (process ")
            assert seconds < 2, "since it died"
    assert not jobs.segments_in_shm()


@pytest.mark.parametrize("kind", ["all_gather", "all_to_all", "reduce_scatter", "all_reduce", "broadcast"])
def test_messages_beyond_two_gigabytes(tmp_path, kind):
    assert run_ranks(2, jobs.large, tmp_path, kind, (2 << 30) + 4096 + 64, timeout_s=1200) == [True] * 2


def test_a_message_by_mail_beyond_two_gigabytes(tmp_path):
    assert run_ranks(2, mail_jobs.large, tmp_path, (2 << 30) + 77, timeout_s=1200) == [True] * 2


@pytest.mark.parametrize("count", [2, 5, 8])
def test_thousands_of_messages_between_random_pairs(tmp_path, count):
    assert sum(run_ranks(count, mail_jobs.at_random, tmp_path, 3000, count, timeout_s=1200)) == 3000
