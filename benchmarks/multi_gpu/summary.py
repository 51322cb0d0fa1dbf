"""The page of a run: what came of every step, its main figures, and what was seen to run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from multi_gpu.running import Step, saved


def write_summary(folder: Path, planned: list[Step], /) -> None:
    """``summary.md``, from the files alone."""
    lines = ["# Run on several GPUs", "", "| step | status | s | reason or note |", "|---|---|---|---|"]
    known = [(step, saved(step, folder)) for step in planned]
    for step, one in known:
        if one is None:
            lines.append(f"| {step.name} | not run | | |")
        else:
            why = "; ".join(text for text in (one["reason"], one["note"]) if text).replace("|", "/")
            lines.append(f"| {step.name} | {one['status']} | {one['seconds']:.1f} | {why} |")
    for step, one in known:
        if one is None:
            continue
        try:
            body = list(_figures(step.name, one.get("result")))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            body = [f"its result cannot be read ({type(error).__name__}: {error}); see {step.name}.json"]
        if body:
            lines += ["", f"## {step.name}", "", *body]
    lines += ["", "## What ran", ""]
    for step, one in known:
        if one is not None:
            env = " ".join(f"{name}={value}" for name, value in one["env"].items())
            lines.append(
                f"- {step.name}, {one['began'][:19]} on {one['host']}: `{env} {' '.join(one['command'])}`"
            )
            lines += [f"  - {line}" for line in (one.get("proof") or [])]
    (folder / "summary.md").write_text("\n".join(lines) + "\n")


def _figures(name: str, found: Any) -> Iterator[str]:
    if not found:
        return
    if name.startswith("bench-"):
        devices = ", ".join(str(one["device"]) for one in found["devices"])
        yield f"{devices}; wrong elements: {found['out_of_bounds']}; mean {found['average_bus_bw']} GB/s"
    elif name.startswith("fused-"):
        yield from _fused(found)
    elif name.startswith("fsdp-"):
        took = statistics.median(found["seconds"]) * 1e3
        yield f"{found['device']}: {took:.2f} ms a step; losses {found['losses'][:3]}"
        yield f"seen: {', '.join(found.get('kernels', []))}"
    elif name in {"characterize", "simulated"}:
        yield f"`{json.dumps({key: found[key] for key in found if key not in {'pairs', 'skipped'}})[:1500]}`"
        yield f"{len(found['pairs'])} pairs, {len(found['skipped'])} skipped"


def _fused(found: dict[str, Any]) -> Iterator[str]:
    yield "| shape | call | serial ms | speedup over serial | left out |"
    yield "|---|---|---|---|---|"
    for row in found["rows"]:
        serial = row["seconds"].get("serial")
        shown = f"{statistics.median(serial) * 1e3:.3f}" if serial else "-"
        speeds = ", ".join(f"{way} {value:.2f}" for way, value in row["speedup_over_serial"].items())
        left = "; ".join(f"{way}: {why}" for way, why in row["left_out"].items()).replace("|", "/")
        yield f"| {row['shape']} | {row['call']} | {shown} | {speeds} | {left} |"
    for row in found["rows"]:
        for way, names in row["kernels"].items():
            yield f"- {row['shape']}, {row['call']}, {way}: {', '.join(names)}"
