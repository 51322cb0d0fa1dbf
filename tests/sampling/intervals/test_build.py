"""The parts in C: built on first use in the user's cache folder, with a clear word where they cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from conccl.core.errors import InputError
from conccl.sampling.intervals import build
from phased_program import require


@pytest.mark.parametrize("part", sorted(build.PARTS))
def test_a_part_is_built_once_in_the_cache_folder(cache: Path, part: str) -> None:
    require("cc")
    library = build.built(part)
    assert library.parent == cache / "conccl"
    assert build.SOURCES not in library.parents
    before = library.stat().st_mtime_ns
    assert build.built(part).stat().st_mtime_ns == before


def test_without_a_compiler_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"no C compiler.*apt install gcc"):
        build.built("replay")


def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "broken-cc"
    compiler.write_text("#!/bin/sh\necho 'fatal error: stdint.h: gone' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"(?s)stdint\.h: gone.*libc6-dev"):
        build.built("replay")
    assert not list((tmp_path / "conccl").glob("*.so"))


def test_other_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.platform, "machine", lambda: "aarch64")
    with pytest.raises(InputError, match=r"aarch64.*Linux on x86_64 only"):
        build.require_platform()
