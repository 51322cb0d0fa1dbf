"""The page on collectives says what the package does."""

import re
from pathlib import Path

import pytest

from conccl.collectives.catalogue import algorithms
from conccl.core.ops import CollectiveKind

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "collectives.md").read_text(encoding="utf-8")


def test_its_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(code, "docs/collectives.md", "exec"), {})
    said = re.search(r"print\(.*\)  # (.*)", code)
    assert said is not None
    assert capsys.readouterr().out.strip() == said.group(1)


def test_its_table_has_all_algorithms_and_no_other():
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == {name for kind in CollectiveKind for name in algorithms(kind)}
