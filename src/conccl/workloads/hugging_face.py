"""Hugging Face configuration files as the dimensions of a transformer.

Families differ in what they call things and in what they leave out because it is their default. What is known
of a family is written down here; of others the file itself must say which norm and activation they have.
Architectures that are not a stack of alike attention layers are refused, with what to do instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conccl.core.errors import InputError

_KEYS: dict[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "kv_heads": ("num_key_value_heads", "kv_n_heads", "num_kv_heads"),
    "head_dim": ("v_head_dim", "head_dim", "d_kv"),
    "ffn": ("intermediate_size", "n_inner", "d_ff", "ffn_dim", "hidden_dim", "ffn_hidden_size"),
    "vocab": ("vocab_size",),
    "experts": ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"),
    "experts_per_token": ("num_experts_per_tok", "moe_top_k", "num_experts_per_token"),
    "shared_experts": ("n_shared_experts",),
    "expert_ffn": ("moe_intermediate_size",),
    "dense_layers": ("first_k_dense_replace",),
    "query_rank": ("q_lora_rank",),
    "kv_rank": ("kv_lora_rank",),
    "rope_dim": ("qk_rope_head_dim",),
}
"""Our field -> what configuration files of different families call it; the first that is there counts."""

_NEEDED = ("layers", "hidden", "heads", "vocab")

_GATED_FAMILIES = (
    "llama", "mistral", "mixtral", "ministral", "qwen", "deepseek", "gemma", "phi3", "olmo", "granite",
    "glm", "internlm", "minicpm", "yi", "smollm", "exaone", "hunyuan", "ernie4",
)  # fmt: skip
"""Model types with gated feed-forward blocks, RMS norms and no biases."""

_PLAIN_FAMILIES = (
    "gpt2", "gpt_neo", "gptj", "gpt_bigcode", "opt", "bloom", "falcon", "phi", "codegen", "starcoder2", "mpt",
    "bert", "roberta", "xlm-roberta", "electra", "distilbert", "camembert", "deberta",
)  # fmt: skip
"""Model types with two matrices in a feed-forward block, layer norms and biases."""

_MIXED: dict[str, dict[str, Any]] = {
    "phimoe": {"gated": True, "biased": True, "norm": "layer_norm"},
    "dbrx": {"gated": True, "biased": False, "norm": "layer_norm"},
    "gpt_oss": {"gated": True, "biased": True, "norm": "rms_norm"},
}
"""Families that are between the two."""

_ENCODERS = ("bert", "roberta", "xlm-roberta", "electra", "distilbert", "camembert", "deberta")

_LEARNED_POSITIONS = ("gpt2", "gpt_neo", "gpt_bigcode", "opt", *_ENCODERS)
"""Families with a table of positions; gpt_neox, the one that would match, has none."""

_TIED = ("gemma", "gpt2", "gpt_neo", "gpt_bigcode", "opt", "bloom", "falcon", "mpt", "t5", *_ENCODERS)
"""Families whose output projection shares the embedding where the file does not say."""

_LAYER_NORM = ("layer_norm_eps", "layer_norm_epsilon", "layer_norm_elementwise_affine")

_NO_ATTENTION = (
    "mamba", "jamba", "rwkv", "zamba", "bamba", "falcon_h1", "recurrent_gemma", "nemotron_h", "lfm2",
)  # fmt: skip


def fields_of(config: Mapping[str, Any], /, *, where: str) -> dict[str, Any]:
    """The fields of a `Transformer`; ``where`` names the file in messages."""
    config = _text_part(config)
    family = str(config.get("model_type", "")).lower()
    _require_known(config, family, where=where)
    fields = _numbers(config, where=where)
    _experts(fields, config, family, where=where)
    fields.setdefault("ffn", int(config.get("expansion_ratio") or 4) * fields["hidden"])
    if fields.get("kv_heads") is None and config.get("multi_query"):
        fields["kv_heads"] = 1
    if "head_dim" not in fields and fields["hidden"] % fields["heads"]:
        raise InputError(
            f"{where}: hidden size {fields['hidden']} does not divide into {fields['heads']} heads, and there"
            " is no head_dim."
        )
    fields |= _kind(config, family)
    tied = config.get("tie_word_embeddings")
    fields["tied"] = tied if isinstance(tied, bool) else _is(family, _TIED)
    if _is(family, _LEARNED_POSITIONS):
        fields["positions"] = config.get("max_position_embeddings") or config.get("n_positions") or 0
    fields["causal"] = not _is(family, _ENCODERS) and family != "t5"
    return fields | {"source": where}


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model of a multi-modal one, with nested groups of settings beside the others."""
    text = config.get("text_config")
    if isinstance(text, Mapping):
        config = {"model_type": config.get("model_type", ""), **text}
    nested = [config[key] for key in ("attn_config", "ffn_config") if isinstance(config.get(key), Mapping)]
    flat: dict[str, Any] = {}
    for group in nested:
        flat |= {key: value for key, value in group.items() if key != "model_type"}
    return {**flat, **config}


