"""Events happen in order of time, priority and arrival."""

import pytest

from conccl.sim.engine import SETTLE, Engine


def test_events_happen_in_order_of_time_then_priority_then_arrival():
    engine, log = Engine(), []
    engine.schedule(lambda: log.append("late"), at_ns=5)
    engine.schedule(lambda: log.append("settle"), at_ns=1, priority=SETTLE)
    engine.schedule(lambda: log.append("first"), at_ns=1)
    engine.schedule(lambda: log.append("second"), at_ns=1)
    assert engine.run() == 5
    assert log == ["first", "second", "settle", "late"]


def test_a_cancelled_event_does_not_happen():
    engine, log = Engine(), []
    event = engine.schedule(lambda: log.append("no"), at_ns=3)
    engine.schedule(event.cancel, at_ns=2)
    engine.run()
    assert log == []


def test_the_past_is_over():
    engine = Engine()
    engine.schedule(lambda: None, at_ns=7)
    engine.run()
    with pytest.raises(ValueError, match="before now, 7"):
        engine.schedule(lambda: None, at_ns=6)
