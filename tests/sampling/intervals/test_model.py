"""The cycle model: caches, predictors and costs, by what they count."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator

import pytest

from conccl.sampling.intervals.build import FLAGS, SOURCES
from conccl.sampling.intervals.windows import COUNTERS
from phased_program import require

DRIVER = """
#include "model.h"
#include <string.h>

static struct model_block blocks[64];

void add(unsigned number, unsigned long pc, const unsigned char *code, unsigned size) {
    struct model_block *block = &blocks[number];
    memset(block, 0, sizeof *block);
    for (unsigned at = 0; at < size;) {
        struct x86_insn insn = x86_decode(code + at, size - at);
        model_block_add(block, pc + at, insn);
        at += insn.length;
    }
}
void run(struct model *model, unsigned number) { model_execute(model, &blocks[number]); }
"""
LINE = 64


class Machine:
    """The model behind a small driver."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._model = ctypes.c_void_p(library.model_new())

    def close(self) -> None:
        self._library.model_free(self._model)

    def block(self, number: int, pc: int, code: str) -> None:
        raw = bytes.fromhex(code)
        self._library.add(number, ctypes.c_ulong(pc), raw, len(raw))

    def run(self, *numbers: int) -> None:
        for number in numbers:
            self._library.run(self._model, number)

    def load(self, address: int, size: int = 8) -> None:
        self._library.model_access(self._model, ctypes.c_uint64(address), ctypes.c_uint64(size), 0)

    def store(self, address: int) -> None:
        self._library.model_access(self._model, ctypes.c_uint64(address), ctypes.c_uint64(8), 1)

    def counted(self) -> dict[str, int]:
        counters = self._library.model_counters(self._model)
        return {name: counters[i] for i, name in enumerate(COUNTERS)}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    require("cc")
    folder = tmp_path_factory.mktemp("model")
    (folder / "driver.c").write_text(DRIVER)
    flags = [flag for flag in FLAGS if flag not in {"-fvisibility=hidden", "-flto"}]
    sources = [folder / "driver.c", SOURCES / "model.c", SOURCES / "x86.c"]
    made = folder / "model.so"
    subprocess.run(["cc", *flags, f"-I{SOURCES}", "-o", made, *sources], check=True)
    loaded = ctypes.CDLL(str(made))
    loaded.model_new.restype = ctypes.c_void_p
    loaded.model_counters.restype = ctypes.POINTER(ctypes.c_uint64)
    return loaded


@pytest.fixture
def machine(library: ctypes.CDLL) -> Iterator[Machine]:
    made = Machine(library)
    yield made
    made.close()


def test_a_line_misses_once(machine: Machine) -> None:
    for address in (0x1000, 0x1008, 0x1030, 0x1000):
        machine.load(address)
    counted = machine.counted()
    assert (counted["loads"], counted["l1d_misses"], counted["l2_misses"], counted["cycles"]) == (
        4,
        1,
        1,
        120,
    )


def test_an_access_across_two_lines_misses_in_both(machine: Machine) -> None:
    machine.load(LINE - 4)
    assert machine.counted()["l1d_misses"] == 2


def test_what_fits_the_first_level_stays_there(machine: Machine) -> None:
    lines = 32 * 1024 // LINE
    for _ in range(3):
        for line in range(lines):
            machine.load(line * LINE)
    assert machine.counted()["l1d_misses"] == lines


def test_one_line_more_than_a_set_has_ways_always_misses(machine: Machine) -> None:
    for _ in range(5):
        for way in range(9):  # 8 ways, least recently used goes
            machine.load(way * 64 * LINE)
    counted = machine.counted()
    assert counted["l1d_misses"] == 45
    assert counted["l2_misses"] == 9
    assert counted["cycles"] == 9 * 120 + 36 * 12


def test_a_store_waits_for_a_quarter(machine: Machine) -> None:
    machine.store(0x1000)
    assert machine.counted()["cycles"] == 30


def test_a_loop_is_predicted_but_for_its_start(machine: Machine) -> None:
    machine.block(0, 0x400000, "75fe")  # a branch to itself
    machine.run(*[0] * 1001)
    counted = machine.counted()
    assert counted["branches"] == 1000
    assert counted["branch_misses"] < 20  # until 14 bits of history are all ones


def test_calls_return_to_where_they_came_from(machine: Machine) -> None:
    machine.block(0, 0x400000, "e8fb000000")  # call 0x400100
    machine.block(1, 0x400100, "c3")
    machine.block(2, 0x400005, "ebf9")  # back to the call
    machine.run(*[0, 1, 2] * 50)
    counted = machine.counted()
    assert (counted["calls"], counted["branch_misses"]) == (50, 0)


def test_returns_deeper_than_the_stack_are_guessed_wrong(machine: Machine) -> None:
    depth = 20  # of a return stack of 16
    for level in range(depth):
        machine.block(level, 0x400000 + 16 * level, "e80b000000")  # call 16 bytes on
        machine.block(32 + level, 0x400005 + 16 * level, "c3")
    machine.run(*range(depth))
    machine.block(31, 0x400000 + 16 * depth, "c3")
    machine.run(31, *(32 + level for level in reversed(range(depth))))
    assert machine.counted()["branch_misses"] == depth - 16


def test_costs_of_operations(machine: Machine) -> None:
    machine.block(0, 0x400000, "480fafc148f7f1f20f58c1f20f5ec190")
    machine.run(0)
    counted = machine.counted()
    fetched = 120  # one line of code, from memory
    assert counted["cycles"] - fetched == 5 + 2 + 20 + 2 + 12
    assert (counted["multiplies"], counted["divides"], counted["floats"]) == (1, 1, 2)


def test_a_repeated_instruction_counts_once(machine: Machine) -> None:
    machine.block(0, 0x400000, "90f3a4")
    machine.block(1, 0x400001, "f3a4")  # as a translator comes back for the next element
    machine.run(0, *[1] * 30)
    assert machine.counted()["instructions"] == 2
