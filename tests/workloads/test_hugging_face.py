"""Configuration files as their authors publish them, and the parameters that they publish."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from conccl.cli.main import app
from conccl.core.errors import InputError
from conccl.workloads.models import model

Config = dict[str, Any]


def config(family: str, *sizes: int, **others: Any) -> Config:
    """Hidden size, feed-forward width, layers, heads, vocabulary by the usual names."""
    hidden, ffn, layers, heads, vocab = sizes
    usual = {
        "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
        "num_attention_heads": heads, "vocab_size": vocab,
    }  # fmt: skip
    return {"model_type": family, **usual, **others}


UNTIED = {"tie_word_embeddings": False}
DEEPSEEK = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}

PUBLISHED: list[tuple[str, Config, float]] = [
    ("llama-2-7b", config("llama", 4096, 11008, 32, 32, 32000, num_key_value_heads=32), 6.74e9),
    ("llama-3-8b", config("llama", 4096, 14336, 32, 32, 128256, num_key_value_heads=8, **UNTIED), 8.03e9),
    ("mistral-7b", config("mistral", 4096, 14336, 32, 32, 32000, num_key_value_heads=8), 7.24e9),
    (
        "mixtral-8x7b",
        config("mixtral", 4096, 14336, 32, 32, 32000, num_key_value_heads=8, num_local_experts=8,
               num_experts_per_tok=2),
        46.7e9,
    ),
    ("qwen2-7b", config("qwen2", 3584, 18944, 28, 28, 152064, num_key_value_heads=4, **UNTIED), 7.62e9),
    ("qwen3-8b", config("qwen3", 4096, 12288, 36, 32, 151936, num_key_value_heads=8, head_dim=128), 8.19e9),
    (
        "qwen1.5-moe-a2.7b",
        config("qwen2_moe", 2048, 5632, 24, 16, 151936, num_experts=60, num_experts_per_tok=4,
               moe_intermediate_size=1408, shared_expert_intermediate_size=5632, decoder_sparse_step=1),
        14.3e9,
    ),
    (
        "qwen3-30b-a3b",
        config("qwen3_moe", 2048, 6144, 48, 32, 151936, num_key_value_heads=4, head_dim=128, num_experts=128,
               num_experts_per_tok=8, moe_intermediate_size=768, mlp_only_layers=[], decoder_sparse_step=1),
        30.5e9,
    ),
    ("gemma-7b", config("gemma", 3072, 24576, 28, 16, 256000, head_dim=256), 8.54e9),
    (
        "gemma-2-9b",
        config("gemma2", 3584, 14336, 42, 16, 256000, num_key_value_heads=8, head_dim=256),
        9.24e9,
    ),
    (
        "gemma-3-4b, the text part",
        {
            "model_type": "gemma3",
            "vision_config": {"hidden_size": 1152},
            "text_config": config(
                "gemma3_text", 2560, 10240, 34, 8, 262208, num_key_value_heads=4, head_dim=256
            ),
        },
        3.88e9,
    ),
    (
        "deepseek-v3",
        config("deepseek_v3", 7168, 18432, 61, 128, 129280, n_routed_experts=256, n_shared_experts=1,
               num_experts_per_tok=8, first_k_dense_replace=3, moe_intermediate_size=2048, q_lora_rank=1536,
               **DEEPSEEK),
        671e9,
    ),
    (
        "deepseek-v2-lite",
        config("deepseek_v2", 2048, 10944, 27, 16, 102400, n_routed_experts=64, n_shared_experts=2,
               num_experts_per_tok=6, first_k_dense_replace=1, moe_intermediate_size=1408, q_lora_rank=None,
               **DEEPSEEK),
        15.7e9,
    ),
    ("gpt-neox-20b", config("gpt_neox", 6144, 24576, 44, 64, 50432, **UNTIED), 20.6e9),
    (
        "gpt2",
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
         "vocab_size": 50257, "n_inner": None},
        124e6,
    ),
    ("phi-2", config("phi", 2560, 10240, 32, 32, 51200, num_key_value_heads=None, **UNTIED), 2.78e9),
    ("phi-3-mini", config("phi3", 3072, 8192, 32, 32, 32064, num_key_value_heads=32), 3.82e9),
    (
        "phi-3.5-moe",
        config("phimoe", 4096, 6400, 32, 32, 32064, num_key_value_heads=8, num_local_experts=16,
               num_experts_per_tok=2),
        41.9e9,
    ),
    (
        "gpt-oss-20b",
        config("gpt_oss", 2880, 2880, 24, 64, 201088, num_key_value_heads=8, head_dim=64,
               num_local_experts=32, num_experts_per_tok=4),
        20.9e9,
    ),
    (
        "llama-4-scout, the text part",
        {
            "model_type": "llama4",
            "text_config": config("llama4_text", 5120, 8192, 48, 40, 202048, num_key_value_heads=8,
                                  head_dim=128, num_local_experts=16, num_experts_per_tok=1,
                                  intermediate_size_mlp=16384),
        },
        107.8e9,
    ),
    (
        "dbrx",
        {"model_type": "dbrx", "d_model": 6144, "n_layers": 40, "n_heads": 48, "vocab_size": 100352,
         "attn_config": {"kv_n_heads": 8},
         "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}},
        132e9,
    ),
    ("bert-large", config("bert", 1024, 4096, 24, 16, 30522, max_position_embeddings=512), 335e6),
    (
        "distilbert",
        {"model_type": "distilbert", "dim": 768, "hidden_dim": 3072, "n_layers": 6, "n_heads": 12,
         "vocab_size": 30522, "max_position_embeddings": 512},
        66e6,
    ),
    (
        "the encoder of t5-v1.1-xxl",
        {"model_type": "t5", "architectures": ["T5EncoderModel"], "is_encoder_decoder": True, "d_model": 4096,
         "d_ff": 10240, "d_kv": 64, "num_layers": 24, "num_heads": 64, "vocab_size": 32128,
         "feed_forward_proj": "gated-gelu"},
        4.76e9,
    ),
]  # fmt: skip


def written(folder: Path, value: object) -> str:
    (folder / "config.json").write_text(json.dumps(value))
    return str(folder)


@pytest.mark.parametrize(
    ("value", "parameters"), [one[1:] for one in PUBLISHED], ids=[one[0] for one in PUBLISHED]
)
def test_published_configurations_have_their_parameters(
    tmp_path: Path, value: Config, parameters: float
) -> None:
    assert model(written(tmp_path, value)).parameters == pytest.approx(parameters, rel=0.02)


@pytest.mark.parametrize("index", range(0, len(PUBLISHED), 3), ids=lambda index: PUBLISHED[index][0])
def test_they_can_be_simulated(tmp_path: Path, index: int) -> None:
    words = ["simulate", written(tmp_path, PUBLISHED[index][1]), "--device", "b200-sxm", "--fsdp", "64"]
    result = CliRunner().invoke(app, [*words, "--length", "512", "--format", "json"], catch_exceptions=False)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["iteration_ns"] > 0


LLAMA = config("llama", 4096, 11008, 32, 32, 32000)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"model_type": "t5", "d_model": 8, "is_encoder_decoder": True},
            "an encoder and a decoder.*T5EncoderModel",
        ),
        ({**LLAMA, "model_type": "mamba", "state_size": 16}, "not made of attention layers alone"),
        ({**LLAMA, "model_type": "jamba", "attn_layer_period": 8}, "not made of attention layers alone"),
        ({**LLAMA, "model_type": "zebra"}, "'zebra' is not known.*Known: .*llama"),
        ({**LLAMA, "num_key_value_heads": 7}, "do not divide into 7"),
        ({**LLAMA, "hidden_size": "4096"}, "hidden_size is '4096'; it must be a whole number"),
        ({**LLAMA, "intermediate_size": "x"}, "intermediate_size is 'x'"),
        ({**LLAMA, "num_hidden_layers": 0}, "layers is 0; it must be 1 or more"),
        ({**LLAMA, "num_attention_heads": True}, "num_attention_heads is True"),
        ({**LLAMA, "hidden_size": 4097}, "does not divide into 32 heads"),
        ({**LLAMA, "num_experts": 8, "num_experts_per_tok": 9}, "experts_per_token from 1 to 8"),
        (
            {**LLAMA, "num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 2},
            "decoder_sparse_step 2",
        ),
        ({key: LLAMA[key] for key in LLAMA if key != "vocab_size"}, "has no vocab_size"),
        ([], "holds no JSON object"),
    ],
)
def test_what_is_no_such_transformer_is_refused_with_a_remedy(
    tmp_path: Path, value: object, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        model(written(tmp_path, value))


def test_unknown_families_that_say_their_norm_are_read(tmp_path: Path) -> None:
    read = model(written(tmp_path, {**LLAMA, "model_type": "zebra", "rms_norm_eps": 1e-6}))
    assert read.gated
    assert not read.biased
