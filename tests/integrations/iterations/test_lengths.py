"""Lengths of every kind of batch that loaders make."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils.rnn import pack_sequence  # noqa: E402

from conccl.core.errors import InputError  # noqa: E402
from conccl.integrations.iterations.lengths import lengths_of, sequences_of  # noqa: E402

pytestmark = pytest.mark.torch


class Pair(NamedTuple):
    source: Any
    target: Any


def ids(*shape: int) -> Any:
    return torch.zeros(shape, dtype=torch.long)


PACKED = pack_sequence([torch.ones(5, 3), torch.ones(2, 3)])


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (ids(4, 7), {"length": 7}),
        ((ids(4, 7), ids(4)), {"length_0": 7}),
        ([ids(4, 7), ids(4, 9)], {"length_0": 7, "length_1": 9}),
        (Pair(ids(4, 7), ids(4, 9)), {"length_0": 7, "length_1": 9}),
        ({"input_ids": ids(4, 7), "attention_mask": ids(4, 7)}, {"length_input_ids": 7}),
        (
            {"input_ids": ids(4, 7), "labels": ids(4, 9), "decoder_input_ids": ids(4, 9)},
            {"length_input_ids": 7, "length_decoder_input_ids": 9},
        ),
        ({"attention_mask": torch.ones(4, 6, dtype=torch.bool)}, {"length_attention_mask": 6}),
        ({"x": torch.ones(4, 11, 3), "label": ids(4)}, {"length_x": 11}),
        (PACKED, {"length": 5}),
        ((PACKED, ids(2)), {"length_0": 5}),
        ({"speech": {"frames": ids(2, 8)}}, {"length_speech.frames": 8}),
        (
            torch.nested.nested_tensor([torch.ones(3, 2), torch.ones(6, 2)], layout=torch.jagged),
            {"length": 6},
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_found(batch: Any, expected: dict[str, int]) -> None:
    found = lengths_of(batch)
    assert found == expected


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (5, {"length": 5}),
        (torch.tensor(5), {"length": 5}),
        ((5, 6), {"length_0": 5, "length_1": 6}),
        ([5], {"length": 5}),
        ({"prefill": 5, "length_decode": 6}, {"length_prefill": 5, "length_decode": 6}),
    ],
)
def test_a_function_of_the_users(returned: Any, expected: dict[str, int]) -> None:
    assert lengths_of(None, lambda _: returned) == expected


@pytest.mark.parametrize("returned", [0, -1, 2.5, "8", None, float("nan"), float("inf"), {"a": 0}])
def test_what_is_no_length(returned: Any) -> None:
    with pytest.raises(InputError, match="whole number above 0"):
        lengths_of(None, lambda _: returned)


@pytest.mark.parametrize("batch", [ids(4), torch.ones(2, 3, 8, 8), "text", None, [], {}, (1, 2)])
def test_no_sequences(batch: Any) -> None:
    with pytest.raises(InputError, match="Give length=FUNCTION"):
        lengths_of(batch)


def test_an_empty_batch() -> None:
    with pytest.raises(InputError, match="length 0"):
        lengths_of(ids(4, 0))


def test_sequences() -> None:
    assert sequences_of({"input_ids": ids(4, 7)}) == 4
    assert sequences_of(PACKED) == 2
    assert sequences_of("text") is None
