"""The parallel examples, as two processes with the environment that torchrun gives them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from integrations.example_jobs import as_rank
from ranks import run_ranks

pytestmark = pytest.mark.torch
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "parallel"


def run(name: str) -> str:
    """What an example prints."""
    with socket.socket() as one:
        one.bind(("localhost", 0))
        port = one.getsockname()[1]
    return run_ranks(2, as_rank, EXAMPLES / name, port)[0]


def test_a_layer_cut_over_ranks_is_the_whole_layer():
    lines = run("tensor_parallel.py").splitlines()
    assert [line.split(":")[0] for line in lines[:4]] == [
        "output",
        "gradient of the input",
        "gradient of the first layer",
        "gradient of the second layer",
    ]
    assert all("the same as on one rank" in line for line in lines[:4])
    assert lines[4].startswith("all_gather by host: staged")


def test_tokens_come_back_from_their_experts():
    lines = run("expert_parallel.py").splitlines()
    assert len(lines) == 3
    assert all("results the same as on one rank" in line for line in lines)
