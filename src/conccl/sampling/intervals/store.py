"""The output folder of a sample: what is kept of it, and what an interrupted call had finished."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from conccl.core.errors import InputError, OutputError
from conccl.sampling.intervals.markers import Marker, Site, SiteKind
from conccl.sampling.intervals.native import Slices, load_slices, save_slices
from conccl.sampling.intervals.program import Ended
from conccl.sampling.intervals.translate.qemu import BlockProfile

T = TypeVar("T")
N = TypeVar("N", int, float)

_STATE = "state.json"
_SLICES = "slices.npz"
_PROFILE = "profile.json"
VECTORS = "program.bb"


class Store:
    """A folder that the user named, or one for temporary files.

    Opened for a fingerprint of all that decides the result: what an earlier call left there is used again
    only if it was opened for the same.
    """

    def __init__(self, folder: Path | None, /, *, fingerprint: str) -> None:
        self.named = folder is not None
        try:
            self.folder = folder if folder is not None else Path(tempfile.mkdtemp(prefix="conccl-sample-"))
            self.folder.mkdir(parents=True, exist_ok=True)
            self._open(fingerprint)
        except OSError as error:
            raise OutputError(
                f"cannot write to {folder}: {error.strerror}. Give a folder that you may write to."
            ) from error

    def _open(self, fingerprint: str) -> None:
        state = self.folder / _STATE
        if state.exists() and state.read_text(encoding="utf-8") == fingerprint:
            return
        for name in (_SLICES, _PROFILE, VECTORS):
            (self.folder / name).unlink(missing_ok=True)
        state.write_text(fingerprint, encoding="utf-8")

    @property
    def vectors(self) -> Path:
        """Where basic-block vectors lie."""
        return self.folder / VECTORS

    def slices(self, make: Callable[[], Slices], /) -> tuple[Slices, bool]:
        """The native profile, made unless it is there; and whether it was."""
        return self._kept(_SLICES, make=make, save=save_slices, load=load_slices)

    def profile(self, make: Callable[[], BlockProfile], /) -> tuple[BlockProfile, bool]:
        """The translated profile, made unless it is there; and whether it was."""
        return self._kept(_PROFILE, make=make, save=_save_profile, load=_load_profile)

    def _kept(
        self,
        name: str,
        *,
        make: Callable[[], T],
        save: Callable[[T, Path], None],
        load: Callable[[Path], T],
    ) -> tuple[T, bool]:
        path = self.folder / name
        if path.exists():
            return load(path), True
        made = make()
        begun = path.with_suffix(".part")
        save(made, begun)
        begun.replace(path)  # whole or not at all
        return made, False

    def write_points(self, weights: Mapping[int, float], /) -> None:
        """`points.simpoints` and `points.weights`, the text files that simulators read; none without weights.

        Simulators count intervals of equal instructions from the start of the program, from 0.
        """
        if not weights:
            return
        simpoints = "".join(f"{interval} {i}\n" for i, interval in enumerate(weights))
        shares = "".join(f"{weight:.9f} {i}\n" for i, weight in enumerate(weights.values()))
        (self.folder / "points.simpoints").write_text(simpoints, encoding="ascii")
        (self.folder / "points.weights").write_text(shares, encoding="ascii")

    def finish(self) -> int:
        """Drop what only an interrupted call would need; bytes that are left."""
        for name in (_STATE, _SLICES, _PROFILE):
            (self.folder / name).unlink(missing_ok=True)
        nbytes = sum(file.stat().st_size for file in self.folder.iterdir() if file.is_file())
        if not self.named:
            shutil.rmtree(self.folder, ignore_errors=True)
        return nbytes


def read_points(simpoints: Path, weights: Path, /) -> list[tuple[int, float]]:
    """Interval and weight of each point, from the two text files of this or another tool."""
    shares = {label: weight for weight, label in _pairs(weights, number=float)}
    chosen = _pairs(simpoints, number=int)
    missing = [label for _, label in chosen if label not in shares]
    if missing:
        raise InputError(f"{weights} has no weight for cluster {missing[0]} of {simpoints}.")
    return [(interval, shares[label]) for interval, label in chosen]


def _pairs(path: Path, *, number: Callable[[str], N]) -> list[tuple[N, int]]:
    """A number and a cluster a line."""
    try:
        rows = [line.split() for line in path.read_text(encoding="ascii").splitlines() if line.strip()]
        return [(number(value), int(label)) for value, label in rows]
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: {error}. Each line is a number and a cluster, as SimPoint writes."
        ) from error


def _save_profile(profile: BlockProfile, path: Path) -> None:
    bounds = [
        None if bound is None else [bound.site.path, bound.site.pc, bound.site.kind.value, bound.count]
        for bound in profile.bounds
    ]
    kept = {
        "vectors": str(profile.path),
        "bounds": bounds,
        "instructions": profile.instructions,
        "forks": profile.forks,
        "wall_ns": profile.ended.wall_ns,
        "cpu_ns": profile.ended.cpu_ns,
    }
    path.write_text(json.dumps(kept), encoding="utf-8")


def _load_profile(path: Path) -> BlockProfile:
    kept = json.loads(path.read_text(encoding="utf-8"))
    return BlockProfile(
        path=path.parent / Path(kept["vectors"]).name,
        bounds=tuple(
            bound and Marker(site=Site(path=bound[0], pc=bound[1], kind=SiteKind(bound[2])), count=bound[3])
            for bound in kept["bounds"]
        ),
        instructions=kept["instructions"],
        forks=kept["forks"],
        ended=Ended(wall_ns=kept["wall_ns"], cpu_ns=kept["cpu_ns"]),
    )
