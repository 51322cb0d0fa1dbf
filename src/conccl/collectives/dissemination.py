"""A barrier in as many rounds as the rank count has binary digits."""

from __future__ import annotations

from conccl.collectives.builder import Builder


def barrier(b: Builder) -> None:
    """In each round a rank hears from the one at a doubled distance, which has heard from as many."""
    count = b.layout.count
    heard = [b.entered(position) for position in range(count)]
    distance = 1
    while distance < count:
        heard = [
            b.signal(one, (heard[one], heard[(one - distance) % count]), name=f"round{distance}")
            for one in range(count)
        ]
        distance *= 2
