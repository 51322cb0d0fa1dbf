"""What each strategy brings: averages by class, every pair, and how it changes along a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conccl.bench.results import Characterization, PairResult, StrategyResult
from conccl.bench.sweep import Variation
from conccl.core.metrics import MEANINGFUL_IDEAL_SPEEDUP, PairClass
from conccl.report.blocks import (
    Block,
    Cell,
    Column,
    DataTable,
    Lines,
    Note,
    Notes,
    Section,
    Series,
    SignedBar,
    SignedBarGroup,
    SignedBars,
    Tick,
)
from conccl.report.names import shown
from conccl.report.texts import SMALL, ratio_text, settled, time_text, value_text
from conccl.workloads.pairs import op_text

MOST_PAIRS = 300

Found = Sequence[tuple[Variation, Characterization]]

_RULE = (
    "(speedup - 1) / (ideal speedup - 1): 0 is one after the other, 1 the longer side alone. Above 1: a"
    " collective by copy engines is faster than the library's, against which ideal is counted. Beside it the"
    f" median speedup. Pairs whose ideal speedup is below {MEANINGFUL_IDEAL_SPEEDUP} do not count."
)


def strategies(found: Found, /) -> Section:
    """One characterisation, or a sweep's: then the first variation in full and all of them as lines."""
    _, first = found[0]
    environment = first.environment
    how = "simulated" if environment.executor == "sim" else "measured"
    blocks: list[Block] = []
    if first.pairs:
        blocks += [_averages(first, how=how), _pairs(first, how=how)]
    if len(found) > 1:
        blocks += _sweep(found, how=how)
    notes = _notes(found)
    if notes:
        rule = "Pairs and strategies without a figure, and why."
        blocks.append(Notes(notes=notes, title="Left out", rule=rule))
    return Section(
        id="strategies",
        title="Strategies",
        lead=f"What each way to overlap brings {len(first.pairs)} pairs of computation and communication,"
        f" {how} on {environment.gpus} x {environment.device}{_first_of(found)}.",
        blocks=tuple(blocks),
    )


def _first_of(found: Found) -> str:
    name = found[0][0].name
    return f" ({name}, the first of {len(found)} variations)" if len(found) > 1 and name else ""


def _averages(found: Characterization, /, *, how: str) -> SignedBars:
    classes: list[tuple[str, PairClass | None]] = [("All pairs", None)]
    classes += [(str(class_), class_) for class_ in PairClass]
    groups = [
        _group(found, f"{label}: {count}", of=class_)
        for label, class_ in classes
        if (count := sum(1 for pair in found.pairs if class_ is None or pair.pair_class is class_))
    ]
    return SignedBars(
        title="Average fraction of ideal",
        rule=f"{_RULE} {how.capitalize()}.",
        groups=tuple(groups),
        ticks=_ticks([bar.value for group in groups for bar in group.bars if bar.value is not None]),
    )


def _ticks(values: Sequence[float], /) -> tuple[Tick, ...]:
    """From zero to ideal; half as far again to either side where there are values."""
    below = (-0.5,) if min(values, default=0.0) < -SMALL else ()
    above = (1.5,) if max(values, default=0.0) > 1 + SMALL else ()
    return tuple(Tick(value=value, label=f"{value:g}") for value in (*below, 0, 0.5, 1, *above))


def _group(found: Characterization, label: str, /, *, of: PairClass | None) -> SignedBarGroup:
    known = {name: found.average_fraction(name, of=of) for name in found.strategies}
    averages = {name: None if value is None else settled(value) for name, value in known.items()}
    best = max((value for value in averages.values() if value is not None), default=None)
    bars = []
    for name, average in averages.items():
        speedup = found.median_speedup(name, of=of)
        bars.append(
            SignedBar(
                label=name,
                value=average,
                text="-" if average is None else f"{average:.2f}",
                detail="" if speedup is None else ratio_text(speedup),
                best=average is not None and average == best,
            )
        )
    return SignedBarGroup(label=label, bars=tuple(bars))


def _pairs(found: Characterization, /, *, how: str) -> DataTable:
    names = found.strategies
    columns = (
        Column(label="Compute"),
        Column(label="Communication"),
        Column(label="Class", help="Which side is the long one"),
        Column(label="Compute alone", numeric=True),
        Column(label="Communication alone", numeric=True),
        Column(label="Ideal speedup", numeric=True),
        *(Column(label=name, numeric=True, help="Fraction of ideal, and the speedup") for name in names),
        Column(label="Where from"),
    )
    return DataTable(
        title="Every pair",
        rule=f"Fraction of ideal and speedup of every strategy, {how}; ? where it was not proved to run.",
        columns=columns,
        rows=tuple(_row(pair, names) for pair in found.pairs[:MOST_PAIRS]),
        left_out=max(0, len(found.pairs) - MOST_PAIRS),
        visible=15,
    )


