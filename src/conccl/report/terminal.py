"""An analysis on one screen: where time goes, what communication waits for, what contention costs.

Bounded to 80 columns and about 40 lines, whatever the number of ranks. Names are put in as plain text
objects, never as console markup.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from conccl.advise.advised import Remedy
from conccl.advise.analysis import Analysis, RankAnalysis
from conccl.core.units import format_bandwidth, format_bytes, format_ns, format_share
from conccl.report.names import short, shown
from conccl.report.palette import PALETTE
from conccl.report.texts import (
    PREDICTED,
    device_line,
    fraction_text,
    headline_ranks,
    is_predicted,
    mean_or_none,
    range_text,
    window_text,
)
from conccl.traces.findings import CollectiveSummary, Contention, OverlapCost, OverlappedRegion

MOST_RANKS = 8
MOST_ROWS = 3
MOST_WARNINGS = 2
MOST_ADVICE = 2
MOST_LINES_OF_ADVICE = 3
"""Those and the remedies of the costliest overlaps together."""
COSTLIEST = 3


def render_terminal(analysis: Analysis, /) -> RenderableType:
    """The summary of an analysis, ending with the three overlaps that cost most and what they cost."""
    parts: list[RenderableType] = [_header(analysis)]
    parts += _problems(analysis)
    if analysis.ranks:
        parts.append(_split(analysis))
        parts += _predicted(analysis)
        parts.append(_waiting(analysis))
    if analysis.collectives:
        parts.append(_collectives(analysis.collectives))
    if any(contention.slowdown is not None for contention in analysis.contention):
        parts.append(_contention(analysis.contention))
    parts += _advice(analysis)
    parts.append(_costliest(analysis))
    return Group(*parts)


def _header(analysis: Analysis) -> RenderableType:
    return Group(
        Text(device_line(analysis), style="bold"),
        Text(window_text(analysis), style="dim", no_wrap=True, overflow="ellipsis"),
    )


def _problems(analysis: Analysis) -> list[RenderableType]:
    """Files that could not be read and warnings, the first few of each."""
    lines = [Text(f"not read: {_clipped(str(problem))}", style="red") for problem in analysis.problems]
    lines += [Text(f"warning: {_clipped(warning)}", style="yellow") for warning in analysis.warnings]
    more = len(lines) - MOST_WARNINGS
    shown_lines: list[RenderableType] = list(lines[:MOST_WARNINGS])
    if more > 0:
        shown_lines.append(Text(f"and {more} more (see the page or the JSON)", style="dim"))
    return shown_lines


def _table(*columns: str, title: str, left: Iterable[str] = ()) -> Table:
    """A table whose columns are numbers, save those named in ``left``."""
    table = Table(
        box=None, pad_edge=False, padding=(0, 1), title=Text(title, style="bold"), title_justify="left"
    )
    for column in columns:
        if column in set(left):
            table.add_column(column, overflow="ellipsis", no_wrap=True, ratio=1)
        else:
            table.add_column(column, justify="right", no_wrap=True)
    return table


def _split(analysis: Analysis) -> Table:
    table = _table(
        "rank",
        "span",
        "compute\nonly",
        "commu-\nnication\nonly",
        "both",
        "copy\nonly",
        "idle",
        "hidden\ncommuni-\ncation",
        "fraction\nof ideal",
        title="Where time goes (share of the span)",
    )
    for rank in headline_ranks(analysis, most=MOST_RANKS):
        table.add_row(*_split_row(rank))
    left_out = len(analysis.ranks) - MOST_RANKS
    if left_out > 0:
        table.caption = Text(
            f"the {MOST_RANKS} ranks with most exposed communication; {left_out} more", style="dim"
        )
        table.caption_justify = "left"
    return table


def _predicted(analysis: Analysis) -> list[RenderableType]:
    """What the mark of predicted figures means, where there is one, and how far off they may be."""
    rank = next((rank for rank in analysis.ranks if is_predicted(rank.overlap)), None)
    if rank is None or rank.predictions is None:
        return []
    span = range_text(rank.overlap)
    return [
        Text(
            f"{PREDICTED} rests on isolated times predicted for {shown(rank.predictions.device or '')}"
            + (f": {span} on rank {rank.rank}" if span else ""),
            style="dim",
        )
    ]


def _split_row(rank: RankAnalysis) -> list[Text]:
    split = rank.split

    def share(part_ns: int, kind: str) -> Text:
        if not split.span_ns:
            return Text("-")
        return Text(format_share(part_ns / split.span_ns), style=PALETTE[kind].terminal if part_ns else "dim")

    return [
        Text(str(rank.rank)),
        Text(format_ns(split.span_ns)),
        share(split.compute_only_ns, "compute"),
        share(split.communication_only_ns, "communication"),
        share(split.both_ns, "both"),
        share(split.copy_only_ns, "copy"),
        share(split.idle_ns, "idle"),
        Text(format_share(split.hidden_share)),
        Text(fraction_text(rank.overlap), style="bold"),
    ]


def _waiting(analysis: Analysis) -> Text:
    """Waiting against transfer, in one line; why not, where they are not known."""
    wait = mean_or_none(rank.wait_ns for rank in analysis.ranks)
    transfer = mean_or_none(rank.transfer_ns for rank in analysis.ranks)
    if wait is None or transfer is None:
        reason = "one rank" if len(analysis.ranks) == 1 else "no collective matched across ranks"
        return Text(f"Waiting against transfer: not known ({reason})", style="dim")
    share = wait / (wait + transfer) if wait + transfer else None
    return Text.assemble(
        "Communication, mean over ranks: ",
        (f"{format_ns(wait)} waiting ({format_share(share)})", "bold"),
        ", ",
        (f"{format_ns(transfer)} transfer", "bold"),
    )


def _collectives(collectives: tuple[CollectiveSummary, ...]) -> Table:
    table = _table(
        "collective",
        "size",
        "calls",
        "time",
        "wait",
        "transfer",
        "busbw",
        "CTAs",
        title=f"Collectives (calls of all ranks; times summed, mean over ranks{_more(collectives)})",
        left=("collective",),
    )
    for collective in collectives[:MOST_ROWS]:
        table.add_row(
            Text(short(collective.kind or collective.name, width=24)),
            "-" if collective.nbytes is None else format_bytes(collective.nbytes),
            str(collective.calls),
            format_ns(collective.duration_ns),
            _ns(collective.wait_ns),
            _ns(collective.transfer_ns),
            "-" if collective.busbw is None else format_bandwidth(collective.busbw),
            "-" if collective.ctas is None else str(collective.ctas),
        )
    return table


def _contention(contentions: tuple[Contention, ...]) -> Table:
    known = [contention for contention in contentions if contention.slowdown is not None]
    ranks = len({contention.rank for contention in known}) > 1
    table = _table(
        "kernel",
        "side",
        *(["rank"] if ranks else []),
        "alone",
        "overlapped",
        "slowdown",
        "lost",
        title=f"Contention, measured in the trace{_more(known)}",
        left=("kernel",),
    )
    for contention in known[:MOST_ROWS]:
        table.add_row(
            Text(short(contention.name, width=24 if ranks else 30)),
            Text(
                short(contention.side, width=8), style=PALETTE.get(contention.side, PALETTE["idle"]).terminal
            ),
            *(["all" if contention.rank is None else str(contention.rank)] if ranks else []),
            _ns(contention.alone_ns),
            format_ns(contention.overlapped_ns),
            f"{contention.slowdown:.2f}x",
            _ns(contention.excess_ns),
        )
    return table


def _advice(analysis: Analysis) -> list[RenderableType]:
    lines: list[RenderableType] = []
    # What was simulated stands beside its overlap.
    measured = [advice for advice in analysis.advice if advice.remedy is None]
    for advice in measured[: min(MOST_ADVICE, MOST_LINES_OF_ADVICE - len(_remedies(analysis)))]:
        cost = "" if advice.cost_ns is None else f" ({format_ns(advice.cost_ns)})"
        line = Text(f"Advice: {shown(advice.title)}{cost}", style="cyan", no_wrap=True, overflow="ellipsis")
        lines.append(line)
    return lines


def _costliest(analysis: Analysis) -> RenderableType:
    rule = Rule(Text("The overlaps that cost most", style="bold"), align="left", style="dim")
    if not analysis.costs:
        return Group(rule, Text(_why_no_cost(analysis), style="dim"))
    remedies = _remedies(analysis)
    lines = [_cost(place, cost, remedies.get(place)) for place, cost in enumerate(analysis.costs[:COSTLIEST])]
    return Group(rule, *lines)


def _remedies(analysis: Analysis) -> dict[int, Remedy]:
    """By the place of the cost that they are about: those that surely gain."""
    return {remedy.place: remedy for remedy in analysis.remedies if remedy.best is not None}


def _cost(place: int, cost: OverlapCost, remedy: Remedy | None) -> Text:
    worst = cost.worst
    if isinstance(worst, OverlappedRegion):
        what, joined = f"lost, fraction of ideal {fraction_text(worst)}", "beside"
    else:
        what, joined = f"could be covered in {worst.calls} call{'s' if worst.calls > 1 else ''}", "after"
    line = Text.assemble(
        f"{place + 1}. ",
        (f"{PREDICTED if cost.source == 'predicted' else ''}{format_ns(cost.cost_ns)}", "bold"),
        f" a rank {what}; most on rank {worst.rank}",
        "" if worst.step is None else f", step {worst.step}",
        "\n   ",
        (short(cost.communication, width=32), PALETTE["communication"].terminal),
    )
    if cost.compute:
        line.append(f" {joined} ").append(short(cost.compute, width=32), PALETTE["compute"].terminal)
    if remedy is not None:
        line.append(
            f"\n   {remedy.best} would save {format_ns(remedy.gain_ns)} ± {format_ns(remedy.uncertainty_ns)}"
            " (simulated)",
            "cyan",
        )
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _why_no_cost(analysis: Analysis) -> str:
    if not analysis.ranks:
        return "No rank could be read."
    if not any(rank.split.communication_ns for rank in analysis.ranks):
        return "There is no communication in these traces."
    if not any(rank.split.both_ns for rank in analysis.ranks):
        return "Communication and compute never ran together, so all of it is exposed."
    reason = next((rank.predictions.reason for rank in analysis.ranks if rank.predictions), "")
    predicted = f" Nothing is predicted: {shown(reason)}." if reason else ""
    return f"No kernel that ran under overlap also ran alone here, so its cost is not known.{predicted}"


def _more(rows: tuple[object, ...] | list[Contention]) -> str:
    return f"; {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else ""


def _clipped(sentence: str) -> str:
    """A sentence of two lines at most."""
    sentence = shown(sentence)
    return sentence if len(sentence) <= 150 else f"{sentence[:149]}…"


def _ns(time_ns: int | None) -> str:
    return "-" if time_ns is None else format_ns(time_ns)
