import pytest
from hypothesis import given
from hypothesis import strategies as st

from conccl.core.errors import InputError
from conccl.costs.kernel import CtaGroup, CtaWork, Footprint, KernelCost, Share, executed_ns

SHARE = Share(sms=4, hbm_bandwidth=1e9, l2_bandwidth=2e9)  # 1 byte and 2 bytes a ns


def time_ns(*groups: CtaGroup, ctas_per_sm: int = 1, share: Share = SHARE) -> float:
    return executed_ns(groups, ctas_per_sm=ctas_per_sm, share=share)


def test_full_waves_and_a_last_one():
    work = CtaWork(latency_ns=10, sm_ns=100)
    assert time_ns(CtaGroup(count=4, work=work)) == 110
    assert time_ns(CtaGroup(count=9, work=work)) == 330


def test_ctas_on_one_sm_share_its_units():
    work = CtaWork(sm_ns=100)
    assert time_ns(CtaGroup(count=8, work=work), ctas_per_sm=2) == 200
    assert time_ns(CtaGroup(count=4, work=work), ctas_per_sm=2) == 100


def test_bandwidth_is_shared_by_all_and_latency_by_none():
    work = CtaWork(latency_ns=50, hbm_read_nbytes=60, hbm_write_nbytes=40)
    assert time_ns(CtaGroup(count=8, work=work), ctas_per_sm=2) == 50 + 800
    assert time_ns(CtaGroup(count=1, work=work)) == 50 + 100
    assert time_ns(CtaGroup(count=8, work=CtaWork(l2_nbytes=100)), ctas_per_sm=2) == 400


def test_a_body_takes_at_least_its_own_time():
    assert time_ns(CtaGroup(count=1, work=CtaWork(least_ns=500, hbm_read_nbytes=100))) == 500


def test_a_short_cta_leaves_its_bandwidth_to_the_long():
    long, short = CtaWork(hbm_read_nbytes=300), CtaWork(hbm_read_nbytes=200)
    # both at half the bandwidth until 400 ns, then 100 bytes at the whole
    assert time_ns(CtaGroup(count=1, work=long), CtaGroup(count=1, work=short)) == pytest.approx(500)


@given(
    count=st.integers(1, 2000),
    sm_ns=st.floats(0, 1e5),
    nbytes=st.floats(0, 1e5),
    latency_ns=st.floats(0, 1e4),
    ctas_per_sm=st.integers(1, 8),
    sms=st.integers(1, 64),
)
def test_less_of_the_device_is_never_faster(count, sm_ns, nbytes, latency_ns, ctas_per_sm, sms):
    work = CtaWork(latency_ns=latency_ns, sm_ns=sm_ns, hbm_read_nbytes=nbytes, l2_nbytes=2 * nbytes)
    group = CtaGroup(count=count, work=work)
    much = time_ns(group, ctas_per_sm=ctas_per_sm, share=Share(sms=sms, hbm_bandwidth=2e9, l2_bandwidth=4e9))
    slow = time_ns(group, ctas_per_sm=ctas_per_sm, share=Share(sms=sms, hbm_bandwidth=1e9, l2_bandwidth=4e9))
    few = time_ns(
        group, ctas_per_sm=ctas_per_sm, share=Share(sms=-(-sms // 2), hbm_bandwidth=2e9, l2_bandwidth=4e9)
    )
    assert slow >= much * (1 - 1e-9)
    alone = time_ns(CtaGroup(count=1, work=work), share=Share(sms=1, hbm_bandwidth=2e9, l2_bandwidth=4e9))
    assert few >= much * (1 - 1e-9) - alone  # the last wave may be better filled on fewer SMs
    assert much >= count * nbytes / 2 * (1 - 1e-9)


def test_a_kernel_without_ctas_is_refused():
    with pytest.raises(InputError, match="needs CTAs"):
        KernelCost(
            name="k",
            groups=(),
            footprint=Footprint(threads=128),
            ctas_per_sm=1,
            fixed_ns=0,
            isolated_ns=1,
            uncertainty=0.1,
        )
