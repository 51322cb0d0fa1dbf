"""The analyses that one page shows, each with the label that tells it from the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conccl.advise.analysis import Analysis
from conccl.report.texts import device_line, window_text


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """One analysis and its label; the label is empty where it stands alone."""

    label: str
    analysis: Analysis

    @property
    def described(self) -> str:
        """Label, ranks and devices."""
        text = device_line(self.analysis)
        return f"{self.label}: {text}" if self.label else text

    @property
    def window(self) -> str:
        """Which rows and time the figures are about."""
        text = window_text(self.analysis)
        return f"{self.label}: {text}" if self.label else text


def runs_of(analyses: Analysis | Mapping[str, Analysis], /) -> tuple[Run, ...]:
    """One analysis alone, or several under their labels."""
    if isinstance(analyses, Analysis):
        return (Run(label="", analysis=analyses),)
    if len(analyses) == 1:
        return tuple(Run(label="", analysis=analysis) for analysis in analyses.values())
    return tuple(Run(label=label, analysis=analysis) for label, analysis in analyses.items())


def windows(runs: tuple[Run, ...], /) -> str:
    """The windows of all runs as one sentence; said once where they agree."""
    texts = dict.fromkeys(window_text(run.analysis) for run in runs)
    if len(texts) == 1:
        return f"Window: {next(iter(texts))}."
    return "Windows: " + "; ".join(run.window for run in runs) + "."