def _is(family: str, families: tuple[str, ...]) -> bool:
    """Whether a model type is one of these or a variant of one (``gpt_neox`` is none of ``gpt_neo``)."""
    return family != "gpt_neox" and any(
        family == one or family.startswith(one) or family.removesuffix("moe").rstrip("_") == one
        for one in families
    )


def _require_known(config: Mapping[str, Any], family: str, *, where: str) -> None:
    remedy = "Simulate its code: conccl simulate file.py:function."
    if family.startswith(_NO_ATTENTION) or "attn_layer_period" in config or "state_size" in config:
        raise InputError(f"{where}: {family} is not made of attention layers alone. {remedy}")
    encodes_only = any("Encoder" in str(name) for name in config.get("architectures") or ())
    if config.get("is_encoder_decoder") and not encodes_only:
        raise InputError(
            f"{where}: {family} is an encoder and a decoder. {remedy} For its encoder alone write"
            ' "architectures": ["T5EncoderModel"] into the file.'
        )
    for key in ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq"):
        step = config.get(key)
        if isinstance(step, int) and step != 1 and _first(config, "experts"):
            raise InputError(f"{where}: experts in every layer but {key} {step} is not modelled. {remedy}")


def _first(config: Mapping[str, Any], field: str) -> Any:
    return next((config[key] for key in _KEYS[field] if config.get(key) is not None), None)


def _numbers(config: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for field, keys in _KEYS.items():
        value = _first(config, field)
        if value is None:
            if field in _NEEDED:
                raise InputError(f"{where} has no {' or '.join(keys)}. Give a transformer's config.json.")
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError(
                f"{where}: {next(key for key in keys if config.get(key) is not None)} is {value!r};"
                " it must be a whole number."
            )
        fields[field] = value
    for field in _NEEDED:
        if fields[field] < 1:
            raise InputError(f"{where}: {field} is {fields[field]}; it must be 1 or more.")
    return fields


def _experts(fields: dict[str, Any], config: Mapping[str, Any], family: str, *, where: str) -> None:
    """What a mixture of experts has beside the dense fields."""
    if not fields.get("experts"):
        for field in ("experts", "experts_per_token", "expert_ffn", "shared_experts", "dense_layers"):
            fields.pop(field, None)
        return
    if family.startswith("llama4"):  # one shared expert; intermediate_size is the experts' width
        fields["expert_ffn"] = fields.get("ffn", 4 * fields["hidden"])
        fields["shared_experts"] = 1
        fields["ffn"] = config.get("intermediate_size_mlp") or fields["expert_ffn"]
    fields.setdefault("expert_ffn", fields.get("ffn", 4 * fields["hidden"]))
    shared = config.get("shared_expert_intermediate_size")
    if shared:
        fields["shared_experts"] = -(-int(shared) // fields["expert_ffn"])
    dense = config.get("mlp_only_layers") or []
    if dense:
        if sorted(dense) != list(range(len(dense))):
            raise InputError(
                f"{where}: mlp_only_layers {dense} are not the first ones, which alone are modelled."
            )
        fields["dense_layers"] = len(dense)


def _kind(config: Mapping[str, Any], family: str) -> dict[str, Any]:
    """Norms, gates and biases."""
    gated: dict[str, Any] = {"gated": True, "biased": False, "norm": "rms_norm"}
    if family in _MIXED:
        return dict(_MIXED[family])
    if family in ("t5", "mt5", "umt5"):
        projection = str(config.get("feed_forward_proj", "relu"))
        return {"gated": projection.startswith("gated"), "biased": False, "norm": "rms_norm"}
    if _is(family, _GATED_FAMILIES):
        return gated
    if _is(family, _PLAIN_FAMILIES) or family == "gpt_neox":
        return {}
    if "rms_norm_eps" in config:
        return gated
    if any(key in config for key in _LAYER_NORM):
        return {}
    known = ", ".join(sorted({*_GATED_FAMILIES, *_PLAIN_FAMILIES, "gpt_neox", "t5", *_MIXED}))
    raise InputError(
        f"model_type {family!r} is not known, and its file says nothing of its norms (rms_norm_eps or"
        f" layer_norm_eps). Known: {known}."
    )
