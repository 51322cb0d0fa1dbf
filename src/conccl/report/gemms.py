"""What tuning GEMMs found, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from conccl.core.units import format_ns
from conccl.tune.gemms.choice import Budget, Choice
from conccl.tune.gemms.search import Tuned


def gemms_table(found: Sequence[Tuned], /, *, device: str, executor: str) -> Table:
    """A row a set: one after the other, all at once, and the best with its gain over both."""
    table = Table(title=f"Independent GEMMs on {device}, {executor}", box=None, title_justify="left")
    for heading in ("set", "GEMMs"):
        table.add_column(heading)
    for heading in ("sequential", "all at once", "best", "over seq.", "over all"):
        table.add_column(heading, justify="right")
    table.add_column("how")
    for one in found:
        table.add_row(
            one.gemms.name,
            str(len(one.gemms)),
            format_ns(round(one.sequential_ns)),
            format_ns(round(one.default_ns)),
            format_ns(round(one.best_ns)),
            f"{one.sequential_ns / one.best_ns:.2f}x",
            f"{one.default_ns / one.best_ns:.2f}x",
            how(one.best),
        )
    return table


def how(choice: Choice, /) -> str:
    """A choice in words."""
    if choice.grouped:
        return "one grouped launch"
    kernels = dict.fromkeys(choice.kernels)
    parts = "/".join(
        f"1/{kernel.part}{' in budget' if kernel.budget is Budget.SHARE else ''}"
        if kernel.part > 1
        else "vendor"
        for kernel in kernels
    )
    at_once = "one by one" if choice.degree == 1 else f"{choice.degree} at once"
    return f"{at_once}, {parts}"
