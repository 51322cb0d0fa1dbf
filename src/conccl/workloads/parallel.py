"""How a model is spread over GPUs, and whether it can be."""

from __future__ import annotations

from dataclasses import dataclass

from conccl.core.errors import InputError
from conccl.workloads.models import Transformer

TRAINING_BYTES_PER_PARAMETER = 18
"""bf16 weight 2 and gradient 2, fp32 master weight 4, Adam's two moments 8, fp32 gradient or slack 2
(Rajbhandari et al. 2019, arXiv:1910.02054, section 3.1: 16, and 2 of working copies)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Degrees of parallelism; their product is the number of GPUs.

    ``fsdp`` shards parameters, gradients and optimizer state over that many data-parallel ranks; ``dp``
    replicates them. Expert parallelism reuses the data-parallel ranks, as is usual, so it is no factor.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    fsdp: int = 1
    ep: int = 1
    microbatches: int = 1
    interleaving: int = 1
    """Virtual pipeline stages of each GPU (Narayanan et al. 2021, arXiv:2104.04473, section 2.2)."""
    sequence_parallel: bool = True
    """With tp > 1: norms on a slice of the sequence, so all-reduces become reduce-scatter and all-gather."""

    def __post_init__(self) -> None:
        for field in ("tp", "pp", "dp", "fsdp", "ep", "microbatches", "interleaving"):
            if getattr(self, field) < 1:
                raise InputError(f"--{field} is {getattr(self, field)}; it must be 1 or more.")

    @property
    def gpus(self) -> int:
        """GPUs that it takes."""
        return self.tp * self.pp * self.dp * self.fsdp

    def require_fits(self, model: Transformer, /, *, gpus: int | None = None) -> None:
        """Raise an InputError that says which sizes fit, unless every degree divides what it splits."""
        _require_divides("tp", self.tp, **{"heads": model.heads, "feed-forward width": model.ffn})
        _require_divides("pp", self.pp, layers=model.layers)
        if self.interleaving > 1:
            _require_divides(
                "interleaving", self.interleaving, **{"layers of a stage": model.layers // self.pp}
            )
        if self.ep > 1:
            if not model.experts:
                raise InputError(f"--ep {self.ep}: {model.name} has no experts. Leave --ep out.")
            _require_divides(
                "ep", self.ep, experts=model.experts, **{"data-parallel ranks": self.dp * self.fsdp}
            )
        if gpus is not None and gpus != self.gpus:
            raise InputError(
                f"tp {self.tp} x pp {self.pp} x dp {self.dp} x fsdp {self.fsdp} is {self.gpus} GPUs,"
                f" not {gpus}."
                f" {_remedy(self, gpus)}"
            )

    def parameters_per_gpu(self, model: Transformer, /) -> int:
        """Weights that one GPU keeps, in the fullest pipeline stage, sharding included."""
        experts = sum(
            model.ffn_parameters(layer=layer)
            for layer in range(model.layers)
            if model.is_expert_layer(layer=layer)
        )
        others = model.parameters - experts
        shared = others / (self.tp * self.pp * self.fsdp)
        return round(shared + experts / (self.tp * self.pp * self.ep * max(1, self.fsdp // self.ep)))


def _require_divides(flag: str, degree: int, **split: int) -> None:
    for what, size in split.items():
        if size % degree:
            fitting = ", ".join(
                str(d) for d in range(1, min(size, 256) + 1) if all(v % d == 0 for v in split.values())
            )
            raise InputError(f"--{flag} {degree} does not divide {size} {what}. These fit: {fitting}.")


def _remedy(parallelism: Parallelism, gpus: int) -> str:
    others = parallelism.gpus // parallelism.fsdp
    if gpus % others == 0:
        return f"With --fsdp {gpus // others} it fits."
    return f"The other degrees make {others}, so give a multiple of {others} GPUs."
