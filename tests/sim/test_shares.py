"""Weighted max-min fairness."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from conccl.sim.shares import Resource, fair_rates


@dataclass
class Asking:
    cap: float
    weight: float
    uses: list = field(default_factory=list)


def test_with_enough_for_all_everyone_runs_at_full_pace():
    hbm = Resource(name="hbm", capacity=10)
    assert fair_rates([Asking(2, 2, [(hbm, 2)]), Asking(3, 3, [(hbm, 2)])]) == [2, 3]


def test_a_short_resource_is_shared_by_weight():
    hbm = Resource(name="hbm", capacity=10)
    assert fair_rates([Asking(10, 10, [(hbm, 1)]), Asking(10, 30, [(hbm, 1)])]) == [2.5, 7.5]


def test_what_one_cannot_use_the_others_get():
    hbm = Resource(name="hbm", capacity=10)
    assert fair_rates([Asking(1, 10, [(hbm, 1)]), Asking(20, 10, [(hbm, 1)])]) == [1, 9]


def test_being_slow_at_one_resource_leaves_the_other_to_others():
    link, hbm = Resource(name="link", capacity=1), Resource(name="hbm", capacity=10)
    claims = [Asking(8, 8, [(link, 1), (hbm, 1)]), Asking(12, 12, [(hbm, 1)])]
    assert fair_rates(claims) == [1, 9]


resources = st.lists(st.floats(0.1, 100), min_size=1, max_size=4)
claims_of = st.lists(
    st.tuples(
        st.floats(0.01, 50),
        st.floats(1, 10),
        st.dictionaries(st.integers(0, 3), st.floats(0.01, 10), max_size=3),
    ),
    min_size=1,
    max_size=6,
)


@given(resources, claims_of)
def test_no_resource_is_overdrawn_and_nobody_could_have_more_alone(capacities, asked):
    made = [Resource(name=str(i), capacity=capacity) for i, capacity in enumerate(capacities)]
    claims = [
        Asking(
            cap, cap * slack, [(made[i % len(made)], amount) for i, amount in uses.items() if i < len(made)]
        )
        for cap, slack, uses in asked
    ]
    rates = fair_rates(claims)
    for resource in made:
        used = sum(
            rate * amount
            for claim, rate in zip(claims, rates, strict=True)
            for r, amount in claim.uses
            if r is resource
        )
        assert used <= resource.capacity * (1 + 1e-6)
    for claim, rate in zip(claims, rates, strict=True):
        assert 0 <= rate <= claim.cap
        if rate < claim.cap * (1 - 1e-6):  # then something it uses is full
            assert any(
                sum(
                    r2 * a2
                    for c2, r2 in zip(claims, rates, strict=True)
                    for q, a2 in c2.uses
                    if q is resource
                )
                >= resource.capacity * (1 - 1e-6)
                for resource, _ in claim.uses
            )
