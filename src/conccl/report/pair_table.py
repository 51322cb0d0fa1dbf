"""Pairs by strategies in a terminal: two lines a pair, as many strategies side by side as there is room for.

The upper line of a row has computation, its time alone and fractions of ideal; the lower one communication,
its time alone and speedups. Strategies that find no room follow in a block of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from conccl.bench.results import Characterization, PairResult, StrategyResult
from conccl.core.measurement import Status
from conccl.core.metrics import PairClass
from conccl.core.units import format_ns
from conccl.report.names import shown
from conccl.report.texts import ratio_text, settled
from conccl.workloads.pairs import op_text

NARROWEST = 20
"""Characters that the ops' column keeps before strategies go to a further block."""

GAPS = (2, 1)
"""Blanks between columns: the fewer ones where they save a block."""

_HEADS = {
    "baseline": "base-\nline",
    "prioritized": "prio",
    "partitioned": "part",
    "prioritized_partitioned": "prio\n+part",
    "ce_trimmed": "ce\ntrim",
    "chunked": "chunk",
    "nccl_zero": "nccl\nzero",
}
"""Short headings; other names are their own."""

_MEANINGS = {
    "prio": "prioritized",
    "part": "partitioned",
    "ce": "copy engine",
    "trim": "GEMM on fewer SMs",
    "chunk": "chunked",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One cell: its lines, and whether it is the row's best."""

    upper: str
    lower: str
    best: bool = False

    @property
    def width(self) -> int:
        return max(len(self.upper), len(self.lower))

    def text(self) -> Text:
        return Text.assemble((self.upper, "bold" if self.best else ""), "\n", (self.lower, "dim"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    upper: str
    lower: str
    times: _Entry
    ideal: _Entry
    cells: tuple[_Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTable:
    """Every pair of a characterisation by every strategy, as wide as the terminal allows."""

    found: Characterization

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Blocks of strategies, each with all pairs, their averages below."""
        names = _columns(self.found)
        groups = [(title, [_row(pair, names) for pair in pairs]) for title, pairs in _groups(self.found)]
        averages = _averages(self.found, names)
        rows = [row for _, each in groups for row in each] + averages
        layouts = [(_blocks(names, rows, width=options.max_width, gap=gap), gap) for gap in GAPS]
        blocks, gap = min(layouts, key=lambda layout: len(layout[0]))
        for columns in blocks:
            yield _block(names, columns, groups, averages, gap=gap)
        yield Text(_legend(names), style="dim")
        yield from averaged_of(self.found)


def averaged_of(found: Characterization, /) -> list[Text]:
    """Which strategies' averages are over fewer pairs than others'."""
    counts = {name: len(found.fractions(name)) for name in found.strategies}
    most = max(counts.values(), default=0)
    fewer = [f"{name} over {count}" for name, count in counts.items() if count < most]
    if not fewer:
        return []
    return [Text(f"Means of fractions are over {most} pairs, but {', '.join(fewer)}.", style="dim")]


def _columns(found: Characterization) -> tuple[str, ...]:
    """The strategies to show: serial, by which all others are counted, only where it tells anything."""
    others = tuple(name for name in found.strategies if name != "serial")
    trivial = all(abs(fraction) < 0.005 for fraction in found.fractions("serial"))
    return others if others and trivial else found.strategies


def _groups(found: Characterization) -> Iterator[tuple[str, list[PairResult]]]:
    for class_ in (None, *PairClass):
        pairs = [pair for pair in found.pairs if pair.pair_class is class_ and pair.alone is not None]
        if pairs:
            yield str(class_), pairs


def _row(pair: PairResult, names: Sequence[str]) -> _Row:
    alone = pair.alone
    assert alone is not None  # others are skipped
    fractions = {name: _fraction(pair.strategies.get(name)) for name in names}
    best = max((value for value in fractions.values() if value is not None), default=None)
    return _Row(
        upper=shown(op_text(pair.pair.compute)),
        lower=shown(op_text(pair.pair.communication)),
        times=_Entry(upper=format_ns(alone.compute_ns), lower=format_ns(alone.communication_ns)),
        ideal=_Entry(upper="1.00", lower=ratio_text(alone.ideal_speedup)),
        cells=tuple(
            _cell(pair.strategies.get(name), best=fractions[name] is not None and fractions[name] == best)
            for name in names
        ),
    )


def _fraction(result: StrategyResult | None) -> float | None:
    if result is None or result.overlap is None or result.overlap.fraction_of_ideal is None:
        return None
    return settled(result.overlap.fraction_of_ideal)


def _cell(result: StrategyResult | None, *, best: bool) -> _Entry:
    if result is None or result.overlap is None:
        status = Status.UNSUPPORTED if result is None else result.measurement.status
        return _Entry(upper="-" if status in (Status.OK, Status.UNSUPPORTED) else str(status), lower="")
    fraction = _fraction(result)
    doubt = "?" if result.measurement.proved is False else ""
    return _Entry(
        upper=("n/a" if fraction is None else f"{fraction:.2f}") + doubt,
        lower=ratio_text(result.overlap.speedup),
        best=best,
    )


def _averages(found: Characterization, names: Sequence[str]) -> list[_Row]:
    classes = [class_ for class_ in PairClass if any(pair.pair_class is class_ for pair in found.pairs)]
    return [_average(found, names, of=class_) for class_ in (*(classes if len(classes) > 1 else ()), None)]


def _average(found: Characterization, names: Sequence[str], *, of: PairClass | None) -> _Row:
    pairs = [pair for pair in found.pairs if of is None or pair.pair_class is of]
    ideals = [pair.alone.ideal_speedup for pair in pairs if pair.alone and pair.alone.ideal_speedup]
    averages = [found.average_fraction(name, of=of) for name in names]
    best = max((average for average in averages if average is not None), default=None)
    cells = [
        _Entry(
            upper="-" if average is None else f"{settled(average):.2f}",
            lower=ratio_text(found.median_speedup(name, of=of)),
            best=average is not None and average == best,
        )
        for name, average in zip(names, averages, strict=True)
    ]
    what = f"{len(pairs)} {of}" if of else "1 pair" if len(pairs) == 1 else f"all {len(pairs)} pairs"
    return _Row(
        upper=f"mean of {what}",
        lower="median speedup",
        times=_Entry(upper="", lower=""),
        ideal=_Entry(upper="1.00", lower=ratio_text(median(ideals) if ideals else None)),
        cells=tuple(cells),
    )


def _blocks(names: Sequence[str], rows: Sequence[_Row], *, width: int, gap: int) -> list[list[int]]:
    """Which strategies stand side by side: as many as leave the ops enough room."""
    left = max([NARROWEST, *(len(text) for row in rows for text in (row.upper, row.lower))])
    times = max([5, *(row.times.width for row in rows)])
    room = width - min(left, max(NARROWEST, width // 3)) - (times + gap) - (5 + gap)
    blocks: list[list[int]] = [[]]
    used = 0
    for index, name in enumerate(names):
        needed = gap + max(
            *(len(line) for line in head_text(name).split("\n")), *(row.cells[index].width for row in rows)
        )
        if blocks[-1] and used + needed > room:
            blocks.append([])
            used = 0
        blocks[-1].append(index)
        used += needed
    return blocks


def _block(
    names: Sequence[str],
    columns: Sequence[int],
    groups: Sequence[tuple[str, list[_Row]]],
    averages: Sequence[_Row],
    *,
    gap: int,
) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    table.add_column("", vertical="bottom", overflow="fold")
    table.add_column("alone", justify="right", no_wrap=True, vertical="bottom")
    table.add_column("ideal", justify="right", no_wrap=True, vertical="bottom")
    for index in columns:
        table.add_column(head_text(names[index]), justify="right", no_wrap=True, vertical="bottom")
    for title, rows in (*groups, ("", averages)):
        if title:
            table.add_row(Text(title, style="bold"))
        for row in rows:
            table.add_row(
                Text.assemble(row.upper, "\n", row.lower),
                row.times.text(),
                row.ideal.text(),
                *(row.cells[index].text() for index in columns),
            )
        table.add_row()
    return table


def head_text(name: str, /) -> str:
    """A strategy's short heading, in lines."""
    word, colon, number = name.partition(":")
    return f"{_HEADS.get(word, word)}\n:{number}" if colon else _HEADS.get(word, word)


def _legend(names: Sequence[str]) -> str:
    heads = " ".join(head_text(name) for name in names).replace("\n", " ").replace("+", " ").split()
    words = [f"{short}: {long}" for short, long in _MEANINGS.items() if short in heads]
    upper = (
        "Upper figure: fraction of ideal, (speedup - 1) / (ideal speedup - 1). Lower: speedup over serial."
    )
    return "\n".join([upper, *([", ".join(words) + "."] if words else [])])
