"""What holds the package together: floors, light imports, public names, a quick command line."""

import ast
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

import conccl

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src" / "conccl").rglob("*.py"))


def run(*arguments: str) -> str:
    """What a fresh interpreter prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_imports_only_go_down(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    code = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert code == 0, capsys.readouterr().out


def test_the_package_is_imported_without_what_it_may_not_need():
    loaded = run(
        "-c", "import sys, conccl; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    ).split()
    assert {"torch", "numpy", "triton", "cuda", "polars", "rich", "typer"}.isdisjoint(loaded)


@pytest.mark.parametrize("module", ["conccl.core.plan", "conccl.core.errors", "conccl.collectives.choose"])
def test_the_lower_floors_do_without_pytorch(module: str):
    assert "torch" not in run("-c", f"import sys, {module}; print(*sys.modules)").split()


def test_public_names_are_those_that_are_promised_and_each_can_be_had():
    """A name is added here with the change that adds it, and never removed."""
    promised = {
        "Analysis",
        "ConcclError",
        "InputError",
        "Overlap",
        "Plan",
        "Task",
        "Timeline",
        "analyze",
    }
    public = {name for name in conccl.__all__ if not name.startswith("_")}
    assert promised <= public
    assert set(dir(conccl)) == set(conccl.__all__)
    for name in public:
        assert getattr(conccl, name).__module__.startswith("conccl.")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        conccl.nothing  # noqa: B018


def test_help_is_there_at_once():
    """Processor time of the best of three runs: what the clock of an idle machine would show."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert "Usage" in run("-m", "conccl", "--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.3


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_every_module_says_what_it_is(path: Path):
    """A charter of one line that ends as a sentence or a heading does, and no longer than a line."""
    charter = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()
    assert charter, "no module docstring"
    assert charter[0].strip(), "the first line is empty"


def test_modules_have_names_that_say_what_is_in_them():
    vague = {"utils", "util", "helpers", "common", "misc", "manager", "base"}
    assert not [path for path in SOURCES if path.stem in vague]
