"""Logs of real loaders and a real model, interrupted and gone on with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils.rnn import pad_sequence  # noqa: E402

from conccl import IterationRecorder  # noqa: E402
from conccl.core.errors import InputError, OutputError  # noqa: E402
from conccl.integrations.iterations.stopwatch import Clock, Events, stopwatch_for  # noqa: E402
from conccl.sampling.logs import read_log  # noqa: E402

pytestmark = pytest.mark.torch


class Sentences(torch.utils.data.Dataset):
    """Token ids of lengths 3, 4, 5 ..., in that order."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return torch.full((3 + index,), index % 11)


def padded(sentences: list[Any]) -> dict[str, Any]:
    tokens = pad_sequence(sentences, batch_first=True)
    return {"input_ids": tokens, "attention_mask": tokens != 0, "labels": tokens.clone()}


def loader(count: int = 8, *, workers: int = 0) -> Any:
    return torch.utils.data.DataLoader(Sentences(count), batch_size=2, collate_fn=padded, num_workers=workers)


def tokens(*shape: int) -> Any:
    return torch.zeros(shape, dtype=torch.long)


def test_a_training_run(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(11, 8), torch.nn.Linear(8, 11))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = IterationRecorder(tmp_path / "run.csv")
    batches = recorder.batches(loader())
    assert len(batches) == 4
    assert batches.batch_size == 2  # of the loader itself
    for _ in range(2):
        for batch in batches:
            loss = torch.nn.functional.cross_entropy(
                model(batch["input_ids"]).flatten(0, 1), batch["labels"].flatten()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    log = read_log(tmp_path / "run.csv")
    assert log.iteration.tolist() == list(range(8))
    assert log.length[:, 0].tolist() == [4, 6, 8, 10] * 2
    assert list(log.statistics) == ["time_ms", "sequences"]
    assert (log.statistics["time_ms"] > 0).all()
    assert log.statistics["sequences"].tolist() == [2.0] * 8


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python's, of forks
def test_workers_of_the_loader_do_not_matter(tmp_path: Path) -> None:
    recorder = IterationRecorder(tmp_path / "run.csv")
    assert [tuple(b["input_ids"].shape) for b in recorder.batches(loader(workers=2))] == [
        (2, 4),
        (2, 6),
        (2, 8),
        (2, 10),
    ]
    recorder.close()
    with IterationRecorder(tmp_path / "run.csv") as again:  # the file is free although workers held it
        assert again.iteration == 4


def test_lengths_that_differ_get_columns_of_their_own_from_then_on(tmp_path: Path) -> None:
    batches = [(tokens(2, 5), tokens(2, 5)), (tokens(2, 5), tokens(2, 6)), (tokens(2, 7), tokens(2, 4))]
    with IterationRecorder(tmp_path / "run.csv") as recorder:
        for _ in recorder.batches(batches):
            pass
    assert read_log(tmp_path / "run.csv").length.tolist() == [[5, 5], [5, 6], [7, 4]]


def test_a_step_within_the_body_is_what_counts(tmp_path: Path) -> None:
    with IterationRecorder(tmp_path / "run.csv") as recorder:
        for _ in recorder.batches([tokens(2, 5), tokens(2, 6)]):
            with recorder.step():
                pass
            sum(range(300_000))  # several ms that do not count
        with recorder.step(tokens(2, 9)):
            pass
        with pytest.raises(InputError, match="a step without a batch"), recorder.step():
            pass
    log = read_log(tmp_path / "run.csv")
    assert log.length[:, 0].tolist() == [5, 6, 9]
    assert log.statistics["time_ms"].max() < 1


def test_a_step_that_raises_is_not_logged_and_loses_no_other(tmp_path: Path) -> None:
    recorder = IterationRecorder(tmp_path / "run.csv")

    def body(batch: Any) -> None:
        if batch.shape[1] == 6:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        list(map(body, recorder.batches([tokens(2, 5), tokens(2, 6), tokens(2, 7)])))
    assert read_log(tmp_path / "run.csv").length[:, 0].tolist() == [5]


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_text("iteration,length,time_ms,sequences\n0,5,1,2\n1,6,1.5,2\n2,7,1.2")  # broke off
    with IterationRecorder(path) as recorder:
        for _ in recorder.batches([tokens(2, 8)]):
            pass
    log = read_log(path)
    assert log.iteration.tolist() == [0, 1, 2]
    assert log.length[:, 0].tolist() == [5, 6, 8]


def test_a_run_from_a_checkpoint_repeats_what_came_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    with IterationRecorder(path) as recorder:
        for _ in recorder.batches([tokens(2, n) for n in (3, 4, 5, 6)]):
            pass
    with IterationRecorder(path, first=2) as recorder:
        for _ in recorder.batches([tokens(2, n) for n in (7, 8, 9)]):
            pass
    log = read_log(path)
    assert log.iteration.tolist() == [0, 1, 2, 3, 4]
    assert log.length[:, 0].tolist() == [3, 4, 7, 8, 9]


def test_a_batch_without_length_is_told_once_and_left_out(tmp_path: Path) -> None:
    recorder = IterationRecorder(tmp_path / "run.csv")
    batches = [tokens(2, 5), tokens(2, 0), "text", (tokens(2, 5), tokens(2, 6)), tokens(2, 7)]
    with pytest.warns(UserWarning, match="iteration 1 is not logged") as caught:
        assert len(list(recorder.batches(batches))) == 5
    assert len(caught) == 1
    log = read_log(tmp_path / "run.csv")
    assert log.iteration.tolist() == [0, 4]
    assert log.length[:, 0].tolist() == [5, 7]


def test_a_first_batch_without_length_stops_at_once(tmp_path: Path) -> None:
    recorder = IterationRecorder(tmp_path / "run.csv")
    with pytest.raises(InputError, match="Give length=FUNCTION"):
        list(recorder.batches(["text"]))


def test_two_recorders_of_one_file(tmp_path: Path) -> None:
    recorder = IterationRecorder(tmp_path / "run.csv")
    with pytest.raises(OutputError, match="Give each process a file of its own"):
        IterationRecorder(tmp_path / "run.csv")
    recorder.close()
    IterationRecorder(tmp_path / "run.csv").close()


@pytest.mark.parametrize("text", ["name,age\nx,y\n", "a,b\n1,2\n", "iteration,length\n0,5\n", "\xff"])
def test_a_file_of_somebody_elses_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.csv"
    path.write_bytes(text.encode("latin-1") + b"\n")
    before = path.read_bytes()
    with pytest.raises((InputError, OutputError), match="Give another path"):
        IterationRecorder(path)
    assert path.read_bytes() == before


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"ending in \.csv"):
        IterationRecorder(tmp_path / "run.parquet")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"):
        IterationRecorder(tmp_path / "file" / "run.csv")


