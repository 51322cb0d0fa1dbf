"""The decoder's lengths and kinds, against another disassembler over whole programs."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

from conccl.sampling.intervals.build import FLAGS, SOURCES
from phased_program import require


class Insn(ctypes.Structure):
    """struct x86_insn."""

    _fields_ = [
        ("length", ctypes.c_uint),
        ("kind", ctypes.c_int),
        ("displacement", ctypes.c_int64),
        ("displacement_size", ctypes.c_uint),
    ]


KINDS = (
    "plain", "multiply", "divide", "float", "float_divide", "jump", "branch", "call", "return",
    "jump_indirect", "call_indirect", "system", "state", "repeat",
)  # fmt: skip


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    require("cc")
    made = tmp_path_factory.mktemp("x86") / "x86.so"
    flags = [flag for flag in FLAGS if flag not in {"-fvisibility=hidden", "-flto"}]
    subprocess.run(["cc", *flags, "-o", made, SOURCES / "x86.c"], check=True)
    library = ctypes.CDLL(str(made))
    library.x86_decode.restype = Insn
    library.x86_decode.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return library


def decode(decoder: ctypes.CDLL, code: str) -> Insn:
    raw = bytes.fromhex(code)
    result = decoder.x86_decode(raw, len(raw))
    assert isinstance(result, Insn)
    return result


@pytest.mark.parametrize("path", ["/bin/gzip", "/bin/bash", "/lib/x86_64-linux-gnu/libm.so.6"])
def test_lengths_agree_with_objdump(decoder: ctypes.CDLL, path: str) -> None:
    require("objdump")
    if not Path(path).exists():
        pytest.skip(f"{path} is not installed")
    command = ["objdump", "-d", "--section=.text", "--insn-width=16", path]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seen, wrong = 0, []
    for line in listing.splitlines():
        parts = line.split("\t")
        if (
            len(parts) < 3
            or "(bad)" in parts[2]
            or re.match(r"(data16|cs|rex|repz?|lock|\.byte)\b", parts[2])
        ):
            continue
        raw = bytes.fromhex(parts[1].replace(" ", ""))
        if raw[0] == 0x9B:
            continue  # fwait, which objdump shows together with the instruction behind it
        seen += 1
        if decoder.x86_decode(raw, len(raw)).length != len(raw):
            wrong.append(line.strip())
    assert seen > 10_000
    assert not wrong[:5]


@pytest.mark.parametrize(
    ("code", "kind", "length"),
    [
        ("90", "plain", 1),
        ("f390", "system", 2),  # pause
        ("0f05", "system", 2),  # syscall
        ("c3", "return", 1),
        ("f3c3", "return", 2),
        ("e800010000", "call", 5),
        ("e9fbffffff", "jump", 5),
        ("ebfe", "jump", 2),
        ("0f84f0ffffff", "branch", 6),
        ("7510", "branch", 2),
        ("ffd0", "call_indirect", 2),
        ("ff2500000000", "jump_indirect", 6),
        ("480fafc1", "multiply", 4),
        ("48f7f1", "divide", 3),
        ("f20f58c1", "float", 4),  # addsd
        ("f20f5ec1", "float_divide", 4),  # divsd
        ("c5f35ec2", "float_divide", 4),  # vdivsd
        ("c4e2f1b8c2", "float", 5),  # vfmadd231pd
        ("f3a4", "repeat", 2),  # rep movsb
        ("0fae38", "state", 3),  # clflush
        ("48b80102030405060708", "plain", 10),
        ("66c7000102", "plain", 5),
        ("c744240801000000", "plain", 8),
        ("f6c101", "plain", 3),  # test cl, 1
        ("62f17c48580500000000", "float", 10),  # vaddps zmm0, zmm0, [rip]
    ],
)
def test_kinds(decoder: ctypes.CDLL, code: str, kind: str, length: int) -> None:
    insn = decode(decoder, code)
    assert (KINDS[insn.kind], insn.length) == (kind, length)


def test_displacements(decoder: ctypes.CDLL) -> None:
    assert decode(decoder, "e9fbffffff").displacement == -5
    assert decode(decoder, "0f8400010000").displacement == 256
    assert decode(decoder, "ebfe").displacement == -2
    assert decode(decoder, "90").displacement_size == 0


@pytest.mark.parametrize("code", ["", "06", "e80001", "0f", "48", "0f38", "c4", "d6", "66" * 16])
def test_what_is_no_whole_instruction_has_no_length(decoder: ctypes.CDLL, code: str) -> None:
    assert decode(decoder, code).length == 0
