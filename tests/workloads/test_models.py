"""Published dimensions against published parameter counts, and configuration files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conccl.core.errors import InputError, UnknownNameError
from conccl.core.ops import RowwiseKind
from conccl.workloads.models import model, model_names

PUBLISHED_PARAMETERS = {
    "gpt2": 124e6,
    "gpt2-medium": 355e6,
    "gpt2-xl": 1.56e9,
    "mega-gpt2": 8.3e9,
    "t-nlg": 17e9,
    "gpt3-175b": 175e9,
    "palm-540b": 540e9,
    "mt-nlg-530b": 530e9,
    "llama3-8b": 8.03e9,
    "llama3-70b": 70.6e9,
    "llama3-405b": 405e9,
    "mixtral-8x7b": 46.7e9,
    "deepseek-v3": 671e9,
    "bert-base": 110e6,
    "bert-large": 335e6,
}


def test_every_model_has_a_published_count() -> None:
    assert set(PUBLISHED_PARAMETERS) == set(model_names())


@pytest.mark.parametrize("name", PUBLISHED_PARAMETERS)
def test_dimensions_give_the_published_parameters(name: str) -> None:
    assert model(name).parameters == pytest.approx(PUBLISHED_PARAMETERS[name], rel=0.03)


def test_unknown_model_offers_near_names() -> None:
    with pytest.raises(UnknownNameError, match="llama3-8b"):
        model("llama3-8")


def test_hugging_face_llama(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    read = model(str(tmp_path))
    assert read.parameters == model("llama3-8b").parameters
    assert read.gated
    assert read.norm is RowwiseKind.RMS_NORM


def test_hugging_face_bert_is_not_causal(tmp_path: Path) -> None:
    config = {
        "model_type": "bert",
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "vocab_size": 30522,
        "max_position_embeddings": 512,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert model(str(path)).parameters == model("bert-base").parameters
    assert not model(str(path)).causal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "no JSON object"),
        ("{}", "num_hidden_layers"),
        ('{"n_layer": "x", "n_embd": 1, "n_head": 1, "vocab_size": 1}', "n_layer is 'x'"),
        ('{"n_layer": 1, "n_embd": 0, "n_head": 1, "vocab_size": 1}', "hidden"),
        (
            '{"model_type": "gpt2", "n_layer": 1, "n_embd": 64, "n_head": 4, "num_key_value_heads": 3,'
            ' "vocab_size": 1}',
            "KV heads",
        ),
    ],
)
def test_bad_configuration_says_what_is_missing(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        model(str(path))


def test_missing_configuration_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        model(str(tmp_path / "config.json"))
