"""Decoders from config files: what is read, what is refused in one line, and the layers that are made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoauto.graph.decoders.huggingface import bundled_names, decoder_of, graph_of
from autoauto.records.costs.decoder import Checkpoint, Experts, WeightFormat
from autoauto.records.errors import UnreadableModel
from autoauto.records.units import Precision

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
}


def written(folder: Path, **changes: Any) -> Path:
    """A folder with LLAMA's config; what is changed to None is left out."""
    config = {key: value for key, value in {**LLAMA, **changes}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_folder_and_its_file_are_the_same_model(tmp_path: Path) -> None:
    folder = written(tmp_path)
    decoder = decoder_of(folder)
    assert decoder == decoder_of(folder / "config.json")
    assert (decoder.name, decoder.n_layers, decoder.n_kv_heads, decoder.head_size) == (tmp_path.name, 3, 2, 8)
    assert (decoder.is_tied, decoder.experts, decoder.checkpoint) == (False, None, Checkpoint())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"hidden_size": None}, "hidden_size must be a whole number from 1 to 2,147,483,648, got none in"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be a whole number from 1 to 1,000, got 0 in"),
        ({"vocab_size": "many"}, "vocab_size must be a whole number from 1 to 2,147,483,648, got 'many' in"),
        ({"num_key_value_heads": 9}, "num_key_value_heads must be a whole number from 1 to 8, got 9 in"),
        ({"architectures": None}, "architectures must name one of LlamaForCausalLM,"),
        ({"architectures": ["BertModel"]}, "got 'BertModel' in"),
        ({"architectures": [["LlamaForCausalLM"]]}, "got ['LlamaForCausalLM'] in"),
        ({"quantization_config": {"quant_method": "awq", "bits": [4]}}, "got 'awq' in"),
        (
            {"max_position_embeddings": 8, "rope_scaling": {"type": "linear", "factor": float("inf")}},
            "positions must be scaled by a number to 65,536, got inf in",
        ),
        ({"kv_lora_rank": 512}, "all blocks must be alike, with keys and values in the cache;"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "got 'mxfp4' in"),
    ],
)
def test_a_config_without_what_is_needed_is_refused_in_a_line(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UnreadableModel) as refusal:
        decoder_of(written(tmp_path, **changes))
    assert problem in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("content", ["[1]", "{", "[" * 100_000])
def test_a_file_that_is_no_object_is_refused_in_a_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UnreadableModel, match="must hold"):
        decoder_of(tmp_path)


def test_an_unknown_name_is_refused_with_the_closest() -> None:
    with pytest.raises(UnreadableModel, match=r"a decoder is a folder with config\.json or a bundled name"):
        decoder_of("meta-llama/Meta-Llama-9-1B")


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModel, match="must be a readable file, got: No such file"):
        decoder_of(tmp_path)


@pytest.mark.parametrize(
    ("quantisation", "weights"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, WeightFormat.FP8_BLOCK),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, WeightFormat.FP8_DYNAMIC),
        ({"quant_method": "fp8", "activation_scheme": "static"}, WeightFormat.FP8),
        ({"quant_method": "awq", "bits": 4}, WeightFormat.INT4),
        ({"quant_method": "gptq", "bits": 8}, WeightFormat.INT8),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, WeightFormat.INT4),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, WeightFormat.NVFP4),
    ],
)
def test_the_format_is_that_of_the_checkpoint(
    tmp_path: Path, quantisation: dict[str, Any], weights: WeightFormat
) -> None:
    assert decoder_of(written(tmp_path, quantization_config=quantisation)).checkpoint.weights is weights


def test_the_file_of_nvidia_beside_a_config_names_the_formats(tmp_path: Path) -> None:
    quantisation = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(quantisation))
    assert decoder_of(written(tmp_path)).checkpoint == Checkpoint(WeightFormat.FP8, WeightFormat.FP8)


