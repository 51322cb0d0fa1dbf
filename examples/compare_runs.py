"""Analyse several runs and show them side by side: in the terminal, and on one page.

    python compare_runs.py report.html "SM kernels=overlap_step/sm.pt.trace.json.gz" \
        "copy engines=overlap_step/ce.pt.trace.json.gz"

Each run is a label and a trace (or a folder of one run's traces). Host copies count as communication.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

import conccl
from conccl.report.comparison import render_comparison
from conccl.report.html import write_html


def main() -> int:
    """Analyse, print, write the page; 2 where an input cannot be used."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=Path, help="the HTML file to write")
    parser.add_argument("runs", nargs="+", metavar="LABEL=TRACE")
    parser.add_argument("--title", default="Overlap, run beside run")
    arguments = parser.parse_args()
    try:
        runs = dict(_analysis(run) for run in arguments.runs)
        write_html(runs, path=arguments.page, title=arguments.title)
    except conccl.InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    Console().print(render_comparison(runs))
    print(f"\nThe page: {arguments.page}")
    return 0


def _analysis(run: str) -> tuple[str, conccl.Analysis]:
    label, _, path = run.partition("=")
    if not path:
        raise conccl.InputError(f"{run!r} is no run. Give a label and a trace: 'SM kernels=sm.json.gz'.")
    return label, conccl.analyze([path], host_copies="communication")


if __name__ == "__main__":
    sys.exit(main())
