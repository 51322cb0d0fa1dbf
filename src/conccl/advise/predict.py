"""Who predicts isolated times: the cost models.

They are loaded when a trace needs them, since most analyses of small traces take less time than
loading them does.
"""

from __future__ import annotations

from dataclasses import dataclass

from conccl.advise.predictions import Predictions
from conccl.core.timeline import Mask
from conccl.traces.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModels:
    """Predicts by `conccl.costs`, on the device that the trace was recorded on."""

    device: str | None = None
    """Of the catalogue, or a TOML file; None: what the trace names."""

    def __call__(self, trace: Trace, wanted: Mask, /) -> Predictions:
        """The wanted rows, as far as their work is recorded."""
        from conccl.advise.modelled import modelled  # noqa: PLC0415 (see above)

        return modelled(trace, wanted, device=self.device)


COST_MODELS = CostModels()
