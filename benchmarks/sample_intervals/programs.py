"""The programs of the simulation-point study, with inputs that are the same on every machine."""

from __future__ import annotations

import math
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CC1 = next(iter(sorted(Path("/usr/lib/gcc/x86_64-linux-gnu").glob("*/cc1"))), Path("cc1"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A single-threaded program of Debian with arguments of one to four billion instructions."""

    name: str
    package: str
    argv: tuple[str, ...]


def programs(directory: Path, /) -> list[Program]:
    """Write the inputs into the directory and name the programs that are installed here."""
    directory.mkdir(parents=True, exist_ok=True)

    def made(name: str, make: Callable[[], bytes]) -> Path:
        path = directory / name
        if not path.exists():
            path.write_bytes(make())
        return path

    def mixed(millions: int) -> Path:
        return made(f"mixed{millions}", lambda: mixed_bytes(nbytes=millions * 1_000_000, seed=millions))

    source = made("big.c", lambda: c_source(functions=160, seed=2))
    sound = made("sound.wav", lambda: wave(seconds=30, seed=5))
    image = made("picture.ppm", lambda: picture(width=420, height=300, seed=6))
    commands = {
        "gzip": ("gzip", f"gzip -6 -c {mixed(12)}"),
        "bzip2": ("bzip2", f"bzip2 -c {mixed(9)}"),
        "xz": ("xz-utils", f"xz -T1 -2 -c {mixed(10)}"),
        "zstd": ("zstd", f"zstd --single-thread --no-asyncio -q -9 -c {mixed(14)}"),
        "cc1": ("gcc", f"{CC1} -quiet -O2 {source} -o /dev/null"),
        "python3": ("python3", f"/usr/bin/python3 -S {HERE / 'work.py'}"),
        "perl": ("perl", f"perl {HERE / 'work.pl'}"),
        "sqlite3": ("sqlite3", "sqlite3 :memory:"),
        "lua": ("lua5.4", f"lua5.4 {HERE / 'work.lua'}"),
        "gawk": ("gawk", f"gawk -f {HERE / 'work.awk'}"),
        "bc": ("bc", f"bc -l -q {HERE / 'work.bc'}"),
        "flac": ("flac", f"flac -s -8 -f -c {sound}"),
        "convert": (
            "imagemagick",
            f"/usr/bin/convert-im6.q16 -limit thread 1 {image} "
            "-resize 160% -blur 0x2 -rotate 7 -quality 85 jpg:-",
        ),
    }
    extra = {"sqlite3": (f".read {HERE / 'work.sql'}",)}
    wanted = [
        Program(name=name, package=package, argv=(*command.split(), *extra.get(name, ())))
        for name, (package, command) in commands.items()
    ]
    return [program for program in wanted if shutil.which(program.argv[0])]


def mixed_bytes(*, nbytes: int, seed: int) -> bytes:
    """Runs of prose, numbers, binary records, noise and zeros, as an archive of real files has them."""
    rng = random.Random(seed)
    letters, likely = "etaoinshrdlucmfwypvbgkjqxz", [1 / (1 + i) for i in range(26)]
    words = ["".join(rng.choices(letters, likely, k=rng.randint(2, 10))) for _ in range(4000)]
    weights = [1 / (1 + i) for i in range(len(words))]
    kinds: dict[str, Callable[[int], bytes]] = {
        "prose": lambda size: " ".join(rng.choices(words, weights, k=size // 6)).encode(),
        "table": lambda size: "\n".join(
            f"{i},{rng.random():.4f},{rng.randint(0, 99)}" for i in range(size // 20)
        ).encode(),
        "records": lambda size: b"".join(
            struct.pack("<IHHd", i, i % 7, rng.randint(0, 500), i * 0.5) for i in range(size // 16)
        ),
        "noise": lambda size: rng.randbytes(size // 3),
        "zeros": bytes,
    }
    out = bytearray()
    while len(out) < nbytes:
        kind = rng.choices(list(kinds), (5, 3, 2, 1, 1))[0]
        out += kinds[kind](rng.randint(100_000, 600_000))
    return bytes(out[:nbytes])


def c_source(*, functions: int, seed: int) -> bytes:
    """A C file without includes, of functions whose loops, switches and types differ."""
    rng = random.Random(seed)
    lines = []
    for i in range(functions):
        fields = rng.randint(2, 9)
        values = ", ".join(str(rng.randint(0, 99)) for _ in range(fields))
        lines.append(f"struct s{i} {{ int a[{fields}]; double d; struct s{max(0, i - 1)} *p; }};")
        lines.append(f"static int t{i}[{fields}] = {{ {values} }};")
        body = [f"int f{i}(int x, int *y, struct s{i} *s) {{ int t = {i};"]
        body += [_statement(rng, number=i, fields=fields) for _ in range(rng.randint(1, 4))]
        if i:
            body.append(f"t += f{rng.randint(max(0, i - 3), i - 1)}(x - 1, y, (void *)s->p);")
        lines.append("\n  ".join([*body, "return t; }"]))
    return ("\n".join(lines) + "\n").encode()


def _statement(rng: random.Random, *, number: int, fields: int) -> str:
    kind = rng.randint(0, 3)
    if kind == 0:
        return (
            f"for (int k = 0; k < x; k++) {{ t += y[k] * {rng.randint(2, 99)}; "
            f"if (t & {1 << rng.randint(0, 9)}) t ^= k; else s->a[k % 2] += t; }}"
        )
    if kind == 1:
        cases = " ".join(
            f"case {c}: t {rng.choice(('+=', '^=', '-='))} {rng.randint(1, 99)}; break;"
            for c in range(rng.randint(3, 12))
        )
        return f"switch (t % {rng.randint(3, 12)}) {{ {cases} default: t = -t; }}"
    if kind == 2:
        return (
            f"for (int k = 0; k < {fields}; k++) s->d = s->d * {rng.random():.3f} + t{number}[k] / (1.0 + k);"
        )
    return f"while (t > {rng.randint(9, 99)}) t = t / {rng.randint(2, 5)} + y[t & 7];"


def wave(*, seconds: float, seed: int) -> bytes:
    """Two channels of tones, noise and silence, 44.1 kHz, 16 bits."""
    rng = random.Random(seed)
    rate, frames = 44_100, bytearray()
    pitch, noise, loud = 220.0, 0.0, 0.0
    for i in range(int(rate * seconds)):
        if i % 22_050 == 0:
            pitch, noise = rng.choice((110.0, 220.0, 330.0, 440.0, 1245.0)), rng.choice((0.0, 0.02, 0.3))
            loud = rng.choice((0.0, 0.3, 0.6))
        left = loud * math.sin(2 * math.pi * pitch * i / rate) + noise * (rng.random() - 0.5)
        right = loud * math.sin(2 * math.pi * pitch * 1.5 * i / rate)
        frames += struct.pack("<hh", int(20_000 * left), int(20_000 * right))
    sizes = (16, 1, 2, rate, 4 * rate, 4, 16)
    form = struct.pack("<4sI4s4s", b"RIFF", 36 + len(frames), b"WAVE", b"fmt ") + struct.pack(
        "<IHHIIHH", *sizes
    )
    return form + struct.pack("<4sI", b"data", len(frames)) + bytes(frames)


def picture(*, width: int, height: int, seed: int) -> bytes:
    """Patterns and noise in three colours, as PPM."""
    rng = random.Random(seed)
    rows = bytearray()
    for y in range(height):
        for x in range(width):
            n = rng.randrange(32)
            rows += bytes(((x * y // 97 + n) % 256, (x + 2 * y) % 256, ((x ^ y) + n) % 256))
    return f"P6 {width} {height} 255\n".encode() + bytes(rows)
