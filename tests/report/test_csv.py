from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path

import pytest

from conccl.core.errors import OutputError
from conccl.report.tables import csv_tables, csv_text, write_csv
from example_analysis import MS, analysis, hostile_analysis


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_tables_carry_the_documents_keys_and_integer_times(tmp_path: Path):
    paths = write_csv(analysis(), folder=tmp_path / "new")
    names = {path.stem for path in paths}
    assert {"ranks", "steps", "collectives", "contention", "regions", "exposed", "unclassified"} <= names
    ranks = rows((tmp_path / "new" / "ranks.csv").read_text(encoding="utf-8"))
    assert [row["rank"] for row in ranks] == ["0", "1"]
    assert ranks[0]["compute_only_ns"] == str(12 * MS)
    assert ranks[0]["overlap_speedup"].startswith("1.14")
    assert ranks[0]["health_zero_rows"] == "1"
    parts = ("compute_only_ns", "communication_only_ns", "both_ns", "copy_only_ns", "idle_ns")
    assert sum(int(ranks[0][part]) for part in parts) == int(ranks[0]["span_ns"])


def test_steps_name_their_rank():
    assert [(row["rank"], row["number"]) for row in csv_tables(analysis())["steps"]] == [
        (rank, step) for rank in (0, 1) for step in (0, 1, 2)
    ]


def test_figures_without_meaning_are_empty():
    collectives = rows(csv_text(csv_tables(analysis())["collectives"]))
    assert collectives[1]["wait_ns"] == ""
    regions = rows(csv_text(csv_tables(analysis())["regions"]))
    assert regions[1]["fraction_of_ideal"] == ""


def test_names_that_spreadsheets_would_run_are_defused():
    kernels = rows(csv_text(csv_tables(hostile_analysis())["unclassified"]))
    assert '\'=HYPERLINK("http://example.invalid")' in [row["name"] for row in kernels]
    numbers = rows(csv_text([{"number": -1.5}]))
    assert numbers[0]["number"] == "-1.5"


def test_hostile_names_can_be_written(tmp_path: Path):
    assert write_csv(hostile_analysis(), folder=tmp_path)


def test_a_table_without_rows_has_no_file(tmp_path: Path):
    run = dataclasses.replace(analysis(), contention=())
    assert "contention" not in {path.stem for path in write_csv(run, folder=tmp_path)}


def test_a_folder_that_cannot_be_made_is_an_output_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        write_csv(analysis(), folder=tmp_path / "file")