KILLED = """
import os, signal, sys, torch
from conccl import IterationRecorder
recorder = IterationRecorder(sys.argv[1])
for batch in recorder.batches([torch.zeros((2, n), dtype=torch.long) for n in range(1, 100)]):
    if batch.shape[1] == 42:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_has_written_every_finished_iteration(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run.csv")]
    assert subprocess.run(command, check=False, timeout=60).returncode == -9
    assert read_log(tmp_path / "run.csv").length[:, 0].tolist() == list(range(1, 42))


class Stream:
    """A GPU's stream: events pass when it says so, a ms after each other."""

    def __init__(self) -> None:
        self.recorded = 0
        self.passed = 0
        self.waits = 0
        self.made = 0

    def event(self) -> Event:
        self.made += 1
        return Event(self)


class Event:
    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.place = 0

    def record(self) -> None:
        self.stream.recorded += 1
        self.place = self.stream.recorded

    def query(self) -> bool:
        return self.place <= self.stream.passed

    def synchronize(self) -> None:
        self.stream.waits += 1
        self.stream.passed = max(self.stream.passed, self.place)

    def elapsed_time(self, other: Event) -> float:
        assert other.query()
        return float(other.place - self.place)


def test_events_are_read_when_they_have_passed_and_used_again() -> None:
    stream = Stream()
    watch = Events(event=stream.event)
    for step in range(3):
        watch.start()
        watch.stop(step)
    assert list(watch.done(wait=False)) == []
    stream.passed = 4
    assert list(watch.done(wait=False)) == [(0, 1.0), (1, 1.0)]
    watch.start()
    watch.start()  # the first was of a step that raised
    watch.stop(3)
    assert stream.waits == 0
    assert list(watch.done(wait=True)) == [(2, 1.0), (3, 1.0)]
    assert stream.made == 6


def test_the_clock_where_there_is_no_gpu() -> None:
    assert isinstance(stopwatch_for(None), Clock)
    assert isinstance(stopwatch_for("cpu"), Clock)
    assert isinstance(stopwatch_for("cuda:1"), Events)
