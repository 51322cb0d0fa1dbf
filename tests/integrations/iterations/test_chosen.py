"""Only the chosen iterations are run, measured and profiled, and an interrupted run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from conccl import ChosenIterations  # noqa: E402
from conccl.core.errors import InputError  # noqa: E402
from conccl.integrations.iterations.chosen import ATTEMPTS, REPEATS  # noqa: E402
from conccl.sampling.logs import read_columns  # noqa: E402
from conccl.traces.sources import find_traces  # noqa: E402

pytestmark = pytest.mark.torch

RUNS = ATTEMPTS + REPEATS + 1


def tokens(*shape: int) -> Any:
    return torch.zeros(shape, dtype=torch.long)


def choice(folder: Path, *lengths: Any) -> Path:
    path = folder / "chosen.json"
    points = [{"length": length, "iteration": i, "weight": 1 + i} for i, length in enumerate(lengths)]
    path.write_text(json.dumps({"schema": "conccl.sample.iterations/1", "seqpoints": points}))
    return path


def test_only_chosen_lengths_run(tmp_path: Path) -> None:
    chosen = ChosenIterations(choice(tmp_path, 5, 9), folder=tmp_path / "p")
    seen = []
    for batch in chosen.batches([tokens(2, n) for n in (3, 5, 5, 7, 9, 11, 13)]):
        seen.append(batch.shape[1])
        torch.nn.functional.one_hot(batch, 8).float() @ torch.ones(8, 8)
    assert seen == [5] * RUNS + [9] * RUNS
    assert chosen.missing == ()
    measured = read_columns(tmp_path / "p" / "statistics.csv")
    assert list(measured) == ["length", "time_ms"]
    assert [float(length) for length in measured["length"]] == [5, 9]
    traces = sorted(path.name for path in (tmp_path / "p").glob("*.json.gz"))
    assert traces == ["length-5.pt.trace.json.gz", "length-9.pt.trace.json.gz"]
    assert len(find_traces([tmp_path / "p"]).files) == 2


def test_a_batch_that_the_body_empties_comes_whole_each_time(tmp_path: Path) -> None:
    chosen = ChosenIterations(choice(tmp_path, [5, 6]), folder=tmp_path / "p")
    for batch in chosen.batches([{"source": tokens(2, 5), "target": tokens(2, 6)}]):
        batch.pop("source")
        batch.pop("target")
    assert list(read_columns(tmp_path / "p" / "statistics.csv")) == [
        "length_source",
        "length_target",
        "time_ms",
    ]


def test_interrupted_and_gone_on_with(tmp_path: Path) -> None:
    path = choice(tmp_path, 5, 9)
    batches = [tokens(2, n) for n in (5, 9)]

    def body(batch: Any) -> None:
        if batch.shape[1] == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(map(body, ChosenIterations(path, folder=tmp_path / "p").batches(batches)))
    again = ChosenIterations(path, folder=tmp_path / "p")
    assert again.missing == ((9,),)
    assert [batch.shape[1] for batch in again.batches(batches)] == [9] * RUNS
    assert list(ChosenIterations(path, folder=tmp_path / "p").batches(batches)) == []


def test_lengths_that_never_come_are_told(tmp_path: Path) -> None:
    chosen = ChosenIterations(choice(tmp_path, 5, 99), folder=tmp_path / "p")
    with pytest.warns(UserWarning, match=r"no batch had 1 of the chosen lengths \(99\)"):
        list(chosen.batches([tokens(2, 5)]))
    assert chosen.missing == ((99,),)


def test_one_length_where_all_are_equal(tmp_path: Path) -> None:
    """The log of a run whose lengths never differ has one column."""
    chosen = ChosenIterations(choice(tmp_path, 5), folder=tmp_path / "p")
    assert len(list(chosen.batches([(tokens(2, 4), tokens(2, 5)), (tokens(2, 5), tokens(2, 5))]))) == RUNS


def test_dimensions_that_do_not_fit(tmp_path: Path) -> None:
    chosen = ChosenIterations(choice(tmp_path, [5, 6, 7]), folder=tmp_path / "p")
    with pytest.raises(InputError, match="the choice is of 3 lengths"):
        list(chosen.batches([(tokens(2, 5), tokens(2, 6))]))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": "conccl.simulate/1"}',
        '{"schema": "conccl.sample.iterations/1"}',
        *(
            '{"schema": "conccl.sample.iterations/1", "seqpoints": [' + row + "]}"
            for row in (
                "",
                '{"length": "5", "iteration": 0, "weight": 1}',
                '{"length": 0, "iteration": 0, "weight": 1}',
                '{"length": true, "iteration": 0, "weight": 1}',
                '{"length": 5, "iteration": 0, "weight": 1.5}',
                '{"length": 5, "iteration": 0, "weight": 1}, {"length": [5, 6], "iteration": 1, "weight": 1}',
            )
        ),
        "[" * 9000,
    ],
)
def test_what_is_no_choice(tmp_path: Path, text: str) -> None:
    path = tmp_path / "chosen.json"
    path.write_text(text)
    with pytest.raises(InputError, match="Make it with: conccl sample iterations"):
        ChosenIterations(path, folder=tmp_path / "p")


def test_a_choice_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        ChosenIterations(tmp_path / "missing.json", folder=tmp_path / "p")
