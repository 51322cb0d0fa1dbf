"""Reading and analysing profiler traces, beside HTA: time, processor time and memory of whole processes.

    python benchmarks/trace_reader.py TRACE.json.gz --runs 5 --gigabyte --output RESULTS.json

TRACE is copied to 8, 16 and 32 ranks (its rank field changed) and to one trace of more than 1 GB. HTA runs in
an environment of its own, made like this:

    python -m venv .bench-venv
    .bench-venv/bin/pip install HolisticTraceAnalysis==0.5.0 'pandas<3'

Runs alternate, so that both meet the same noise; one run of each goes before and is not counted. Both may
keep compiled bytecode, as installed programs do. Memory is the greatest sum, over the moments sampled, of the
resident sets of all processes that were started; pages that they share count for each.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HTA = """
import sys, warnings
warnings.simplefilter("ignore")
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1])
overlap = analysis.get_comm_comp_overlap(visualize=False)
analysis.get_temporal_breakdown(visualize=False)
print(overlap.to_json(orient="records"))
"""
RANK = re.compile(rb'("distributedInfo": \{"backend": "nccl", "rank": )\d+(, "world_size": )\d+')
NUMBERS = re.compile(rb'("ts": |"correlation": |"id": |"External id": )(\d+)')
PEERS = ("hta", "conccl")
SAMPLE_S = 0.02
PAGE = resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--ranks", type=int, nargs="*", default=[8, 16, 32])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--hta-python", default=".bench-venv/bin/python")
    parser.add_argument("--hta-ranks", type=int, nargs="*", default=[8], help="Where HTA runs too.")
    parser.add_argument("--gigabyte", action="store_true", help="Also one trace of more than 1 GB unpacked.")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    text = gzip.decompress(arguments.trace.read_bytes())
    report: dict[str, Any] = {"machine": machine(), "trace": arguments.trace.name, "runs": []}
    with tempfile.TemporaryDirectory() as folder:
        for ranks in arguments.ranks:
            traces = copies(text, Path(folder) / str(ranks), ranks=ranks)
            peers = PEERS if ranks in arguments.hta_ranks else PEERS[1:]
            for run in range(-(ranks == arguments.ranks[0]), arguments.runs):
                for peer in peers:
                    result = measure(command(peer, traces, arguments.hta_python))
                    check(peer, result.pop("output"), ranks=ranks)
                    if run >= 0:
                        note(report, {"peer": peer, "case": f"{ranks} ranks", "run": run, **result})
        if arguments.gigabyte:
            traces = gigabyte(text, Path(folder) / "large")
            for run in range(arguments.runs):
                result = measure(command("conccl", traces, ""))
                result.pop("output")
                note(report, {"peer": "conccl", "case": "one trace above 1 GB", "run": run, **result})
    report["medians"] = medians(report["runs"])
    print(json.dumps(report["medians"], indent=1))
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")


def note(report: dict[str, Any], result: dict[str, Any]) -> None:
    report["runs"].append(result)
    print(json.dumps(result), file=sys.stderr, flush=True)


def copies(text: bytes, folder: Path, *, ranks: int) -> Path:
    """The trace once a rank; all but the part that holds the rank is packed once."""
    folder.mkdir()
    found = RANK.search(text)
    assert found is not None, "the trace says no rank"
    end = found.end()
    rest = gzip.compress(text[end:], 6)
    for rank in range(ranks):
        head = RANK.sub(rb"\g<1>%d\g<2>%d" % (rank, ranks), text[:end])
        (folder / f"rank-{rank}.json.gz").write_bytes(gzip.compress(head) + rest)
    return folder


def gigabyte(text: bytes, folder: Path) -> Path:
    """One trace of the events again and again, later each time, with numbers of their own."""
    folder.mkdir()
    start = text.index(b"[", text.index(b'"traceEvents"')) + 1
    end = text.rindex(b"]")
    times = 1 + (1 << 30) // (end - start)
    path = folder / "large.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(text[:start])
        for again in range(times):
            shift = again * 10_000_000
            events = NUMBERS.sub(lambda match: match[1] + b"%d" % (int(match[2]) + shift), text[start:end])  # noqa: B023
            file.write((b"," if again else b"") + events)
        file.write(text[end:])
    return path


def command(peer: str, traces: Path, hta_python: str) -> list[str]:
    if peer == "hta":
        return [hta_python, "-c", HTA, str(traces)]
    return [sys.executable, "-m", "conccl", "analyze", str(traces), "--format", "json"]


def check(peer: str, output: str, *, ranks: int) -> None:
    """Both must have found the known answer: all ranks, nothing hidden; we also the time of communication."""
    found = json.loads(output.splitlines()[-1] if peer == "hta" else output)
    if peer == "hta":
        assert [row["comp_comm_overlap_pctg"] for row in found] == [0.0] * ranks, found
        return
    assert len(found["ranks"]) == ranks
    for rank in found["ranks"]:
        assert (rank["communication_only_ns"], rank["both_ns"]) == (357_343_000, 0), rank


def measure(words: list[str]) -> dict[str, Any]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    output = tempfile.TemporaryFile("w+")  # noqa: SIM115 (read below, gone with the function)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(words, stdout=output, stderr=subprocess.DEVNULL, env=environment)
    peak = processes = samples = 0
    while process.poll() is None:
        sizes = [memory(pid) for pid in tree(process.pid)]
        peak = max(peak, sum(sizes))
        processes = max(processes, len(sizes))
        samples += 1
        time.sleep(SAMPLE_S)
    wall = time.perf_counter() - began
    output.seek(0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert process.returncode == 0, f"{words[0]} ended with {process.returncode}"
    return {
        "wall_s": round(wall, 3),
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 3),
        "peak_mib": peak >> 20,
        "processes": processes,
        "samples": samples,
        "load": os.getloadavg()[0],
        "output": output.read(),
    }


def tree(root: int) -> Iterator[int]:
    """The process and all below it."""
    yield root
    try:
        for thread in Path(f"/proc/{root}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from tree(int(child))
    except OSError:
        return


def memory(pid: int) -> int:
    """Resident bytes of a process; none where it has just ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for case in dict.fromkeys(run["case"] for run in runs):
        for peer in PEERS:
            of_both = [run for run in runs if run["case"] == case and run["peer"] == peer]
            if of_both:
                found.setdefault(case, {})[peer] = {
                    key: statistics.median(run[key] for run in of_both)
                    for key in ("wall_s", "cpu_s", "peak_mib", "processes")
                }
        both = found[case]
        if "hta" in both:
            hta, ours = (
                [run for run in runs if (run["case"], run["peer"]) == (case, peer)] for peer in PEERS
            )
            both["median ratio of paired runs"] = {
                key: round(statistics.median(a[key] / b[key] for a, b in zip(hta, ours, strict=True)), 2)
                for key in ("wall_s", "cpu_s", "peak_mib")
            }
    return found


def machine() -> dict[str, Any]:
    names = re.findall(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return {
        "cpu": names[0] if names else platform.processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "system": platform.system(),
    }


if __name__ == "__main__":
    main()
