"""An analysis as the JSON document that others script against (schema conccl.analyze/1)."""

from __future__ import annotations

from typing import Any

from conccl.advise.advised import Advice, Remedy
from conccl.advise.analysis import Analysis, PredictionsUsed, RankAnalysis
from conccl.core.records import to_json_value
from conccl.traces.findings import OverlapCost, OverlapEstimate, OverlappedRegion, StepSplit, WindowOverlap

SCHEMA = "conccl.analyze/1"


def to_document(analysis: Analysis, /) -> dict[str, Any]:
    """All figures of an analysis, drawings left out; times are integer ns."""
    return {
        "schema": SCHEMA,
        "executor": analysis.executor,
        "device": analysis.device,
        "paths": list(analysis.paths),
        "rules": _plain(analysis.rules),
        "step": analysis.step,
        "world_size": analysis.world_size,
        "missing_ranks": list(analysis.missing_ranks),
        "clock": None if analysis.clock is None else _plain(analysis.clock),
        "ranks": [_rank(rank) for rank in analysis.ranks],
        "collectives": [_plain(collective) for collective in analysis.collectives],
        "stragglers": [_plain(straggler) for straggler in analysis.stragglers],
        "contention": [_plain(contention) for contention in analysis.contention],
        "regions": [_region(region) for region in analysis.regions],
        "exposed": [_plain(exposed) for exposed in analysis.exposed],
        "left_out": dict(analysis.left_out),
        "costs": [_cost(cost) for cost in analysis.costs],
        "unclassified": [_plain(kernel) for kernel in analysis.unclassified],
        "remedies": [_remedy(remedy) for remedy in analysis.remedies],
        "advice": [_advice(advice) for advice in analysis.advice],
        "warnings": list(analysis.warnings),
        "problems": [
            {"path": p.path, "place": p.place, "problem": p.problem, "remedy": p.remedy}
            for p in analysis.problems
        ],
    }


def _rank(rank: RankAnalysis, /) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "path": rank.path,
        "rank_source": rank.rank_source,
        "device_name": rank.device_name,
        "window": rank.window,
        **_plain(rank.split),
        "hidden_share": rank.split.hidden_share,
        "wait_ns": rank.wait_ns,
        "transfer_ns": rank.transfer_ns,
        "unattributed_ns": rank.unattributed_ns,
        "kernels": rank.kernels,
        "kernel_ns": rank.kernel_ns,
        "overlap": _estimate(rank.overlap),
        "steps": [_step(step) for step in rank.steps],
        "windows": [_window(window) for window in rank.windows],
        "contention_left_out": rank.contention_left_out,
        "predictions": None if rank.predictions is None else _predictions(rank.predictions),
        "health": _plain(rank.health),
        "warnings": list(rank.warnings),
    }


def _predictions(used: PredictionsUsed, /) -> dict[str, Any]:
    return {**_plain(used), "calibration": [_plain(family) for family in used.calibration]}


def _step(step: StepSplit, /) -> dict[str, Any]:
    return {
        "number": step.number,
        "name": step.name,
        "start_ns": step.start_ns,
        **_plain(step.split),
        "hidden_share": step.split.hidden_share,
        "wait_ns": step.wait_ns,
        "transfer_ns": step.transfer_ns,
        "overlap": _estimate(step.overlap),
    }


def _window(window: WindowOverlap, /) -> dict[str, Any]:
    return {
        "name": window.name,
        "count": window.count,
        "start_ns": window.start_ns,
        "span_ns": window.span_ns,
        "overlap": _estimate(window.overlap),
    }


def _region(region: OverlappedRegion, /) -> dict[str, Any]:
    return {
        **_plain(region),
        "compute_lost_ns": region.compute_lost_ns,
        "communication_lost_ns": region.communication_lost_ns,
        "ideal_speedup": region.ideal_speedup,
        "speedup": region.speedup,
        "fraction_of_ideal": region.fraction_of_ideal,
    }


def _remedy(remedy: Remedy, /) -> dict[str, Any]:
    return {**_plain(remedy), "strategies": [_plain(strategy) for strategy in remedy.strategies]}


def _advice(advice: Advice, /) -> dict[str, Any]:
    remedy = None if advice.remedy is None else _remedy(advice.remedy)
    return {
        "title": advice.title,
        "detail": advice.detail,
        "cost_ns": advice.cost_ns,
        "source": advice.source,
        "remedy": remedy,
    }


def _cost(cost: OverlapCost, /) -> dict[str, Any]:
    return {
        "kind": cost.kind,
        "cost_ns": cost.cost_ns,
        "ranks": cost.ranks,
        "communication": cost.communication,
        "compute": cost.compute,
        "worst_rank": cost.worst.rank,
        "worst_step": cost.worst.step,
        "worst_start_ns": cost.worst.start_ns,
        "source": cost.source,
        "uncertainty_ns": cost.uncertainty_ns,
    }


def _estimate(estimate: OverlapEstimate, /) -> dict[str, Any]:
    overlap, span = estimate.overlap, estimate.fraction_range
    return {
        "source": estimate.source,
        "unknown_ns": estimate.unknown_ns,
        "predicted_ns": estimate.predicted_ns,
        "compute_uncertainty_ns": estimate.compute_uncertainty_ns,
        "communication_uncertainty_ns": estimate.communication_uncertainty_ns,
        "fraction_of_ideal_low": None if span is None else span[0],
        "fraction_of_ideal_high": None if span is None else span[1],
        "compute_ns": None if overlap is None else overlap.compute_ns,
        "communication_ns": None if overlap is None else overlap.communication_ns,
        "ideal_speedup": None if overlap is None else overlap.ideal_speedup,
        "speedup": None if overlap is None else overlap.speedup,
        "fraction_of_ideal": None if overlap is None else overlap.fraction_of_ideal,
    }


def _plain(record: object, /) -> dict[str, Any]:
    """A record's fields without its type's name."""
    value: dict[str, Any] = to_json_value(record)
    value.pop("type")
    return value
