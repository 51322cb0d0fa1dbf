"""A sweep in a terminal: a row for each variation, averages of every strategy along it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from conccl.bench.results import Characterization
from conccl.bench.sweep import Variation
from conccl.report.characterization import skipped_lines
from conccl.report.names import shown
from conccl.report.pair_table import averaged_of, head_text
from conccl.report.texts import heading_lines, ratio_text, settled, value_text


def render_characterizations(found: Sequence[tuple[Variation, Characterization]], /) -> RenderableType:
    """Mean fraction of ideal above median speedup, by variation and strategy."""
    _, first = found[0]
    how = "simulated" if first.environment.executor == "sim" else "measured"
    fields = list(dict.fromkeys(field for variation, _ in found for field in variation.changes))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for field in fields:
        table.add_column(heading_lines(field), justify="right", vertical="bottom", no_wrap=True)
    for name in first.strategies:
        table.add_column(head_text(name), justify="right", vertical="bottom", no_wrap=True)
    for variation, one in found:
        table.add_row(
            *(f"{value_text(field, variation.changes[field])}\n" for field in fields),
            *(_cell(one, name) for name in first.strategies),
        )
    where = f"{first.environment.gpus} x {first.environment.device}, {how}"
    parts: list[RenderableType] = [
        Text(f"Mean over {_count(first)} on {where}", style="bold"),
        table,
        Text(
            "Upper figure: fraction of ideal, (speedup - 1) / (ideal speedup - 1). Lower: median speedup."
            " --html draws it, --format json has every pair.",
            style="dim",
        ),
    ]
    return Group(*parts, *averaged_of(first), *_left_out(found))


def _cell(found: Characterization, name: str) -> Text:
    average = found.average_fraction(name)
    upper = "-" if average is None else f"{settled(average):.2f}"
    return Text.assemble(upper, "\n", (ratio_text(found.median_speedup(name)), "dim"))


def _count(found: Characterization) -> str:
    return f"{len(found.pairs)} pair{'' if len(found.pairs) == 1 else 's'}"


def _left_out(found: Sequence[tuple[Variation, Characterization]]) -> list[Text]:
    """Skipped pairs and strategies without a figure, once each."""
    reasons: dict[str, None] = {}
    for _, one in found:
        reasons |= dict.fromkeys(skipped_lines(one))
        for pair in one.pairs:
            for name, result in pair.strategies.items():
                if result.measurement.reason:
                    reasons[f"{name}: {result.measurement.reason}"] = None
    return [Text(shown(reason), style="yellow") for reason in reasons]
