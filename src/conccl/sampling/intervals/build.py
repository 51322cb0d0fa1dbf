"""The parts in C, compiled on first use into the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from conccl.core.errors import InputError

SOURCES = Path(__file__).with_name("csrc")

PARTS: dict[str, tuple[str, ...]] = {
    "agent": ("agent.c", "agent_code.c", "agent_slices.c", "agent_thunks.c", "agent_triggers.c", "x86.c"),
    "plugin": (
        "plugin.c",
        "plugin_blocks.c",
        "plugin_output.c",
        "plugin_settings.c",
        "plugin_sites.c",
        "model.c",
        "x86.c",
    ),
    "replay": ("replay.c", "model.c", "x86.c"),
}
"""Shared library -> its sources. The agent keeps out of a program's way by its name, conccl-agent-*."""

FLAGS = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-flto", "-Wall", "-Wextra")


def require_platform() -> None:
    """Refuse machines for which no part has been written."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise InputError(
            f"this is {sys.platform} on {platform.machine()}; intervals are sampled on Linux on x86_64 only."
        )


def find_compiler() -> str:
    """The C compiler: $CC, or the first of cc, gcc and clang that is there."""
    names = (os.environ["CC"],) if os.environ.get("CC") else ("cc", "gcc", "clang")
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise InputError(
        f"no C compiler ({', '.join(names)}) was found; the parts in C are built when they are first used. "
        "Install one (Debian, Ubuntu: apt install gcc libc6-dev) or name one in CC."
    )


def cache_directory() -> Path:
    """Where built parts are kept: $XDG_CACHE_HOME/conccl, or a folder for temporary files."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    for candidate in (Path(home) / "conccl", Path(tempfile.gettempdir()) / f"conccl-{os.getuid()}"):
        try:
            candidate.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(candidate, os.W_OK):
            return candidate
    raise InputError(f"neither {home} nor {tempfile.gettempdir()} can be written to. Set XDG_CACHE_HOME.")


def built(part: str, /) -> Path:
    """The shared library of a part, compiled unless these sources have been compiled before."""
    require_platform()
    digest = hashlib.sha256("\0".join((*FLAGS, *PARTS[part])).encode())
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.read_bytes())
    library = cache_directory() / f"conccl-{part}-{digest.hexdigest()[:16]}.so"
    if not library.exists():
        _compile(part, library)
    return library


def _compile(part: str, library: Path) -> None:
    compiler = find_compiler()
    with tempfile.TemporaryDirectory(dir=library.parent) as directory:
        made = Path(directory) / library.name
        command = [compiler, *FLAGS, "-o", str(made), *(str(SOURCES / name) for name in PARTS[part]), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise InputError(
                f"{compiler} could not build the {part}: {done.stderr.strip()[-600:]}\n"
                "Install the headers of the C library (Debian, Ubuntu: apt install libc6-dev linux-libc-dev)."
            )
        made.replace(library)  # at once, so that nobody loads half a library
