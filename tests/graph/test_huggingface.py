"""Decoders from config files: what is read, what is refused in one line, and the layers that are made of them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from autoauto.graph.decoders.huggingface import bundled_names, decoder_of
from autoauto.graph.decoders.layers import graph_of
from autoauto.records.costs.blocks import Attention
from autoauto.records.costs.decoder import Checkpoint, Decoder, Experts, WeightFormat
from autoauto.records.errors import UnreadableModel
from autoauto.records.installation import gpu_tables_dir
from autoauto.records.units import Precision

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 512,
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
    assert (decoder.is_tied, decoder.experts, decoder.checkpoint) == (False, None, Checkpoint(max_length=512))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"hidden_size": None}, "hidden_size must be a whole number from 1 to 2,147,483,648, got none in"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be a whole number from 1 to 1,000, got 0 in"),
        ({"vocab_size": "many"}, "vocab_size must be a whole number from 1 to 2,147,483,648, got 'many' in"),
        ({"num_key_value_heads": 9}, "num_key_value_heads must be a whole number from 1 to 8, got 9 in"),
        ({"num_key_value_heads": 3}, "num_key_value_heads must divide the 8 num_attention_heads, got 3 in"),
        ({"architectures": None}, "architectures must name one of LlamaForCausalLM,"),
        ({"architectures": ["BertModel"]}, "is not modelled; modelled decoders are LlamaForCausalLM, "),
        (
            {"architectures": ["Llama9ForCausalLM"]},
            "is not modelled; near it is LlamaForCausalLM; a copy of the config",
        ),
        ({"architectures": ["Jais2ForCausalLM"], "num_local_experts": 16}, "near it is MixtralForCausalLM;"),
        ({"architectures": ["Qwen9MoeForCausalLM"], "num_experts": 8}, "near it is Qwen3MoeForCausalLM;"),
        ({"architectures": ["Qwen2_5_VLForConditionalGeneration"]}, "near it is Qwen2ForCausalLM;"),
        (
            {"architectures": ["JambaForCausalLM"], "num_experts": 16, "mamba_d_state": 16},
            "is not modelled: it has layers of Mamba beside others; modelled decoders are",
        ),
        (
            {"architectures": ["MiniMaxText01ForCausalLM"], "attn_type_list": [0, 1]},
            "is not modelled: it has lightning attention, of which no kernels were measured; modelled decoders are",
        ),
        (
            {"architectures": ["DeepseekV4ForCausalLM"], "compress_ratios": [0, 4]},
            "is not modelled: its attention reads compressed tokens, and its blocks have several residual streams;",
        ),
        ({"architectures": [["LlamaForCausalLM"]]}, "got ['LlamaForCausalLM'] in"),
        ({"layer_types": ["full_attention"]}, "layer_types must be 3 of full_attention and sliding_attention, got ["),
        ({"layer_types": ["chunked_attention"] * 3}, "layer_types must be 3 of full_attention and sliding_attention"),
        (
            {"max_position_embeddings": 8, "rope_scaling": {"type": "linear", "factor": float("inf")}},
            "positions must be scaled by a number to 65,536, got inf in",
        ),
        (
            {"max_position_embeddings": 8, "rope_scaling": {"type": "linear", "factor": "4"}},
            "positions must be scaled by a number to 65,536, got '4' in",
        ),
        (
            {"hidden_size": 68},
            "num_attention_heads must divide the hidden_size of 68 where there is no head_dim, got 8",
        ),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings must be true or false, got 'false' in"),
        ({"torch_dtype": "float8_e4m3fn"}, "where no quantization_config says how weights are stored, got 'float8_e4"),
        (
            {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": "false"},
            "use_sliding_window must be true or false, got 'false' in",
        ),
        (
            {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True, "max_window_layers": "2"},
            "max_window_layers must be a whole number from 0 to 2,147,483,648, got '2' in",
        ),
        (
            {"architectures": ["Gemma3ForCausalLM"], "sliding_window_pattern": "LLG"},
            "sliding_window_pattern must be a whole number from 1 to 2,147,483,648, got 'LLG' in",
        ),
        ({"mlp_only_layers": ["0"]}, "mlp_only_layers must be a list of whole numbers, got ['0'] in"),
        ({"mlp_layer_types": ["dens"] * 3}, "mlp_layer_types must be a list of 'dense' or 'sparse' or 'moe', got ['d"),
        ({"moe_layer_freq": ["0"] * 3}, "moe_layer_freq must be a list of 0 or 1, got ['0', "),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim must be a whole number from 1 to 2,147,483,648, got none in"),
        ({"first_k_dense_replace": "one"}, "decoder_sparse_step must be numbers, got 'one', 1 and 1 in"),
        ({"moe_layer_freq": [0, 1]}, "moe_layer_freq must have 3 entries, got 2 in"),
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


def test_the_file_of_nvidia_beside_a_config_names_the_formats(tmp_path: Path) -> None:
    quantisation = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(quantisation))
    assert decoder_of(written(tmp_path)).checkpoint == Checkpoint(WeightFormat.FP8, WeightFormat.FP8, 512)


@pytest.mark.parametrize(
    ("changes", "longest"),
    [
        ({"max_position_embeddings": None}, 2048),
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
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),
        ({"max_position_embeddings": 8192, "model_max_length": None}, 8192),
    ],
)
def test_the_longest_sequence_is_that_of_its_positions(
    tmp_path: Path, changes: dict[str, Any], longest: int | None
) -> None:
    assert decoder_of(written(tmp_path, **changes)).checkpoint.max_length == longest


@pytest.mark.parametrize(
    ("architecture", "longest"), [("Gemma3ForCausalLM", 4096), ("Qwen2ForCausalLM", 32768), ("Phi3ForCausalLM", 32768)]
)
def test_positions_of_gemma_3_are_scaled_already(tmp_path: Path, architecture: str, longest: int) -> None:
    scaling = {"rope_type": "linear", "factor": 8.0}
    folder = written(tmp_path, architectures=[architecture], max_position_embeddings=4096, rope_scaling=scaling)
    assert decoder_of(folder).checkpoint.max_length == longest


def test_positions_of_longrope_are_scaled_already(tmp_path: Path) -> None:
    scaling = {"type": "longrope", "long_factor": [1.0], "short_factor": [1.0], "factor": 32.0}
    folder = written(tmp_path, architectures=["Phi3ForCausalLM"], max_position_embeddings=131072, rope_scaling=scaling)
    assert decoder_of(folder).checkpoint.max_length == 131072


def nested(folder: Path, architecture: str, **text: Any) -> Path:
    (folder / "config.json").write_text(json.dumps({"architectures": [architecture], "text_config": text}))
    return folder


def test_a_nested_config_has_the_defaults_of_its_class(tmp_path: Path) -> None:
    """gemma-3-4b as it is published: no vocabulary, heads or positions; 3.88 billion weights of text."""
    folder = nested(
        tmp_path,
        "Gemma3ForConditionalGeneration",
        **{"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34},
        **{"rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
    )
    decoder = decoder_of(folder)
    assert (decoder.n_heads, decoder.n_kv_heads, decoder.head_size, decoder.vocabulary_size) == (8, 4, 256, 262_208)
    assert (decoder.is_tied, decoder.checkpoint.max_length) == (True, 131_072)
    assert windows_of(decoder) == [1024] * 29, "all but every sixth of 34 blocks"
    assert any("vocab_size 262,208, num_attention_heads 8," in note for note in graph_of(decoder).notes)
    assert graph_of(decoder).n_weight_bytes(Precision.BF16) == pytest.approx(2 * 3.88e9, rel=1e-3)


@pytest.mark.parametrize(
    ("architecture", "is_tied", "head_size", "n_kv_heads"),
    [
        ("LlamaForCausalLM", False, 8, 8),
        ("MistralForCausalLM", False, 8, 8),
        ("Qwen3ForCausalLM", False, 128, 8),
        ("GemmaForCausalLM", True, 256, 8),
    ],
)
def test_what_a_config_leaves_out_its_class_says(
    tmp_path: Path, architecture: str, is_tied: bool, head_size: int, n_kv_heads: int
) -> None:
    folder = written(
        tmp_path, architectures=[architecture], num_attention_heads=32, num_key_value_heads=8, hidden_size=256
    )
    decoder = decoder_of(folder)
    assert (decoder.is_tied, decoder.head_size, decoder.n_kv_heads) == (is_tied, head_size, n_kv_heads)


def test_heads_of_keys_and_values_that_are_not_given_are_those_of_the_class(tmp_path: Path) -> None:
    without = {"num_key_value_heads": None, "num_attention_heads": 16}
    assert decoder_of(written(tmp_path, **without)).n_kv_heads == 16
    assert decoder_of(written(tmp_path, architectures=["MistralForCausalLM"], **without)).n_kv_heads == 8


def windows_of(decoder: Decoder) -> list[int]:
    """Those of the blocks that have one."""
    attentions = [decoder.block_kinds[number].attention for number in decoder.block_order]
    return [each.window for each in attentions if isinstance(each, Attention) and each.window]


_KINDS = ["sliding_attention", "sliding_attention", "full_attention"]


@pytest.mark.parametrize(
    ("architecture", "changes", "window"),
    [
        ("LlamaForCausalLM", {"sliding_window": 64}, None),
        ("LlamaForCausalLM", {"sliding_window": 64, "layer_types": _KINDS}, (2, 64)),
        ("Qwen2ForCausalLM", {"sliding_window": 64, "use_sliding_window": False, "max_window_layers": 1}, None),
        ("Qwen2ForCausalLM", {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 1}, (2, 64)),
        ("Qwen2ForCausalLM", {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 3}, None),
        ("Qwen3ForCausalLM", {"sliding_window": 64, "layer_types": _KINDS}, None),
        ("MistralForCausalLM", {"sliding_window": 64}, (3, 64)),
        ("MistralForCausalLM", {"max_position_embeddings": 32_768}, (3, 4096)),
        ("MistralForCausalLM", {"sliding_window": 512}, None),
        ("Phi3ForCausalLM", {"sliding_window": 64}, (3, 64)),
        ("Gemma2ForCausalLM", {"sliding_window": 64}, (2, 64)),
        ("Gemma3ForCausalLM", {"sliding_window": 64, "sliding_window_pattern": 3}, (2, 64)),
        ("Gemma3ForCausalLM", {"sliding_window": 64, "layer_types": ["full_attention"] * 3}, None),
    ],
)
def test_blocks_with_a_window_are_counted(
    tmp_path: Path, architecture: str, changes: dict[str, Any], window: tuple[int, int] | None
) -> None:
    decoder = decoder_of(written(tmp_path, architectures=[architecture], **changes))
    assert windows_of(decoder) == ([window[1]] * window[0] if window else [])


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({}, [8192, 8192, 8192, None, 8192, 8192, 8192, None]),  # every fourth block sees all tokens
        ({"attention_chunk_size": 128}, [128, 128, 128, None, 128, 128, 128, None]),
        ({"attention_chunk_size": 32_768}, [None] * 8),  # one chunk has all
        ({"layer_types": ["full_attention"] * 7 + ["chunked_attention"]}, [*[None] * 7, 8192]),
    ],
)
def test_three_of_four_blocks_of_llama_4_attend_to_a_chunk(
    tmp_path: Path, changes: dict[str, Any], windows: list[int | None]
) -> None:
    folder = written(
        tmp_path,
        architectures=["Llama4ForConditionalGeneration"],
        num_hidden_layers=8,
        max_position_embeddings=32_768,
        **changes,
    )
    decoder = decoder_of(folder)
    attentions = [decoder.block_kinds[number].attention for number in decoder.block_order]
    assert [each.window for each in attentions if isinstance(each, Attention)] == windows


def test_a_window_is_said_with_what_a_sequence_holds(tmp_path: Path) -> None:
    """2 x 2 heads of 64 elements and 2 bytes: 0.5 KiB a token in the one block without a window."""
    folder = written(tmp_path, head_dim=64, max_position_embeddings=1_048_576, sliding_window=64, layer_types=_KINDS)
    assert graph_of(decoder_of(folder)).notes == (
        "2 of 3 blocks attend to the last 64 tokens, and the KV cache has no others of them.",
        "A sequence of 1,048,576 tokens holds 0.5 GiB.",
    )


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


def _bundled_texts() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """A bundled config of every class, with the part that describes its text."""
    folder, of_class = gpu_tables_dir(), {}
    assert folder is not None
    for path in sorted((folder / "model_configs").glob("*_config.json")):
        config = json.loads(path.read_text())
        text = config.get("text_config", config)
        of_class[str(config.get("architectures"))] = config, text
    return of_class


@pytest.mark.parametrize("given", [0, None])
def test_no_shared_experts_are_none_where_the_class_has_one(tmp_path: Path, given: int | None) -> None:
    pytest.importorskip("aiconfigurator_core", reason="it has the configs")
    config, text = _bundled_texts()["['DeepseekV3ForCausalLM']"]
    for n_shared, shared_size in ((1, text["moe_intermediate_size"]), (given, 0)):
        text["n_shared_experts"] = n_shared
        (tmp_path / "config.json").write_text(json.dumps(config))
        experts = decoder_of(tmp_path).experts
        assert experts is not None
        assert experts.shared_size == shared_size


@pytest.mark.slow
@pytest.mark.parametrize("value", [None, "x", [], {}, -1, 0, 0.5, 10**12, [[1]], True], ids=str)
def test_an_odd_value_of_any_key_is_read_or_refused_in_a_line(tmp_path: Path, value: object) -> None:
    pytest.importorskip("aiconfigurator_core", reason="it has the configs")
    for config, text in _bundled_texts().values():
        for key, given in list(text.items()):
            text[key] = value
            (tmp_path / "config.json").write_text(json.dumps(config))
            text[key] = given
            with suppress(UnreadableModel):
                assert decoder_of(tmp_path).n_layers > 0
