"""An analysis built by hand: a run of a few ranks and steps, with every part that a report can show."""

from __future__ import annotations

import dataclasses

import numpy as np

from conccl.advise.advised import Advice
from conccl.advise.analysis import Analysis, ClockCheck, Drawing, Mark, RankAnalysis, RulesUsed
from conccl.advise.costs import costliest
from conccl.core.errors import TraceError
from conccl.core.metrics import Overlap
from conccl.core.timeline import Activity
from conccl.traces.findings import (
    CollectiveSummary,
    Contention,
    ExposedCommunication,
    OverlapEstimate,
    OverlappedRegion,
    StepSplit,
    TimeSplit,
    Unclassified,
    WindowOverlap,
)
from conccl.traces.trace import Health

MS = 1_000_000
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_128x256_64x3_tn_align8>(Params)"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
HOSTILE = (
    "</script><script>window.hacked=1</script>",
    "<!--<script>",
    '<img src=x onerror="window.hacked=2">',
    "line\u2028separator\u2029",
    "\"'`${window.hacked=3}{{7*7}}",
    "\x1b[31mred\x1b[0m\x00",
    "[bold red]markup[/]",
    "\u202egnorw\ud800",
    '=HYPERLINK("http://example.invalid")',
    "x" * 4000,
)


def split(*, compute: int, communication: int, both: int, copy: int, idle: int) -> TimeSplit:
    """A split whose parts sum to its span."""
    return TimeSplit(
        span_ns=compute + communication + both + copy + idle,
        compute_only_ns=compute,
        communication_only_ns=communication,
        both_ns=both,
        copy_only_ns=copy,
        idle_ns=idle,
    )


def estimate(*, compute: int, communication: int, concurrent: int) -> OverlapEstimate:
    """An estimate with measured isolated times."""
    overlap = Overlap(compute_ns=compute, communication_ns=communication, concurrent_ns=concurrent)
    return OverlapEstimate(overlap=overlap, source="measured", unknown_ns=0)


def drawing(*, names: tuple[str, str, str] = (GEMM, REDUCE, "Memcpy HtoD"), steps: int = 3) -> Drawing:
    """Per step of 10 ms: compute 0-6, communication 4-8, a copy 8-9, idle 9-10."""
    step_ns = 10 * MS
    starts, ends, ids, states, edges = [], [], [], [], []
    for step in range(steps):
        zero = step * step_ns
        starts += [zero, zero + 4 * MS, zero + 8 * MS]
        ends += [zero + 6 * MS, zero + 8 * MS, zero + 9 * MS]
        ids += [0, 1, 2]
        states += [0, 2, 1, 3, 4]
        edges += [zero, zero + 4 * MS, zero + 6 * MS, zero + 8 * MS, zero + 9 * MS]
    edges.append(steps * step_ns)
    return Drawing(
        window="the whole trace",
        origin_ns=1_000_000_000,
        span_ns=steps * step_ns,
        names=names,
        lanes=("stream 7", "stream 20", "stream 21"),
        start_ns=np.array(starts, dtype=np.int64),
        end_ns=np.array(ends, dtype=np.int64),
        name_id=np.array(ids, dtype=np.int32),
        lane_id=np.array(ids, dtype=np.int32),
        activity=np.array([Activity.COMPUTE, Activity.COMMUNICATION, Activity.COPY] * steps, dtype=np.int8),
        state_start_ns=np.array(edges[:-1], dtype=np.int64),
        state_end_ns=np.array(edges[1:], dtype=np.int64),
        state=np.array(states, dtype=np.int8),
        marks=tuple(
            Mark(name=f"step {step}", start_ns=step * step_ns, end_ns=(step + 1) * step_ns)
            for step in range(steps)
        ),
        left_out=0,
    )


def rank_analysis(
    rank: int = 0, /, *, concurrent: int = 8 * MS, window: str = "the whole trace"
) -> RankAnalysis:
    """One rank of three equal steps."""
    one = split(compute=4 * MS, communication=2 * MS, both=2 * MS, copy=MS, idle=MS)
    whole = split(compute=12 * MS, communication=6 * MS, both=6 * MS, copy=3 * MS, idle=3 * MS)
    steps = tuple(
        StepSplit(
            number=number,
            name=f"ProfilerStep#{number}",
            start_ns=number * 10 * MS,
            split=one,
            overlap=estimate(compute=5 * MS, communication=3 * MS, concurrent=concurrent),
            wait_ns=3 * MS,
            transfer_ns=MS,
        )
        for number in range(3)
    )
    return RankAnalysis(
        rank=rank,
        path=f"rank{rank}.json.gz",
        rank_source="distributedInfo",
        device_name="NVIDIA H200",
        window=window,
        split=whole,
        overlap=estimate(compute=15 * MS, communication=9 * MS, concurrent=3 * concurrent),
        steps=steps,
        windows=(
            WindowOverlap(
                name="forward",
                count=3,
                start_ns=0,
                span_ns=9 * MS,
                overlap=estimate(compute=5 * MS, communication=3 * MS, concurrent=concurrent),
            ),
        ),
        unattributed_ns=0,
        wait_ns=9 * MS,
        transfer_ns=3 * MS,
        kernels=9,
        kernel_ns=33 * MS,
        health=Health(rows=9, zero_rows=1),
        drawing=drawing(),
        warnings=(),
    )


def with_costs(run: Analysis, /) -> Analysis:
    """The run with its costs ranked."""
    costs = costliest(run.exposed, run.regions, ranks=len(run.ranks) or 1)
    return dataclasses.replace(run, costs=costs)


