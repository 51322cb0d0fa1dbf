"""Tables of one machine: isolated times, slowdowns against SMs, and what sides cost each other together.

A file of tables is JSON (``.gz`` where its name says so) under the schema of `SCHEMA`. Those of this
machine lie in the user's cache, those of known devices come with the package and are simulated; a table of
another version of the schema or of the device is refused, never guessed at.
"""

from __future__ import annotations

import gzip
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from conccl.bench.executors import device_digest, settings_of
from conccl.core.errors import InputError, StoreError
from conccl.core.files import write_file
from conccl.core.hardware import Device
from conccl.core.measurement import Environment

SCHEMA = "conccl.tables/1"

SHIPPED = Path(__file__).parent / "shipped"

Floats = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Equally spaced points; what lies outside takes the value at the end."""

    first: float
    step: float
    count: int

    def points(self) -> Floats:
        """All of them, in order."""
        return tuple(self.first + self.step * index for index in range(self.count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Time of a communication alone against its size, for each way of carrying it out; base-2 logarithms."""

    kind: str
    ranks: int
    ways: tuple[str, ...]
    """``library``, ``ce`` ..., or ``sms:N``: a kernel on N SMs."""
    log_ns: tuple[Floats, ...]
    """By way, then by size (the axis ``sizes`` of the tables)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """Time of computation on so many SMs less, over that on all of them, by node of `Tables.nodes`."""

    sms: int
    factors: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Time together over what slowdowns alone explain, for one kind of communication by one strategy."""

    kind: str
    strategy: str
    factors: tuple[Floats, ...]
    """By node, then by ratio of communication to computation (the axis ``ratios``)."""
    spread: float
    """Root mean square of the relative error on computations that the factors were not made from."""
    spreads: Floats
    """The same by node, of the computations around it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """What was measured on one machine, condensed."""

    environment: Environment
    gemm_axes: tuple[Axis, ...]
    """Base-2 logarithms of m, n and k."""
    gemm: Floats
    """Base-2 logarithm of a GEMM's time over its roof's; k changes fastest, then n."""
    memory_excess: float
    """Time of elementwise computation over its roof's."""
    compute_excess: float
    """The same of computation that its operations bound and that is no GEMM."""
    sizes: Axis
    """Base-2 logarithm of bytes."""
    hbm_shares: Axis
    """How much of its time a computation keeps memory busy."""
    waves: Axis
    """Base-2 logarithm of waves."""
    ratios: Axis
    """Base-2 logarithm of communication's time over computation's."""
    curves: tuple[Curve, ...]
    slowdowns: tuple[Slowdown, ...]
    stretches: tuple[Stretch, ...]
    schema: str = SCHEMA

    @property
    def is_simulated(self) -> bool:
        """Whether a simulator made them."""
        return self.environment.executor == "sim"

    @property
    def nodes(self) -> int:
        """Points of the plane of memory share and waves."""
        return self.hbm_shares.count * self.waves.count


def write_tables(path: Path, tables: Tables, /) -> None:
    """Write them as JSON, compressed where the name ends in .gz."""
    write_file(path, [msgspec.json.encode(tables)])


def read_tables(path: Path, /) -> Tables:
    """The tables of a file; an error says what is wrong with it and what to do."""
    remedy = "Make them anew with `conccl tune tables --device NAME --output FILE`."
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise StoreError(f"cannot read tables {path}: {error}. {remedy}") from error
    try:
        head = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        schema = msgspec.json.decode(head.get("schema", b"null"))
        if schema != SCHEMA:
            raise StoreError(f"{path} holds no tables of this version ({SCHEMA}) but {schema!r}. {remedy}")
        return msgspec.json.decode(content, type=Tables)
    except msgspec.MsgspecError as error:
        raise StoreError(f"{path} holds no tables: {error}. {remedy}") from error


def own_path(device: str, /) -> Path:
    """Where this machine's tables are kept: ``$CONCCL_TABLES``, or the user's cache."""
    folder = os.environ.get("CONCCL_TABLES")
    if folder:
        return Path(folder) / f"{device}.json"
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "conccl" / "tables" / f"{device}.json"


def shipped_path(device: str, /) -> Path:
    """Where the package has tables of a known device."""
    return SHIPPED / f"{device}.json.gz"


def find_tables(device: Device, /) -> Tables:
    """This machine's tables of the device, else the shipped ones; an error where neither fits it.

    Measured tables hold whatever the catalogue says; simulated ones of one's own only for the very numbers
    that were simulated, shipped ones for the device as the catalogue has it.
    """
    own, shipped = own_path(device.name), shipped_path(device.name)
    if own.exists():
        tables = read_tables(own)
        if not tables.is_simulated or tables.environment.versions.get("device") == device_digest(device):
            return tables
    if shipped.exists() and not settings_of(device):
        return read_tables(shipped)
    raise InputError(
        f"no tables for {device.name} with these numbers. Measure them:"
        f" conccl tune tables --device {device.name}."
    )
