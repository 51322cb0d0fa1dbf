"""What tuning GEMMs found, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from conccl.tune.gemms.choice import Budget, Choice, KernelChoice
from conccl.tune.gemms.search import Tuned


def gemms_table(found: Sequence[Tuned], /, *, device: str, executor: str) -> Table:
    """A row a set: one after the other, all at once, and the best with its gain over both."""
    title = f"Independent GEMMs on {device}, {executor}: times in us"
    table = Table(title=title, box=None, title_justify="left", padding=(0, 1, 0, 0), collapse_padding=True)
    table.add_column("set", overflow="fold")
    for heading in (
        "n",
        "1 by 1",
        "at once",
        "best",
        "gain",
        "on all",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("how", no_wrap=True)
    for one in found:
        times = (one.sequential_ns, one.default_ns, one.best_ns)
        table.add_row(
            one.gemms.name,
            str(len(one.gemms)),
            *(f"{time_ns / 1e3:.1f}" for time_ns in times),
            *(f"{time_ns / one.best_ns:.2f}x" for time_ns in times[:2]),
            how(one.best),
        )
    return table


def how(choice: Choice, /) -> str:
    """How many at once, and the parts of the device that their kernels were tuned for."""
    if choice.grouped:
        return "one launch"
    kernels = "/".join(_said(kernel) for kernel in dict.fromkeys(choice.kernels))
    return f"{choice.degree} x {kernels}"


def _said(kernel: KernelChoice) -> str:
    if kernel.is_vendor:
        return "whole"
    within = " of SMs" if kernel.budget is Budget.SHARE else ""
    return f"{_PARTS[kernel.part]}{within}"


_PARTS = {2: "half", 4: "quarter", 8: "eighth"}
