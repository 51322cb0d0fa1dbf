"""What measures a plan, and the bench of executors whose times are always the same."""

from __future__ import annotations

from typing import Protocol

from conccl.core.errors import ExecutionError, InputError
from conccl.core.executor import Executor
from conccl.core.measurement import Environment, Measurement, Status
from conccl.core.plan import Plan


class Bench(Protocol):
    """Measures plans in one environment."""

    @property
    def environment(self) -> Environment:
        """Where and with what."""
        ...

    def measure(self, plan: Plan, /, *, label: str) -> Measurement:
        """All samples of the plan's span; an expected failure is a status with a reason."""
        ...


class ExactBench:
    """Measures with an executor that gives the same timeline every time: one sample says everything."""

    def __init__(self, *, executor: Executor, environment: Environment) -> None:
        self._executor = executor
        self._environment = environment

    @property
    def environment(self) -> Environment:
        """Where and with what."""
        return self._environment

    def measure(self, plan: Plan, /, *, label: str) -> Measurement:
        """The plan's span; what the executor cannot run is unsupported, with its reason."""
        try:
            span_ns = self._executor.run(plan).span_ns
        except (ExecutionError, InputError) as error:
            return failed(label, reason=str(error), environment=self._environment)
        return Measurement(label=label, samples_ns=(span_ns,), environment=self._environment)


def failed(label: str, /, *, reason: str, environment: Environment) -> Measurement:
    """A measurement that could not be made."""
    return Measurement(
        label=label, samples_ns=(), environment=environment, status=Status.UNSUPPORTED, reason=reason
    )
