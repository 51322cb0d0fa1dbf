"""What simulated strategies are said to bring: against recordings of both ways, and on made traces."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import conccl
from conccl.advise.advised import Remedy
from conccl.advise.analysis import Analysis
from conccl.advise.document import to_document
from conccl.advise.simulated import Outcome, Row, simulate
from conccl.core.kinds import CollectiveKind, Memory
from conccl.core.movement import Collective, Copy
from conccl.core.ops import Gemm
from conccl.core.pair import Pair
from conccl.costs.catalogue import load_device
from made_kineto import Event, document, host_row, kernel, launch

EXAMPLES = Path(__file__).parents[2] / "examples" / "overlap_step"
GEMM = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_TNT"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
H200 = {"id": 0, "name": "NVIDIA H200", "numSms": 132}


@pytest.fixture(scope="module")
def sm() -> Analysis:
    return conccl.analyze(EXAMPLES / "sm.pt.trace.json.gz", host_copies="communication")


def test_copy_engines_are_said_to_save_what_they_do_save(sm: Analysis) -> None:
    """The same step was recorded with copy engines: there those overlaps cost next to nothing."""
    ce = conccl.analyze(EXAMPLES / "ce.pt.trace.json.gz", host_copies="communication")
    saved = [remedy for remedy in sm.remedies if remedy.kind == "contention"]
    assert len(saved) == 2
    for remedy in saved:
        assert remedy.best == "ce"
        lost = sum(kernel.excess_ns or 0 for kernel in ce.contention if kernel.name == remedy.compute)
        assert remedy.cost_ns - remedy.gain_ns - remedy.uncertainty_ns <= lost <= remedy.cost_ns
        assert remedy.gain_ns == pytest.approx(remedy.cost_ns, rel=0.1)
        assert 0 < remedy.uncertainty_ns < 0.1 * remedy.gain_ns
        assert "size is not recorded" in remedy.assumption


def test_every_strategy_is_told_and_what_ran_is_never_advised(sm: Analysis) -> None:
    remedy = sm.remedies[0]
    assert {each.name for each in remedy.strategies} == {
        "baseline",
        "prioritized",
        "partitioned",
        "prioritized_partitioned",
        "ce",
        "ce_trimmed",
    }
    gains = [each.gain_ns for each in remedy.strategies]
    assert gains == sorted(gains, reverse=True)
    assert max(gains) <= remedy.cost_ns
    assert all(each.best != "baseline" for each in sm.remedies)


def test_advice_carries_its_remedy_into_the_document(sm: Analysis) -> None:
    written = json.loads(json.dumps(to_document(sm)))
    simulated = [advice for advice in written["advice"] if advice["source"] == "simulated"]
    assert simulated[0]["remedy"]["best"] == "ce"
    assert simulated[0]["cost_ns"] == simulated[0]["remedy"]["gain_ns"]
    assert "41.8 ms" in simulated[0]["detail"]
    assert {each["name"] for each in simulated[0]["remedy"]["strategies"]} >= {"ce", "prioritized"}
    assert written["remedies"][0]["place"] == 0
    assert all(advice["remedy"] is None for advice in written["advice"] if advice["source"] == "measured")


def test_nothing_is_simulated_where_only_what_was_measured_is_wanted() -> None:
    found = conccl.analyze(EXAMPLES / "sm.pt.trace.json.gz", host_copies="communication", predict=None)
    assert found.remedies == ()
    assert all(advice.source == "measured" for advice in found.advice)


# A made trace: a GEMM and an all-gather, apart and together


def trace(
    path: Path,
    /,
    *,
    together_us: int = 1900,
    gemm_alone_us: int = 1330,
    device: dict[str, Any] = H200,
    ranks: int = 8,
    shapes: bool = True,
) -> Path:
    """Alone each, then three times together, the gather launched after the GEMM."""
    inputs = {"Input Dims": [[4096, 8192], [8192, 14336]], "Input type": ["c10::BFloat16"] * 2}
    call = {
        "Collective name": "_allgather_base",
        "dtype": "BFloat16",
        "In msg nelems": 117_440_512 // ranks,
        "Out msg nelems": 117_440_512,
        "Group size": ranks,
        "Process Group Name": "0",
    }
    events: list[Event] = []
    correlation = 0

    def add(name: str, at: int, took: int, **more: Any) -> None:
        nonlocal correlation
        correlation += 1
        if name == GEMM and shapes:
            events.append(host_row("cpu_op", "aten::mm", at - 30, 12, **inputs))
        events.append(launch(at - 20, correlation))
        events.append(kernel(name, at, took, correlation=correlation, **more))

    for i in range(3):
        add(GEMM, 100_000 + 5000 * i, gemm_alone_us, grid=[132, 1, 1], block=[384, 1, 1])
        add(GATHER, 120_000 + 5000 * i, 620, stream=20, grid=[24, 1, 1], block=[640, 1, 1], **call)
        add(GEMM, 200_000 + 5000 * i, together_us, grid=[132, 1, 1], block=[384, 1, 1])
        took = together_us - 20
        add(GATHER, 200_010 + 5000 * i, took, stream=20, grid=[24, 1, 1], block=[640, 1, 1], **call)
    path.write_text(json.dumps(document(events, deviceProperties=[device])))
    return path


def the_remedy(path: Path, /, *, kind: str = "contention", **options: Any) -> Remedy | None:
    found = [each for each in conccl.analyze(path, **options).remedies if each.kind == kind]
    return found[0] if found else None


def test_a_collective_beside_a_gemm(tmp_path: Path) -> None:
    remedy = the_remedy(trace(tmp_path / "a.json"))
    assert remedy is not None
    assert (remedy.kind, remedy.device, remedy.assumption) == ("contention", "h200-sxm", "")
    assert remedy.pair.startswith("4 x 4096x14336x8192 bf16 beside all_gather")
    assert remedy.best == "ce"
    assert remedy.gain_ns == remedy.cost_ns > remedy.uncertainty_ns
    names = {each.name: each for each in remedy.strategies}
    assert names["ce"].fraction_of_ideal == pytest.approx(1, abs=0.05)
    assert names["ce"].gain_ns > names["baseline"].gain_ns


@pytest.mark.parametrize(
    "what",
    [
        {"shapes": False},
        {"device": {"id": 0, "name": "Tesla V100-SXM2-32GB", "numSms": 80}},
        {"together_us": 1335},
    ],
    ids=["no shapes", "unknown device", "no contention"],
)
def test_no_remedy_where_it_would_be_guessed_or_nothing_is_lost(tmp_path: Path, what: dict[str, Any]) -> None:
    remedy = the_remedy(trace(tmp_path / "a.json", **what))
    assert remedy is None or remedy.best is None


def test_what_is_exposed_behind_a_gemm_may_be_sent_while_it_runs(tmp_path: Path) -> None:
    remedy = the_remedy(trace(tmp_path / "a.json"), kind="exposed_after")
    assert remedy is not None
    assert remedy.best in ("chunked", "fused")
    assert remedy.measured_fraction is None
    detail = next(a.detail for a in conccl.analyze(tmp_path / "a.json").advice if a.remedy == remedy)
    assert f"If {GEMM} produces what is sent, {remedy.best} saves" in detail


def test_copy_engines_are_not_offered_between_nodes(tmp_path: Path) -> None:
    remedy = the_remedy(trace(tmp_path / "a.json", ranks=64, together_us=9000))
    assert remedy is not None
    assert not any(each.name.startswith("ce") for each in remedy.strategies)


def test_a_device_that_is_named_counts(tmp_path: Path) -> None:
    unknown = {"id": 0, "name": "GPU of tomorrow", "numSms": 132}
    remedy = the_remedy(trace(tmp_path / "a.json", device=unknown), device="h100-sxm")
    assert remedy is not None
    assert remedy.device == "h100-sxm"


def test_reruns_are_equal(tmp_path: Path) -> None:
    path = trace(tmp_path / "a.json")
    assert the_remedy(path) == the_remedy(path)


# The row in the simulator

COPY = Copy(nbytes=64 << 20, source=Memory.HOST)


def test_a_row_lasts_as_long_as_its_kernels() -> None:
    device = load_device("h200-sxm")
    pair = Pair(compute=Gemm(m=4096, n=4096, k=4096), communication=COPY)
    one = simulate(Row(pair=pair), ["ce"], device=device)["ce"]
    five = simulate(Row(pair=pair, kernels=5), ["ce"], device=device)["ce"]
    assert five.compute_ns == pytest.approx(5 * one.compute_ns, rel=0.05)
    assert five.communication_ns == one.communication_ns


def test_rates_are_what_gets_done_while_both_run() -> None:
    """Compute of 100 ends after 200; of the communication, 150 long, 50 are left then."""
    outcome = Outcome(
        compute_ns=100, communication_ns=150, compute_end_ns=200, communication_end_ns=250, uncertainty=0.1
    )
    assert outcome.rates == (0.5, 0.5)
    assert outcome.overlap.concurrent_ns == 250


def test_a_strategy_without_meaning_is_left_out() -> None:
    device = load_device("h200-sxm")
    pair = Pair(compute=Gemm(m=4096, n=4096, k=4096), communication=COPY)
    assert list(simulate(Row(pair=pair), ["chunked", "ce"], device=device)) == ["ce"]


def test_other_devices_are_less_sure() -> None:
    pair = Pair(
        compute=Gemm(m=4096, n=4096, k=4096),
        communication=Collective(kind=CollectiveKind.ALL_GATHER, nbytes=64 << 20, ranks=8),
    )
    known, other = (
        simulate(Row(pair=pair), ["ce"], device=load_device(name))["ce"].uncertainty
        for name in ("h200-sxm", "mi300x")
    )
    assert other > known == 0.02


def test_a_gain_within_its_uncertainty_is_no_advice(sm: Analysis) -> None:
    for remedy in sm.remedies:
        for each in remedy.strategies:
            if each.gain_ns <= each.uncertainty_ns or each.speedup <= 1:
                assert each.name != remedy.best
    assert dataclasses.asdict(sm.remedies[0])["best"] == "ce"
