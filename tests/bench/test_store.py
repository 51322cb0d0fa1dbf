"""The store grows, resumes, survives being cut off, and refuses what does not belong."""

import errno
from pathlib import Path

import pytest

from conccl.bench.store import Store, read_store
from conccl.core.errors import OutputError, StoreError
from conccl.core.measurement import Environment, Measurement, Status

HERE = Environment(executor="sim", device="h200-sxm", gpus=8, versions={"conccl": "1"})


def measured(label: str, *samples: int) -> Measurement:
    return Measurement(label=label, samples_ns=samples, environment=HERE)


def test_what_was_added_is_found_again(tmp_path):
    path = tmp_path / "deep" / "store.jsonl"
    failed = Measurement(label="b", samples_ns=(), environment=HERE, status=Status.CRASHED, reason="it died")
    Store(path, environment=HERE).add([measured("a", 3, 4), failed])
    again = Store(path, environment=HERE)
    assert again.get("a") == measured("a", 3, 4)
    assert again.get("b") == failed
    assert again.get("c") is None
    again.add([measured("c", 1)])
    assert [one.label for one in read_store(path)[1]] == ["a", "b", "c"]


def test_a_line_that_was_cut_off_is_measured_again(tmp_path):
    path = tmp_path / "store.jsonl"
    Store(path, environment=HERE).add([measured("a", 1), measured("b", 2)])
    path.write_bytes(path.read_bytes()[:-7])
    store = Store(path, environment=HERE)
    assert store.get("a") is not None
    assert store.get("b") is None
    store.add([measured("b", 2)])
    assert len(read_store(path)[1]) == 2


@pytest.mark.parametrize(
    "other",
    [
        Environment(executor="gpu", device="h200-sxm", gpus=8, versions={"conccl": "1"}),
        Environment(executor="sim", device="mi300x", gpus=8, versions={"conccl": "1"}),
        Environment(executor="sim", device="h200-sxm", gpus=8, versions={"conccl": "2"}),
    ],
)
def test_unlike_environments_are_not_mixed(tmp_path, other):
    Store(tmp_path / "s", environment=HERE)
    with pytest.raises(StoreError, match="not mixed"):
        Store(tmp_path / "s", environment=other)
    with pytest.raises(StoreError, match="not mixed"):
        Store(tmp_path / "s", environment=HERE).add(
            [Measurement(label="a", samples_ns=(1,), environment=other)]
        )


@pytest.mark.parametrize("text", ['{"schema": "conccl.store/9"}\n', "[]\n", "nonsense\n"])
def test_another_version_or_file_is_refused(tmp_path, text):
    path = tmp_path / "s"
    path.write_text(text)
    with pytest.raises(StoreError):
        Store(path, environment=HERE)


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "s"
    Store(path, environment=HERE).add([measured("a", 1), measured("b", 2)])
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:-3], lines[2]]) + "\n")
    with pytest.raises(StoreError, match="line 2"):
        Store(path, environment=HERE)


def test_a_place_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        Store(tmp_path / "file" / "store", environment=HERE)


@pytest.mark.parametrize("kept", [1, 10, 30, 60])
def test_a_first_line_that_was_cut_off_is_written_anew(tmp_path, kept):
    path = tmp_path / "s"
    Store(path, environment=HERE)
    path.write_bytes(path.read_bytes()[:kept])
    Store(path, environment=HERE).add([measured("a", 1)])
    assert read_store(path) == (HERE, (measured("a", 1),))


def test_a_file_of_one_line_that_is_no_store_is_left_alone(tmp_path):
    path = tmp_path / "notes"
    path.write_text("my notes")
    with pytest.raises(StoreError):
        Store(path, environment=HERE)
    assert path.read_text() == "my notes"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_says_what_to_do():
    with pytest.raises(OutputError, match=r"No space left.*Free space"):
        Store(Path("/dev/full"), environment=HERE)


def test_a_disk_that_fills_up_in_mid_sweep_costs_the_last_line_only(tmp_path, monkeypatch):
    path = tmp_path / "s"
    store = Store(path, environment=HERE)
    store.add([measured("a", 1)])
    whole = path.read_bytes()
    real_open = Path.open

    def full(self, *arguments, **options):
        with real_open(self, *arguments, **options) as file:
            file.write("{half a li")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(OutputError, match="what is already there is kept"):
        store.add([measured("b", 2)])
    monkeypatch.undo()
    assert path.read_bytes() != whole
    assert Store(path, environment=HERE).all().keys() == {"a"}
    assert path.read_bytes() == whole
