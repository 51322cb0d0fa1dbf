"""The commands that README and docs show, run, and compared with the output that they show.

A fenced block marked ``console`` holds commands behind ``$`` and, below each, what it prints; a line of
``...`` stands for any lines. ``CONCCL_UPDATE=1 pytest tests/test_commands.py`` writes what is printed now.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
WIDTH = "100"


@dataclass(frozen=True, kw_only=True)
class Example:
    """One command of a page and the output shown below it."""

    page: Path
    command: str
    shown: str


def examples_of(page: Path) -> list[Example]:
    found = []
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            found.append(Example(page=page, command=command, shown=shown))
    return found


EXAMPLES = [example for page in PAGES for example in examples_of(page)]


def printed(command: str) -> str:
    """What the command prints, run as a user would, from the root of the repository."""
    bins = str(Path(sys.executable).parent)
    environment = os.environ | {
        "PATH": f"{bins}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "COLUMNS": WIDTH,
    }
    command = re.sub(r"^conccl\b", f"{sys.executable} -m conccl", command)
    done = subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return "\n".join(line.rstrip() for line in (done.stdout + done.stderr).splitlines()) + "\n"


def matches(shown: str, actual: str) -> bool:
    """Whether the output is as shown, ``...`` standing for any lines."""
    parts = re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE)
    return re.fullmatch(r"(?:.*\n)*".join(map(re.escape, parts)), actual) is not None


def test_pages_show_commands() -> None:
    assert any(example.page.name == "README.md" for example in EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e.page.name}: {e.command[:50]}")
def test_commands_print_what_is_shown(example: Example) -> None:
    actual = printed(example.command)
    if os.environ.get("CONCCL_UPDATE") and not matches(example.shown, actual):
        text = example.page.read_text(encoding="utf-8")
        before, after = (f"$ {example.command}\n{output}" for output in (example.shown, actual))
        example.page.write_text(text.replace(before, after), encoding="utf-8")
        return
    assert matches(example.shown, actual), f"it prints now:\n{actual}"


def test_dots_stand_for_any_lines() -> None:
    assert matches("a\n...\nd\n", "a\nb\nc\nd\n")
    assert not matches("a\n...\nd\n", "a\nb\nc\n")
    assert not matches("a\n", "a\nb\n")
