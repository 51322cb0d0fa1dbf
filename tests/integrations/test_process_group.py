"""The backend with real processes: what users of torch.distributed rely on, compared with gloo."""

import pytest

from integrations import backend_jobs as jobs
from integrations import oracle_jobs
from ranks import outcomes, run_ranks

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("count", [1, 2, 4])
def test_what_moves_arrives_in_every_type_and_shape(tmp_path, count):
    assert run_ranks(count, jobs.moves, tmp_path) == [len(jobs.SHAPES) * len(jobs.DTYPES)] * count


@pytest.mark.parametrize("count", [2, 3])
def test_every_reduction_of_every_type(tmp_path, count):
    for compared, refused in run_ranks(count, jobs.reductions, tmp_path):
        assert compared == len(jobs.DTYPES) * len(jobs.OPS) - len(refused)
        for dtype, op, _ in refused:  # what has no meaning, and nothing else
            floating = dtype.startswith(("torch.float", "torch.bfloat", "torch.complex"))
            assert (op in ("BAND", "BOR", "BXOR") and floating) or (dtype, op) in (
                ("torch.bool", "AVG"),
                *(("torch.complex64", one) for one in ("PRODUCT", "MIN", "MAX")),
                *(("torch.complex128", one) for one in ("PRODUCT", "MIN", "MAX")),
            )


@pytest.mark.parametrize(("count", "number"), [(2, 40), (4, 15)])
def test_random_calls_give_what_gloo_gives(tmp_path, count, number):
    assert run_ranks(count, jobs.against_gloo, tmp_path, number, count) == [number] * count


@pytest.mark.parametrize(
    ("job", "count"),
    [
        (jobs.single_tensors, 3),
        (jobs.uneven, 3),
        (jobs.not_contiguous, 2),
        (jobs.objects, 3),
        (jobs.groups, 4),
        (jobs.coalesced, 3),
        (jobs.asynchronous, 2),
        (jobs.functional, 2),
    ],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
def test_users_rely_on(tmp_path, job, count):
    assert all(run_ranks(count, job, tmp_path))


def test_the_cases_of_c10d_have_the_outcomes_of_gloo(tmp_path):
    assert run_ranks(3, oracle_jobs.compared, tmp_path) == [{}] * 3


def test_mistakes_are_told_to_the_caller_and_the_group_goes_on(tmp_path):
    words = {
        "_wrong_count": "4 outputs; a group of 3 ranks needs 3",
        "_wrong_shape": "the input has 2 elements; it must have 3",
        "_wrong_type": "int32 and  torch.float32",
        "_to_itself": "should not be the same as the rank",
        "_to_nobody": "and rank 6; the others of this group of 3 are",
        "_from_nobody": "and rank -2; the others of this group of 3 are",
        "_to_itself_by_hand": "the others of this group of 3 are",
        "_root_outside": "root 6 is not in the group",
        "_no_tensor": "Expected parameter `tensor`",
        "_outputs_of_no_root": "must NOT be specified on non-destination ranks",
        "_root_without_outputs": "must be specified on destination rank",
        "_sparse": "a sparse_coo tensor on cpu: the host transport takes dense tensors",
    }
    for told in run_ranks(3, oracle_jobs.refused, tmp_path):
        assert told.keys() == words.keys()
        for case, text in told.items():
            assert words[case] in text, case


def test_a_group_can_be_called_by_hand_and_explains_itself(tmp_path):
    for told in run_ranks(2, jobs.plain_calls, tmp_path):
        assert told.startswith("host: staged (each byte is copied out once and read where it lies), ")
        assert "tiles of" in told


def test_what_is_not_supported_is_refused_and_the_group_goes_on(tmp_path):
    for told in run_ranks(2, jobs.refusals, tmp_path):
        words = [
            "sparse_coo tensor on cpu",
            "tensor on meta",
            "the output has 3 elements; it must have 4",
            "the input has 2 elements; it must have 6",
            "tensors of torch.int64 and torch.float32 in one call",
            "the input has 3 rows, which 2 ranks do not divide",
            "input splits [2, 2] must be 2 counts that sum to its 2 rows",
            "band is for integers and booleans, not for float32",
            "no backend for cuda",
            "has been destroyed",
            "has been destroyed",
        ]
        for text, word in zip(told, words, strict=True):
            assert word in text


@pytest.mark.parametrize(
    ("algorithms", "slot_nbytes"),
    [({"all_reduce": "ring"}, None), ({"all_reduce": "halving_doubling"}, 4096)],
)
def test_options_choose_algorithms_and_staging(tmp_path, algorithms, slot_nbytes):
    for told in run_ranks(3, jobs.options, tmp_path, algorithms, slot_nbytes):
        assert told.startswith(f"host: {algorithms['all_reduce']} (asked for by name)")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("killed", "PeerLostError: rank 1 (process"),
        ("raises", "PeerLostError: rank 1 (process"),
        ("sleeps", "WaitTimeoutError: group 'default_pg' call 2, all_reduce of 16 bytes"),
        ("other", "DisagreementError: group 'default_pg' call 2: rank"),
    ],
)
def test_trouble_is_told_to_all_others_and_the_group_stays_ended(tmp_path, what, words):
    found = outcomes(3, jobs.trouble, tmp_path, what)
    for rank in (0, 2):
        told, took, again = found[rank].value
        assert told.startswith(words), told
        assert took < 3
        assert again.split(":", 1)[0] == told.split(":", 1)[0]


def test_a_group_that_was_aborted_can_be_made_anew(tmp_path):
    (tmp_path / "again").mkdir()
    for told, sum_ in run_ranks(2, jobs.abort, tmp_path):
        assert "was ended by rank 0: abort() was called" in told
        assert sum_ == 2


def test_a_group_is_left_after_what_was_issued(tmp_path):
    assert run_ranks(2, jobs.destroyed_under_way, tmp_path) == [1.0, 1.0]


def test_groups_are_used_by_threads_at_once(tmp_path):
    assert run_ranks(2, jobs.threads_and_groups, tmp_path) == [[], []]