def _row(pair: PairResult, names: Sequence[str], /) -> tuple[Cell, ...]:
    alone = pair.alone
    ideal = None if alone is None else alone.ideal_speedup
    compute_ns = None if alone is None else alone.compute_ns
    communication_ns = None if alone is None else alone.communication_ns
    return (
        Cell(text=op_text(pair.pair.compute), kind="compute"),
        Cell(text=op_text(pair.pair.communication), kind="communication"),
        Cell(text="-" if alone is None else str(alone.pair_class)),
        Cell(text=time_text(compute_ns), value=compute_ns),
        Cell(text=time_text(communication_ns), value=communication_ns),
        Cell(text=ratio_text(ideal), value=ideal),
        *(_cell(pair, name) for name in names),
        Cell(text=pair.pair.source),
    )


def _cell(pair: PairResult, name: str, /) -> Cell:
    result = pair.strategies.get(name)
    if result is None or result.overlap is None:
        reason = "" if result is None else result.measurement.reason
        return Cell(text="-", full=shown(reason))
    fraction = result.overlap.fraction_of_ideal
    doubt = "?" if result.measurement.proved is False else ""
    figure = "n/a" if fraction is None else f"{settled(fraction):.2f}"
    chosen = f": {result.chosen}" if result.chosen else ""
    text = f"{figure}{doubt} ({ratio_text(result.overlap.speedup)}){chosen}"
    return Cell(text=text, full=shown(_faster_text(result)), value=fraction)


def _faster_text(result: StrategyResult) -> str:
    """Why there is more than ideal; empty where there is not."""
    if result.communication_ns is None:
        return ""
    return f"communication alone takes {time_text(result.communication_ns)} by copy engines"


def _sweep(found: Found, /, *, how: str) -> list[Block]:
    """Averages of every strategy along the values that were varied."""
    values, label, is_log = axis([variation.changes for variation, _ in found])
    ticks = axis_ticks(values, [variation for variation, _ in found])
    series = _series(found, values)
    if not series:
        return []
    return [
        Lines(
            title="Average fraction of ideal along the sweep",
            rule=f"Mean over all pairs, {how}. Strategies that are equal everywhere share a line; what lies"
            " beyond the axis is drawn at its end.",
            x_label=label,
            x_ticks=ticks,
            y_ticks=_ticks([y for line in series for _, y, _ in line.points]),
            series=series,
            is_log=is_log,
        )
    ]


def axis(changes: Sequence[Mapping[str, object]], /) -> tuple[list[float], str, bool]:
    """Where each variation stands: by its value where one number was varied, else side by side."""
    fields = list(dict.fromkeys(field for each in changes for field in each))
    values = [each.get(fields[0]) for each in changes] if len(fields) == 1 else []
    numbers = [float(value) for value in values if isinstance(value, (int, float))]
    if len(numbers) < len(changes) or len(set(numbers)) < 2:
        return [float(place) for place in range(len(changes))], ", ".join(fields), False
    low, high = min(numbers), max(numbers)
    return numbers, fields[0], low > 0 and high >= 8 * low


def axis_ticks(values: Sequence[float], variations: Sequence[Variation], /) -> tuple[Tick, ...]:
    """A tick where each variation stands, with the values that were varied."""
    labels = [
        ", ".join(value_text(field, value) for field, value in variation.changes.items())
        for variation in variations
    ]
    return tuple(Tick(value=value, label=text) for value, text in sorted(zip(values, labels, strict=True)))


def _series(found: Found, values: Sequence[float], /) -> tuple[Series, ...]:
    """A line for each strategy; those with equal points are one."""
    along = sorted(zip(values, found, strict=True), key=lambda entry: entry[0])
    lines: dict[tuple[tuple[float, float, str], ...], list[str]] = {}
    for name in found[0][1].strategies:
        points = []
        for value, (variation, characterization) in along:
            average = characterization.average_fraction(name)
            if average is not None:
                average = settled(average)
                speedup = ratio_text(characterization.median_speedup(name))
                points.append((value, average, f"{variation.name}: {average:.2f} of ideal, {speedup}"))
        if points:
            lines.setdefault(tuple(points), []).append(name)
    return tuple(Series(label=", ".join(names), points=points) for points, names in lines.items())


def _notes(found: Found, /) -> tuple[Note, ...]:
    """Skipped pairs and strategies without a figure, once each."""
    reasons: dict[str, None] = {}
    for variation, characterization in found:
        where = f"{variation.name}: " if variation.name and len(found) > 1 else ""
        for skipped in characterization.skipped:
            reasons[f"{where}{skipped.source or 'a pair'}: {skipped.reason}"] = None
        for pair in characterization.pairs:
            for name, result in pair.strategies.items():
                if result.measurement.reason:
                    reasons[f"{where}{name}: {result.measurement.reason}"] = None
    return tuple(Note(level="info", title=reason) for reason in list(reasons)[:20])
