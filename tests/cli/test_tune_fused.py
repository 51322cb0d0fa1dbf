"""`conccl tune fused`: what it says of a model, keys, bad input."""

import json

import pytest
from typer.testing import CliRunner

from conccl.cli.main import app
from conccl.core.errors import InputError, UnknownNameError
from conccl.core.kinds import DType
from conccl.strategies.ways import Serial, Tracked
from conccl.tune.fused_problem import Call
from conccl.tune.fused_table import Row, Table, write_table

MODEL = ("llama3-8b", "--tp", "4", "--device", "h200-sxm", "--length", "2048")


def run(*arguments):
    result = CliRunner().invoke(app, ["tune", "fused", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_gemm_of_tensor_parallelism_has_a_way():
    document = json.loads(run(*MODEL, "--format", "json"))
    assert (document["schema"], document["executor"]) == ("conccl.tune.fused/1", "sim")
    calls = {(one["name"], one["call"]): one for one in document["calls"]}
    assert calls.keys() >= {
        ("attention.qkv", "all_gather_gemm"),
        ("attention.output", "gemm_reduce_scatter"),
        ("ffn.up", "all_gather_gemm"),
        ("ffn.down", "gemm_reduce_scatter"),
    }
    down = calls["ffn.down", "gemm_reduce_scatter"]
    assert (down["m"], down["n"], down["k"], down["world"]) == (2048, 4096, 14336 // 4, 4)
    for one in document["calls"]:
        assert one["predicted_ns"] <= one["serial_ns"] == one["ways_ns"]["serial"]
        assert one["way"].partition(":")[0] in ("serial", "chunked")
        assert one["reason"]
        assert not one["is_measured"]


def test_decoding_reduces_whole_sums():
    document = json.loads(run(*MODEL, "--phase", "decode", "--sequences", "8", "--format", "json"))
    assert {one["call"] for one in document["calls"]} == {"gemm_all_reduce"}
    assert {one["way"] for one in document["calls"]} == {"serial"}  # 8 rows: nothing to hide


def test_engines_and_tracking_are_what_ifs():
    text = run(*MODEL, "--mover", "ce", "--ways", "chunked,tracked", "--set", "copy_engines.count=32")
    assert text.splitlines()[0] == "Ways of fused operators on h200-sxm, simulated"
    assert "tracked:" in text or "chunked:" in text


def test_measurements_decide(tmp_path):
    sizes = {"m": 2048, "n": 4096, "k": 3584, "world": 4, "dtype": DType.BF16}
    rows = [
        Row(call=Call.GEMM_REDUCE_SCATTER, way=way, ns=ns, **sizes)
        for way, ns in ((Serial(), 200_000), (Tracked(chunks=8), 100_000))
    ]
    write_table(tmp_path / "t.json", Table(device="h200-sxm", rows=tuple(rows)))
    more = ("--table", tmp_path / "t.json", "--ways", "tracked", "--format", "json")
    calls = json.loads(run(*MODEL, *more))["calls"]
    down = next(one for one in calls if (one["name"], one["n"], one["k"]) == ("ffn.down", 4096, 3584))
    assert (down["way"], down["speedup"], down["is_measured"]) == ("tracked:8", 2.0, True)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("--tp", "1"), InputError, "has no GEMM that feeds a collective"),
        (("--ways", "chunky"), UnknownNameError, "unknown way 'chunky'"),
        (("--set", "nothing=1"), InputError, "nothing"),
        (("--table", "none.json"), InputError, "cannot read none.json"),
    ],
)
def test_bad_input_says_what_is_wrong(arguments, error, words):
    with pytest.raises(error, match=words):
        run(*MODEL, *arguments)