def analysis(*, ranks: int = 2, concurrent: int = 7 * MS) -> Analysis:
    """A run with something in every part of the report."""
    run = Analysis(
        paths=tuple(f"rank{rank}.json.gz" for rank in range(ranks)),
        device="NVIDIA H200",
        rules=RulesUsed(version="1", source="built in", host_copies="copy"),
        step=None,
        world_size=ranks,
        missing_ranks=(),
        ranks=tuple(rank_analysis(rank, concurrent=concurrent) for rank in range(ranks)),
        clock=ClockCheck(
            matched=3, end_spread_ns=2_000, offsets_ns=dict.fromkeys(range(ranks), 0), residual_ns=2_000
        ),
        collectives=(
            CollectiveSummary(
                name=REDUCE,
                kind="all_reduce",
                group="0",
                ranks=ranks,
                nbytes=64 << 20,
                calls=3 * ranks,
                matched=3,
                duration_ns=12 * MS,
                transfer_ns=3 * MS,
                wait_ns=9 * MS,
                skew_ns=2 * MS,
                last_rank=1,
                algbw=67e9,
                busbw=67e9,
                ctas=24,
            ),
            CollectiveSummary(
                name="ncclDevKernel_AllGather_RING_LL",
                kind="all_gather",
                group=None,
                ranks=None,
                nbytes=None,
                calls=2,
                matched=0,
                duration_ns=MS,
                transfer_ns=None,
                wait_ns=None,
                skew_ns=None,
                last_rank=None,
                algbw=None,
                busbw=None,
                ctas=None,
            ),
        ),
        contention=(
            Contention(
                rank=0,
                name=GEMM,
                side="compute",
                alone_count=3,
                alone_ns=4 * MS,
                alone_spread=0.02,
                overlapped_count=3,
                overlapped_ns=6 * MS,
                overlapped_spread=0.1,
                overlapped_share=0.9,
                slowdown=1.55,
                excess_ns=6 * MS,
                ctas=24,
                waits=False,
            ),
            Contention(
                rank=0,
                name=REDUCE,
                side="communication",
                alone_count=0,
                alone_ns=None,
                alone_spread=None,
                overlapped_count=3,
                overlapped_ns=4 * MS,
                overlapped_spread=0.3,
                overlapped_share=0.5,
                slowdown=None,
                excess_ns=None,
                ctas=24,
                waits=True,
            ),
        ),
        regions=(
            OverlappedRegion(
                rank=0,
                step=1,
                start_ns=14 * MS,
                count=3,
                concurrent_ns=concurrent,
                compute=(GEMM, "gelu"),
                communication=(REDUCE,),
                compute_ns=5 * MS,
                communication_ns=concurrent - MS,
                source="measured",
                unknown_ns=0,
                cost_ns=concurrent - 5 * MS,
            ),
            OverlappedRegion(
                rank=1,
                step=None,
                start_ns=4 * MS,
                count=1,
                concurrent_ns=2 * MS,
                compute=("gelu",),
                communication=(REDUCE,),
                compute_ns=None,
                communication_ns=None,
                source="unknown",
                unknown_ns=2 * MS,
                cost_ns=None,
            ),
        ),
        exposed=(
            ExposedCommunication(
                rank=1,
                step=2,
                name=REDUCE,
                calls=2,
                exposed_ns=2 * MS,
                wait_ns=MS // 2,
                coverable_ns=2 * MS,
                start_ns=26 * MS,
                stretch_ns=3 * MS // 2,
                before=GEMM,
                after="gelu",
                candidate="layer_norm",
                candidate_ns=MS,
                evidence="launched after it and finished before it",
            ),
        ),
        unclassified=(Unclassified(name="my_kernel", count=3, duration_ns=MS, share=0.03),),
        advice=(
            Advice(title="Move host copies to the copy engines", detail="They take no SMs.", cost_ns=2 * MS),
        ),
        warnings=("rank 1: 3 rows overlap on one stream; clipped",),
        problems=(
            TraceError(path="bad.json", problem="is empty", remedy="Export the trace again.", place="byte 0"),
        ),
    )
    return with_costs(run)


def hostile_analysis() -> Analysis:
    """The same where every text from the trace is an attack."""
    run = analysis()
    script, comment, image, separators, quotes, escape, markup, override, formula, long = HOSTILE
    ranks = tuple(
        dataclasses.replace(
            rank,
            path=image,
            device_name=script,
            window=comment,
            warnings=(script,),
            drawing=dataclasses.replace(
                drawing(names=(script, image, separators)),
                window=quotes,
                lanes=(comment, quotes, override),
                marks=(Mark(name=script, start_ns=0, end_ns=10 * MS),),
            ),
            steps=tuple(dataclasses.replace(step, name=script) for step in rank.steps),
            windows=tuple(dataclasses.replace(window, name=script) for window in rank.windows),
        )
        for rank in run.ranks
    )
    hostile = dataclasses.replace(
        run,
        paths=HOSTILE,
        device=script,
        ranks=ranks,
        collectives=tuple(
            dataclasses.replace(run.collectives[0], name=name, kind=None, group=name) for name in HOSTILE
        ),
        contention=tuple(dataclasses.replace(run.contention[0], name=name) for name in HOSTILE),
        regions=tuple(
            dataclasses.replace(run.regions[0], compute=(name, markup), communication=(escape, name))
            for name in HOSTILE
        ),
        exposed=tuple(
            dataclasses.replace(run.exposed[0], name=name, before=name, after=name, candidate=name)
            for name in HOSTILE
        ),
        unclassified=tuple(Unclassified(name=name, count=1, duration_ns=MS, share=0.01) for name in HOSTILE),
        advice=(
            Advice(title=markup, detail=formula, cost_ns=None),
            Advice(title=script, detail=long, cost_ns=1),
        ),
        warnings=HOSTILE,
        problems=(TraceError(path=image, problem=script, remedy=markup),),
    )
    return with_costs(hostile)
