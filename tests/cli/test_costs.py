import gzip
import json

import pytest
from typer.testing import CliRunner

from conccl.cli.main import app
from conccl.core.errors import InputError

ROW = {"op": "all_gather", "nbytes": 1 << 20, "ranks": 8, "us": 17.0}


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_devices_lists_all_and_shows_one():
    listed = run("devices")
    assert listed.exit_code == 0
    assert "h200-sxm" in listed.stdout
    assert "mi300x" in listed.stdout
    shown = run("devices", "h200-sxm")
    assert "sm_count = 132" in shown.stdout


def test_devices_as_json_have_a_source_for_every_number():
    document = json.loads(run("devices", "a100-sxm", "--format", "json").stdout)
    assert document["schema"] == "conccl.devices/1"
    fields = {entry["field"]: entry for entry in document["devices"][0]["fields"]}
    assert fields["sm_count"]["value"] == 108
    assert "white paper" in fields["sm_count"]["source"]


def test_a_device_with_a_changed_field():
    document = json.loads(
        run("devices", "h200-sxm", "--set", "device.l2_nbytes=1G", "--format", "json").stdout
    )
    fields = {entry["field"]: entry for entry in document["devices"][0]["fields"]}
    assert fields["l2_nbytes"] == {"field": "l2_nbytes", "value": 1 << 30, "source": "set by the user"}


def test_an_unknown_device_offers_near_names():
    result = run("devices", "h200")
    assert isinstance(result.exception, InputError)
    assert "h200-sxm" in str(result.exception)


@pytest.mark.parametrize("name", ["rows.json", "rows.json.gz"])
def test_predict_prints_rows_with_predictions(tmp_path, name):
    path = tmp_path / name
    text = json.dumps([ROW, ROW | {"nbytes": 1 << 28, "us": 700.0}])
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    result = run("predict", str(path), "--device", "h200-sxm", "--format", "json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["schema"] == "conccl.predict/1"
    assert document["device"] == "h200-sxm"
    assert [row["index"] for row in document["rows"]] == [0, 1]
    assert document["rows"][1]["predicted_us"] > document["rows"][0]["predicted_us"] > 0
    assert 0 < document["mape_percent"] < 30
    table = run("predict", str(path), "--device", "h200-sxm")
    assert "all_gather" in table.stdout


def test_one_bad_row_does_not_lose_the_others(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"rows": [ROW, ROW | {"ranks": 0}, 7]}))
    result = run("predict", str(path), "--device", "h200-sxm", "--format", "json")
    assert result.exit_code == 2
    rows = json.loads(result.stdout)["rows"]
    assert [row["error"] is None for row in rows] == [True, False, False]
    assert rows[0]["predicted_us"] > 0
    assert "row 1: ranks is 0" in result.stderr
    assert "2 of 3 rows" in result.stderr


def test_predict_answers_with_nan_as_null(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('[{"m": NaN, "n": 1, "k": 1}]')
    result = run("predict", str(path), "--device", "h200-sxm", "--format", "json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["rows"][0]["m"] is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is not JSON"),
        ("{}", "has no rows"),
        ("[]", "has no rows"),
        ('"x"', "has no rows"),
        ("[1", "is not JSON"),
        ("[" * 5_000, "is not JSON"),
    ],
)
def test_files_that_hold_no_rows(tmp_path, content, said):
    path = tmp_path / "rows.json"
    path.write_text(content)
    result = run("predict", str(path), "--device", "h200-sxm")
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)


def test_a_file_that_is_not_there(tmp_path):
    result = run("predict", str(tmp_path / "none.json"), "--device", "h200-sxm")
    assert isinstance(result.exception, InputError)
    assert "cannot read" in str(result.exception)


@pytest.mark.parametrize("size", [1e300, 10**30, 1 << 63])
def test_a_size_beyond_reason_loses_no_other_row(tmp_path, size):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([ROW, {"m": size, "n": size, "k": size}]))
    result = run("predict", str(path), "--device", "h200-sxm", "--format", "json")
    assert result.exit_code == 2
    rows = json.loads(result.stdout)["rows"]
    assert rows[0]["predicted_us"] > 0
    assert "nothing has more than" in rows[1]["error"]


def test_bytes_take_suffixes(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([ROW | {"nbytes": "1M"}, ROW | {"nbytes": 1 << 20}]))
    result = run("predict", str(path), "--device", "h200-sxm", "--format", "json")
    first, second = (row["predicted_us"] for row in json.loads(result.stdout)["rows"])
    assert first == second > 0


def test_a_setting_without_a_device_is_not_dropped():
    result = run("devices", "--set", "device.sm_count=5")
    assert "Name it" in str(result.exception)
