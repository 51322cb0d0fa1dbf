"""All that is to be measured on several GPUs of one host, by one command that goes on where it stopped.

    python benchmarks/multi_gpu.py --output multi-gpu                     # 2 GPUs, under 8 minutes
    python benchmarks/multi_gpu.py --output dry-run --dry-run             # the same steps on CPUs, tiny
    python benchmarks/multi_gpu.py --output multi-gpu --only simulated    # some steps; the page is made anew

Every step is a process with a time limit, and its result a file (``STEP.json``) as soon as it ends. A step
that fails, hangs or cannot be done here is a line with its reason, and the others go on. ``summary.md`` says
what came out and what was seen to run. NVLink multicast is kept off.

Not yet run on several GPUs.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from multi_gpu.running import carried_out
from multi_gpu.steps import steps
from multi_gpu.summary import write_summary


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--device", default="h200-sxm")
    parser.add_argument("--minutes", type=float, default=7.5, help="what all steps together may take")
    parser.add_argument("--only", default="", help="steps whose names begin with one of these, with commas")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes, CPU processes, the simulator")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    planned = steps(asked.output.resolve(), gpus=asked.gpus, device=asked.device, dry=asked.dry_run)
    wanted = tuple(name for name in asked.only.split(",") if name)
    chosen = [one for one in planned if not wanted or one.name.startswith(wanted)]
    if not chosen:
        print(f"no step is called {asked.only!r}; there are {', '.join(one.name for one in planned)}")
        return 2
    until = time.monotonic() + 60 * asked.minutes
    for step in chosen:
        outcome = carried_out(step, folder=asked.output, until=until)
        print(f"{step.name:32} {outcome['status']:12} {outcome['seconds']:6.1f} s  {outcome['reason']}")
        sys.stdout.flush()
        write_summary(asked.output, planned)
    return 0


if __name__ == "__main__":
    sys.exit(main())
