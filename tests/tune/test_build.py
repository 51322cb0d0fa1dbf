"""Tables from cells: resumed, written, read back, refused where they do not fit."""

import gzip
import json

import pytest

from conccl.bench.bench import ExactBench
from conccl.bench.store import Store
from conccl.core.errors import InputError, OutputError, StoreError
from conccl.core.measurement import Environment
from conccl.core.ops import Copy, Gemm
from conccl.core.pair import Pair
from conccl.costs.catalogue import load_device, system_of
from conccl.sim.executor import SimExecutor
from conccl.tune import build, cells
from conccl.tune.build import build_tables, cells_in
from conccl.tune.policy import Policy
from conccl.tune.tables import find_tables, read_tables, shipped_path, write_tables

DEVICE = load_device("h200-sxm")
SYSTEM = system_of(DEVICE, gpus=1)
HERE = Environment(executor="sim", device=DEVICE.name, versions={"device": "made"})
FEW = (Gemm(m=768, n=4608, k=2048), Gemm(m=4000, n=4608, k=2048))


class CountingExecutor:
    def __init__(self, *, stop_after: int | None = None):
        self.inner = SimExecutor(system=SYSTEM)
        self.runs = 0
        self.stop_after = stop_after

    def run(self, plan):
        if self.runs == self.stop_after:
            raise KeyboardInterrupt
        self.runs += 1
        return self.inner.run(plan)


@pytest.fixture(autouse=True)
def _few_cells(monkeypatch):
    monkeypatch.setattr(build, "PAIRED", FEW)
    monkeypatch.setattr(build, "RATIOS", (-1.0, 1.0))
    monkeypatch.setattr(cells, "COPIES", {"host_out": cells.COPIES["host_out"]})


def built(executor=None, keep=None, done=lambda: None):
    return build_tables(
        ExactBench(executor=executor or CountingExecutor(), environment=HERE),
        system=SYSTEM,
        keep=keep,
        done=done,
    )


def test_tables_come_back_from_a_file_as_they_were(tmp_path):
    tables = built()
    for name in ("t.json", "t.json.gz"):
        write_tables(tmp_path / name, tables)
        assert read_tables(tmp_path / name) == tables
    assert {one.kind for one in tables.stretches} == {"host_out"}
    assert all(factor >= 0.99 for one in tables.slowdowns for factor in one.factors)


def test_progress_is_counted_cell_by_cell():
    counted = []
    built(done=lambda: counted.append(1))
    assert len(counted) <= cells_in(SYSTEM) <= 1.2 * len(counted)


def test_an_interrupted_build_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "cells.jsonl"
    with pytest.raises(KeyboardInterrupt):
        built(CountingExecutor(stop_after=100), Store(path, environment=HERE))
    second, whole = CountingExecutor(), CountingExecutor()
    resumed = built(second, Store(path, environment=HERE))
    assert resumed == built(whole)
    assert second.runs < whole.runs
    third = CountingExecutor()
    assert built(third, Store(path, environment=HERE)) == resumed
    assert third.runs == 0


def test_a_policy_can_be_made_of_them():
    choice = Policy(tables=built(), device=DEVICE).choose(
        Pair(compute=Gemm(m=2048, n=4096, k=4096), communication=Copy(nbytes=1 << 22, destination="host"))
    )
    assert choice.name == "ce"


def test_where_nothing_can_be_measured_there_are_no_tables():
    class Failing:
        def run(self, _plan, /):
            raise InputError("no")

    with pytest.raises(InputError, match="no GEMM could be measured"):
        built(Failing())


def test_own_tables_come_before_shipped_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("CONCCL_TABLES", str(tmp_path))
    shipped = find_tables(DEVICE)
    assert shipped == read_tables(shipped_path("h200-sxm"))
    write_tables(tmp_path / "h200-sxm.json", shipped)
    document = json.loads((tmp_path / "h200-sxm.json").read_bytes())
    document["environment"]["executor"] = "gpu"
    (tmp_path / "h200-sxm.json").write_text(json.dumps(document))
    assert not find_tables(DEVICE).is_simulated


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "holds no tables"),
        (b"[]", "holds no tables"),
        (b"{}", "no tables of this version"),
        (b'{"schema": "conccl.tables/0"}', "conccl.tables/0"),
        (b'{"schema": "conccl.tables/1", "gemm": "x"}', "holds no tables"),
        (b"\xff\xfe", "holds no tables"),
    ],
)
def test_files_that_are_no_tables_are_refused_with_what_to_do(tmp_path, content, says):
    for name, data in (("t.json", content), ("t.json.gz", gzip.compress(content))):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(StoreError, match=says) as error:
            read_tables(tmp_path / name)
        assert "conccl tune tables" in str(error.value)


@pytest.mark.parametrize("content", [b"not gzip", gzip.compress(b"{}")[:-9], b"\x1f\x8b\x08\x00broken"])
def test_a_broken_archive_is_refused(tmp_path, content):
    path = tmp_path / "t.json.gz"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="cannot read tables"):
        read_tables(path)


def test_tables_that_cannot_be_written_are_an_output_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        write_tables(tmp_path / "file" / "t.json", built())
