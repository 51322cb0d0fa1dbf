"""A run's lengths and statistics from files, the SeqPoints chosen from them, and other rules beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from conccl.core.errors import InputError, UnknownNameError
from conccl.sampling.baselines import Baseline, pick
from conccl.sampling.logs import IterationLog, read_log, with_statistics
from conccl.sampling.seqpoint import Projection, Selection, project, select


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What was chosen, by which statistic, and what as many iterations picked by other rules project."""

    run: IterationLog
    statistic: str
    selection: Selection
    baselines: tuple[tuple[Baseline, Projection], ...]
    simulated_on: str | None = None
    """The device whose simulated times it was chosen by; None: times of a log."""


TOKENS = "tokens"
"""A statistic that every log has: the sum of an iteration's lengths."""


def study(
    log: Path, /, *, statistics: Path | None = None, choose_by: str | None = None, error_percent: float = 1.0
) -> Study:
    """Choose iterations of a log; statistics come by length from a second file, or from the log's columns."""
    run = run_of(log, statistics=statistics)
    if not run.statistics and choose_by != TOKENS:
        raise InputError(
            f"{log} has no statistic beside the length. Give --stat FILE (length,time_ms), or --by {TOKENS}."
        )
    return study_run(run, choose_by=choose_by, error_percent=error_percent)


def run_of(log: Path, /, *, statistics: Path | None = None, lengths: Sequence[str] = ()) -> IterationLog:
    """A log with the statistics that a second file has by length."""
    run = read_log(log, lengths=lengths)
    return run if statistics is None else with_statistics(run, statistics, lengths=lengths)


def study_run(run: IterationLog, /, *, choose_by: str | None = None, error_percent: float = 1.0) -> Study:
    """Choose iterations of a run by one of its statistics, the first one unless said, or by its tokens."""
    if choose_by == TOKENS and TOKENS not in run.statistics:
        tokens = run.length.sum(axis=1).astype(np.float64)
        run = replace(run, statistics={TOKENS: tokens, **run.statistics})
    statistic = next(iter(run.statistics)) if choose_by is None else choose_by
    if statistic not in run.statistics:
        raise UnknownNameError(kind="statistic", name=statistic, known=run.statistics)
    if (run.statistics[statistic] < 0).any():
        row = int(np.argmax(run.statistics[statistic] < 0))
        raise InputError(
            f"iteration {run.iteration[row]}: {statistic} is {run.statistics[statistic][row]:g}."
            " What is projected is never negative."
        )
    selection = select(run, statistic=statistic, error_percent=error_percent)
    return Study(
        run=run,
        statistic=statistic,
        selection=selection,
        baselines=tuple(
            (rule, _projected(run, rule, count=len(selection.seqpoints), statistic=statistic))
            for rule in Baseline
        ),
    )


def _projected(run: IterationLog, rule: Baseline, *, count: int, statistic: str) -> Projection:
    points = pick(run, baseline=rule, count=count, statistic=statistic)
    distinct = run.distinct()
    values = {
        tuple(int(size) for size in length): float(value)
        for length, value in zip(distinct.length, distinct.statistics[statistic], strict=True)
    }
    actual = float(distinct.count @ distinct.statistics[statistic])
    return Projection(statistic=statistic, projected=project(points, values=values), actual=actual)
