"""How long the simulator takes for what it promises.

    python benchmarks/simulator_speed.py

Commands run as processes of their own; the median of five, start included.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

PAIRS = Path(__file__).parent / "pairs/conccl_mi300x.json"

LLAMA = ("simulate", "llama3-70b", "--tp", "8", "--length", "8192", "--device", "h200-sxm")

COMMANDS: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    ("characterize 30 pairs x 7 strategies", 5, ("characterize", str(PAIRS), "--device", "mi300x")),
    ("Llama-3-70B, 1,024 GPUs", 10, (*LLAMA, "--fsdp", "128")),
    ("Llama-3-70B, 100,000 GPUs", 60, (*LLAMA, "--fsdp", "250", "--dp", "50")),
    ("GPT-3, 99,968 GPUs, 8 pipeline stages", 60,
     ("simulate", "gpt3-175b", "--tp", "8", "--pp", "8", "--fsdp", "1562", "--microbatches", "64", "--length",
      "2048", "--device", "h200-sxm")),
)  # fmt: skip

RUNS = 5


def once(words: tuple[str, ...]) -> tuple[float, float, float]:
    """Wall time and processor time in s, and the largest resident set in MiB."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "conccl", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"conccl {' '.join(words)} failed")
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    """Print the table of the report."""
    print("| what | goal s | wall s | processor s | MiB |\n|---|---|---|---|---|")
    for title, goal, words in COMMANDS:
        runs = [once(words) for _ in range(RUNS)]
        wall, busy, memory = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"| {title} | {goal:g} | {wall:.2f} | {busy:.2f} | {memory:.0f} |", flush=True)


if __name__ == "__main__":
    main()
