"""Times what it costs to make and to check collective fragments; prints a Markdown table.

python benchmarks/collective_fragments.py [--repeat 9]
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time

from conccl.collectives.checker import check
from conccl.collectives.choose import fragment_of
from conccl.collectives.layout import layout_of
from conccl.collectives.transfer import Transfer
from conccl.core.ops import Collective, CollectiveKind

CASES = [
    (CollectiveKind.ALL_GATHER, "direct", 8, 1),
    (CollectiveKind.ALL_GATHER, "direct", 16, 8),
    (CollectiveKind.ALL_TO_ALL, "direct", 16, 8),
    (CollectiveKind.REDUCE_SCATTER, "direct", 16, 8),
    (CollectiveKind.ALL_REDUCE, "direct", 16, 8),
    (CollectiveKind.ALL_REDUCE, "halving_doubling", 16, 8),
    (CollectiveKind.ALL_REDUCE, "hierarchical", 16, 8),
    (CollectiveKind.ALL_REDUCE, "staged", 16, 8),
    (CollectiveKind.ALL_REDUCE, "ring", 16, 8),
    (CollectiveKind.ALL_REDUCE, "direct", 64, 1),
]


def median_ms(function, *, repeat: int) -> float:
    """Median processor time of a call."""
    times = []
    for _ in range(repeat):
        begin = time.process_time()
        function()
        times.append(time.process_time() - begin)
    return 1e3 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=9)
    repeat = parser.parse_args().repeat
    print(f"Python {platform.python_version()}, {platform.machine()}, median of {repeat}, processor time\n")
    print("| collective | algorithm | ranks | chunks | tasks | steps | dependencies | make ms | check ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind, algorithm, ranks, chunks in CASES:
        layout = layout_of(Collective(kind=kind, nbytes=64 << 20, ranks=ranks))
        transfer = Transfer(chunks=chunks, gpus_per_node=8)

        def make(layout=layout, algorithm=algorithm, transfer=transfer):
            return fragment_of(layout, algorithm=algorithm, transfer=transfer)

        plan = make()
        assert check(plan, layout=layout) == ()
        waits = sum(len(task.after) for task in plan.tasks)
        made = median_ms(make, repeat=repeat)
        checked = median_ms(lambda plan=plan, layout=layout: check(plan, layout=layout), repeat=3)
        steps = len(plan.steps().task)
        print(
            f"| {kind} | {algorithm} | {ranks} | {chunks} | {len(plan.tasks)} | {steps} | {waits}"
            f" | {made:.1f} | {checked:.0f} |"
        )


if __name__ == "__main__":
    main()