@pytest.mark.parametrize(
    ("changes", "longest"),
    [
        ({}, None),
        ({"max_position_embeddings": 4096}, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}}, 16384),
        (
            {
                "max_position_embeddings": 40960,
                "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
            },
            131072,
        ),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "yarn", "factor": "four"}}, 4096),
    ],
)
def test_the_longest_sequence_is_that_of_its_positions(
    tmp_path: Path, changes: dict[str, Any], longest: int | None
) -> None:
    assert decoder_of(written(tmp_path, **changes)).checkpoint.max_length == longest


def test_a_mixture_of_experts_has_its_experts(tmp_path: Path) -> None:
    mixtral = written(tmp_path, architectures=["MixtralForCausalLM"], num_local_experts=8, num_experts_per_tok=2)
    assert decoder_of(mixtral).experts == Experts(8, 2, 96)


def test_a_model_with_text_inside_is_its_text(tmp_path: Path) -> None:
    inner = {key: value for key, value in LLAMA.items() if key != "architectures"}
    config = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {**inner, "head_dim": 16}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    decoder = decoder_of(tmp_path)
    assert (decoder.head_size, decoder.is_tied) == (16, True)
    assert any("text only" in note for note in graph_of(decoder).notes)


def test_there_is_a_layer_a_block_between_embedding_norm_and_head(tmp_path: Path) -> None:
    graph = graph_of(decoder_of(written(tmp_path)))
    assert [layer.op for layer in graph.layers] == ["Embedding", *["DecoderBlock"] * 3, "RMSNorm", "Logits"]
    assert [block.layers for block in graph.blocks] == [(1, 2), (2, 3), (3, 4)]
    assert len({layer.kind for layer in graph.layers[1:4]}) == 1
    # embedding and head 100 x 64 each; a block 64 x (64 + 64 + 2 x 16) + 3 x 64 x 96 and two norms
    assert graph.n_weight_bytes(Precision.BF16) == 2 * (2 * 6400 + 3 * (10_240 + 18_432 + 128) + 64)


@pytest.mark.parametrize("is_tied", [True, False])
def test_every_tensor_is_written_and_read_by_the_layers_that_name_it(tmp_path: Path, is_tied: bool) -> None:
    graph = graph_of(decoder_of(written(tmp_path, tie_word_embeddings=is_tied)))
    readers: dict[int, int] = {}
    for index, layer in enumerate(graph.layers):
        assert all(graph.tensors[output].producer == index for output in layer.outputs)
        readers |= dict.fromkeys((*layer.inputs, *layer.weights), index)
    assert all(graph.tensors[tensor].last_use == last for tensor, last in readers.items())
    assert set(range(len(graph.tensors))) - set(readers) == set(graph.layers[-1].outputs)


def test_tied_embeddings_are_one_tensor_of_two_tied_layers(tmp_path: Path) -> None:
    graph = graph_of(decoder_of(written(tmp_path, tie_word_embeddings=True)))
    first, last = graph.layers[0], graph.layers[-1]
    assert first.weights == last.weights
    assert first.tied == last.tied is not None
    assert all(layer.tied is None for layer in graph.layers[1:-1])


def test_models_that_differ_have_other_contents(tmp_path: Path) -> None:
    first = graph_of(decoder_of(written(tmp_path)))
    other = graph_of(decoder_of(written(tmp_path, num_key_value_heads=4)))
    assert first.content != other.content


def test_bundled_models_are_read_by_name() -> None:
    pytest.importorskip("aiconfigurator_core", reason="it bundles the configs")
    assert "Qwen/Qwen3-32B" in bundled_names()
    llama = decoder_of("meta-llama/Llama-3.1-70B-Instruct")
    assert (llama.name, llama.n_layers, llama.vocabulary_size) == ("meta-llama/Meta-Llama-3.1-70B", 80, 128_256)
    assert graph_of(llama).n_weight_bytes(Precision.BF16) == pytest.approx(2 * 70.55e9, rel=1e-3)
