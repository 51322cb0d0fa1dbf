"""Transformers as dimensions: published ones by name, others from a Hugging Face configuration file."""

from __future__ import annotations

import dataclasses
import functools
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from conccl.core.errors import InputError, UnknownNameError
from conccl.core.files import regular
from conccl.core.ops import RowwiseKind
from conccl.workloads.hugging_face import fields_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """The dimensions that decide a transformer's work."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    """Inner width of a dense feed-forward block."""
    vocab: int
    source: str
    gated: bool = False
    """SwiGLU and the like: two projections up instead of one."""
    biased: bool = True
    """Whether linear layers add a bias."""
    norm: RowwiseKind = RowwiseKind.LAYER_NORM
    tied: bool = False
    """Whether the output projection shares the embedding's weights."""
    causal: bool = True
    positions: int = 0
    """Rows of a learned position embedding; 0 where there is none."""
    experts: int = 0
    experts_per_token: int = 0
    shared_experts: int = 0
    expert_ffn: int = 0
    dense_layers: int = 0
    """Of a mixture of experts: the first layers, which have a dense feed-forward block."""
    query_rank: int = 0
    """Latent attention (DeepSeek-V2, arXiv:2405.04434): rank of the query projection; 0: none."""
    kv_rank: int = 0
    rope_dim: int = 0

    def __post_init__(self) -> None:
        for field in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab"):
            if getattr(self, field) < 1:
                raise InputError(
                    f"model {self.name}: {field} is {getattr(self, field)}; it must be 1 or more."
                )
        if self.heads % self.kv_heads:
            raise InputError(
                f"model {self.name}: {self.heads} heads do not divide into {self.kv_heads} KV heads."
            )
        if self.experts and not (0 < self.experts_per_token <= self.experts and self.expert_ffn > 0):
            raise InputError(
                f"model {self.name}: {self.experts} experts need experts_per_token from 1 to {self.experts}"
                " and an expert_ffn."
            )

    @property
    def attention_parameters(self) -> int:
        """Weights of one layer's attention projections."""
        query_width = self.heads * self.head_dim
        if self.kv_rank:
            wide = self.heads * (self.head_dim + self.rope_dim)
            query = (self.hidden + wide) * self.query_rank if self.query_rank else self.hidden * wide
            latent = self.hidden * (self.kv_rank + self.rope_dim)
            expand = self.kv_rank * self.heads * 2 * self.head_dim
            return query + latent + expand + query_width * self.hidden
        return self.hidden * (2 * query_width + 2 * self.kv_heads * self.head_dim)

    def ffn_parameters(self, *, layer: int) -> int:
        """Weights of the feed-forward block of this layer, all its experts included."""
        matrices = 3 if self.gated else 2
        if not self.is_expert_layer(layer=layer):
            return matrices * self.hidden * self.ffn
        per_expert = matrices * self.hidden * self.expert_ffn
        return (self.experts + self.shared_experts) * per_expert + self.hidden * self.experts

    def is_expert_layer(self, *, layer: int) -> bool:
        """Whether this layer's feed-forward block is a mixture of experts."""
        return self.experts > 0 and layer >= self.dense_layers

    @property
    def parameters(self) -> int:
        """All weights but biases and norms, which are a thousandth of them."""
        blocks = sum(
            self.attention_parameters + self.ffn_parameters(layer=layer) for layer in range(self.layers)
        )
        embeddings = (1 if self.tied else 2) * self.vocab * self.hidden + self.positions * self.hidden
        return blocks + embeddings


def model_names() -> tuple[str, ...]:
    """The published models that are known by name."""
    return tuple(_catalogue())


def model(name: str, /) -> Transformer:
    """A published model by name, or the one that a Hugging Face ``config.json`` describes."""
    if name in _catalogue():
        return _from_fields(name, _catalogue()[name])
    path = Path(name)
    if not name.strip():
        raise InputError(
            f"no model is named. Known: {', '.join(sorted(model_names()))}; or give a config.json."
        )
    if path.suffix == ".json" or path.is_dir():
        return from_hugging_face(path / "config.json" if path.is_dir() else path)
    raise UnknownNameError(kind="model", name=name, known=model_names())


def from_hugging_face(path: Path, /) -> Transformer:
    """The transformer that a Hugging Face configuration file describes."""
    try:
        config = json.loads(regular(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}. Give a Hugging Face config.json.") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}). Give a Hugging Face config.json.") from error
    if not isinstance(config, dict):
        raise InputError(f"{path} holds no JSON object. Give a Hugging Face config.json.")
    return _from_fields(path.parent.name or path.stem, fields_of(config, where=str(path)))


def _from_fields(name: str, fields: Mapping[str, Any]) -> Transformer:
    given = dict(fields)
    for field in ("hidden", "heads"):
        if not isinstance(given.get(field), int) or given[field] < 1:
            raise InputError(
                f"model {name}: {field} is {given.get(field)!r}; it must be a whole number above 0."
            )
    given.setdefault("kv_heads", given["heads"])
    given.setdefault("head_dim", given["hidden"] // given["heads"])
    if "norm" in given:
        given["norm"] = RowwiseKind(given["norm"])
    known = {field.name for field in dataclasses.fields(Transformer)}
    strange = sorted(given.keys() - known)
    if strange:
        raise InputError(f"model {name} has no field {strange[0]!r}; it has {', '.join(sorted(known))}.")
    return Transformer(name=name, **given)


@functools.cache
def _catalogue() -> dict[str, dict[str, Any]]:
    text = resources.files("conccl.workloads").joinpath("models.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
