"""What must hold for every plan: no free lunch, work conserved, more is never slower, always the same."""

import dataclasses

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from conccl.core.hardware import CtaDispatch
from conccl.core.plan import Plan
from conccl.costs.kernel import CtaGroup, CtaWork, Footprint, kernel_cost
from conccl.sim.executor import Issue
from made_kernels import Simulated, device, host_copy, kernel, link, task

ROUNDING_NS = 60
"""Events lie on whole nanoseconds, and a kernel has some dozens."""

works = st.builds(
    CtaWork,
    latency_ns=st.floats(0, 500),
    least_ns=st.floats(0, 5_000),
    sm_ns=st.floats(10, 5_000),
    hbm_read_nbytes=st.floats(0, 50_000),
    hbm_share=st.floats(0.5, 1.0),
    l2_nbytes=st.floats(0, 100_000),
)


@st.composite
def kernels(draw, kinds=2):
    """A kernel of CTAs of one or more kinds."""
    counts = st.integers(1, 900) | st.integers(1, 4).map(lambda waves: waves * 1600)
    groups = [CtaGroup(count=draw(counts), work=draw(works)) for _ in range(draw(st.integers(1, kinds)))]
    cost = kernel_cost(
        "k",
        device=device(),
        groups=tuple(groups),
        footprint=Footprint(threads=draw(st.sampled_from([128, 512, 1024, 2048]))),
        fixed_ns=draw(st.floats(0, 100)),
        uncertainty=0.0,
    )
    return dataclasses.replace(cost, workers=draw(st.sampled_from([0, 0, 100 * cost.ctas_per_sm])))


def _longest_cta_ns(k) -> float:
    """The time of a CTA on an SM full of them, with its share of the bandwidth."""
    slots = 100 * k.ctas_per_sm
    return max(
        group.work.latency_ns
        + group.work.body_ns(
            sharers=k.ctas_per_sm,
            hbm_bandwidth=1000e9 / slots,
            l2_bandwidth=4000e9 / slots,
            link_bandwidth=1e12,
        )
        for group in k.groups
    )


sharings = st.fixed_dictionaries(
    {
        "priority": st.sampled_from([0, -1]),
        "sms": st.sampled_from([None, None, 8, 40]),
        "ctas_per_sm": st.sampled_from([None, None, 1]),
    }
)
copies = st.integers(0, 2_000_000)
slow = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])


@slow
@given(kernels())
def test_alone_a_kernel_takes_no_longer_than_its_cost_model_says(k):
    # CTAs of two kinds the model does not hand out one by one, so it may be off either way
    tolerance = 1.001 if len(k.groups) == 1 else 2.0
    duration_ns = Simulated({"k": k})(task("k"))["k"].duration_ns
    assert duration_ns <= k.isolated_ns * tolerance + ROUNDING_NS


@slow
@given(kernels())
def test_alone_a_kernel_of_equal_ctas_takes_what_its_cost_model_says(k):
    # the model takes SMs of a wave that is not full as if all held as many CTAs as the fullest,
    # and CTAs of two kinds as if the latency of the one came before the body of the other
    assume(len(k.groups) == 1 and (k.ctas_per_sm == 1 or k.ctas % (100 * k.ctas_per_sm) == 0))
    duration_ns = Simulated({"k": k})(task("k"))["k"].duration_ns
    assert duration_ns == pytest.approx(k.isolated_ns, rel=0.001, abs=ROUNDING_NS)


@slow
@given(kernels(kinds=1), kernels(kinds=1), copies, sharings, sharings)
def test_nothing_is_faster_together_than_alone_and_work_is_conserved(a, b, nbytes, how_a, how_b):
    run = Simulated({"a": a, "b": b})
    alone = {
        **run(task("a", **how_a)),
        **run(task("b", **how_b)),
        **run(host_copy("c", nbytes)),
    }
    rows = run(task("a", **how_a), task("b", **how_b), host_copy("c", nbytes))
    # list scheduling has anomalies of a CTA's length (Graham 1969): a slot that another kernel leaves early
    # lets a long CTA begin before its wave; and CTAs out of step use bandwidth in each other's latencies
    for id_, slack_ns in {"a": _longest_cta_ns(a), "b": _longest_cta_ns(b), "c": 0.0}.items():
        assert rows[id_].duration_ns >= alone[id_].duration_ns - slack_ns - ROUNDING_NS
    end_ns = max(span.end_ns for span in rows.values())
    hbm = a.hbm_nbytes + b.hbm_nbytes + nbytes
    assert end_ns >= hbm / 1000 - ROUNDING_NS
    units = sum(group.count * group.work.sm_ns for k in (a, b) for group in k.groups)
    assert end_ns >= units / 100 - ROUNDING_NS


@slow
@given(kernels(kinds=1), kernels(kinds=1), copies, sharings, sharings, st.sampled_from(["hbm", "l2", "host"]))
def test_more_bandwidth_is_never_slower(a, b, nbytes, how_a, how_b, what):
    more = {
        "hbm": device(hbm_bandwidth=2000e9),
        "l2": device(l2_bandwidth=8000e9),
        "host": device(host_link=link("host", 100, both=200)),
    }[what]
    plan = (task("a", **how_a), task("b", **how_b), host_copy("c", nbytes))
    end = max(span.end_ns for span in Simulated({"a": a, "b": b})(*plan).values())
    sooner = max(span.end_ns for span in Simulated({"a": a, "b": b}, on=more)(*plan).values())
    # which goes on for as long as the two hand SMs to and fro
    assert sooner <= 1.1 * end + max(_longest_cta_ns(a), _longest_cta_ns(b)) + ROUNDING_NS


@slow
@given(kernels(), st.integers(1, 6))
def test_one_kernel_on_more_sms_or_bandwidth_is_never_slower(k, factor):
    less = Simulated({"k": k})(task("k"))["k"].duration_ns
    more = device(sm_count=100 * factor, hbm_bandwidth=1000e9 * factor, l2_bandwidth=4000e9 * factor)
    assert Simulated({"k": k}, on=more)(task("k"))["k"].duration_ns <= less + ROUNDING_NS


@slow
@given(kernels(), kernels(), copies, sharings, sharings, st.sampled_from(CtaDispatch))
def test_the_same_plan_gives_the_same_timeline(a, b, nbytes, how_a, how_b, dispatch):
    def once():
        run = Simulated({"a": a, "b": b}, on=device(cta_dispatch=dispatch))
        return run(
            task("a", **how_a), task("b", **how_b), host_copy("c", nbytes), host_copy("d", nbytes // 2)
        )

    assert once() == once()


def test_a_chain_of_thousands_of_tasks_takes_linear_time():
    kernels_ = {"k": kernel(ctas=1000, least_ns=50, hbm_read_nbytes=2000)}

    def events(count: int) -> int:
        run = Simulated(kernels_)
        plan = Plan(tasks=tuple(task(f"t{i}", "k", lane="compute") for i in range(count)))
        return run.executor.run(plan).span_ns

    assert events(2000) == 2000 * events(1)


def test_the_host_may_be_what_holds_the_gpu_up():
    on = device(host_launch_ns=700)
    kernels_ = {"k": kernel(ctas=100, least_ns=50, made_on=on)}
    eager = Simulated(kernels_, on=on, issue=Issue.EAGER)(*(task(f"t{i}", "k", lane="x") for i in range(5)))
    assert [span.start_ns for span in eager.values()] == [700, 1400, 2100, 2800, 3500]
    graph = Simulated(kernels_, on=on)(*(task(f"t{i}", "k", lane="x") for i in range(5)))
    assert max(span.end_ns for span in graph.values()) == 250
