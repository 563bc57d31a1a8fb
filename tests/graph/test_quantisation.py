"""Formats of checkpoints: every method's list of modules, what one part has, and what is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoauto.graph.decoders.huggingface import decoder_of
from autoauto.graph.decoders.layers import graph_of
from autoauto.records.costs.decoder import BlockPart, PartFormat, WeightFormat
from autoauto.records.errors import UnreadableModel
from tests.decoders import decoder_folder

BF16, FP8, FP8_DYNAMIC = WeightFormat.BF16, WeightFormat.FP8, WeightFormat.FP8_DYNAMIC
INT4, INT8, NVFP4 = WeightFormat.INT4, WeightFormat.INT8, WeightFormat.NVFP4
MIXTURE = {"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 4, "num_experts_per_tok": 2}
ATTENTION, FEED_FORWARD = {BlockPart.QKV, BlockPart.OUTPUT}, {BlockPart.GATE_UP, BlockPart.DOWN}
DYNAMIC: dict[str, object] = {"num_bits": 8, "type": "float", "dynamic": True}


def groups(weights: dict[str, object], activations: object = None, **others: object) -> dict[str, Any]:
    """A config of compressed-tensors with one scheme."""
    scheme = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": scheme}, **others}


def formats(folder: Path, entry: dict[str, Any], **changes: object) -> dict[BlockPart, PartFormat]:
    decoder = decoder_of(decoder_folder(folder / "model", quantization_config=entry, **changes))
    return decoder.part_formats(decoder.checkpoint.weights)


def refusal(folder: Path, entry: dict[str, Any], **changes: object) -> str:
    with pytest.raises(UnreadableModel) as refused:
        formats(folder, entry, **changes)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("entry", "weights", "group_size"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, WeightFormat.FP8_BLOCK, None),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, FP8_DYNAMIC, None),
        ({"quant_method": "fp8"}, FP8_DYNAMIC, None),
        ({"quant_method": "fp8", "activation_scheme": "static"}, FP8, None),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, FP8_DYNAMIC, None),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, INT4, 128),
        ({"quant_method": "awq", "w_bit": 8, "q_group_size": 64}, INT8, 64),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, INT8, None),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, NVFP4, 16),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 128}, INT4, 128),
        (groups({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}), INT4, 32),
        (groups({"num_bits": 8, "type": "int", "strategy": "channel"}), INT8, None),
        (groups({"num_bits": 8, "type": "int"}, {"num_bits": 8, "type": "int"}), WeightFormat.INT8_W8A8, None),
        (groups({"num_bits": 8, "type": "float", "strategy": "channel"}), WeightFormat.FP8_W8A16, None),
        (groups({"num_bits": 8, "type": "float", "strategy": "channel"}, DYNAMIC), FP8_DYNAMIC, None),
        (groups({"num_bits": 8, "type": "float", "strategy": "tensor"}, DYNAMIC | {"dynamic": False}), FP8, None),
        (
            groups({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}, DYNAMIC),
            WeightFormat.FP8_BLOCK,
            None,
        ),
        (
            groups(
                {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
                {"num_bits": 4, "type": "float"},
            ),
            NVFP4,
            16,
        ),
    ],
)
def test_all_parts_have_the_format_of_the_method(
    tmp_path: Path, entry: dict[str, Any], weights: WeightFormat, group_size: int | None
) -> None:
    assert set(formats(tmp_path, entry).values()) == {PartFormat(weights, group_size)}


@pytest.mark.parametrize(
    ("entry", "given"),
    [
        ({"quant_method": "awq", "bits": [4]}, "got awq of [4] bits in model"),
        ({"quant_method": "gptq", "bits": 3}, "got gptq of 3 bits in model"),
        ({"quant_method": "mxfp4"}, "got mxfp4 of qkv_proj in model"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "got bitsandbytes in model"),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "got fp8 in blocks of [64, 64] in model"),
        ({"quant_method": "fp8", "bits": 4}, "got fp8 of 4 bits in model"),
        (
            {"quant_method": "fp8", "activation_scheme": "token"},
            "got fp8 with activations by 'token' instead of",
        ),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "got w4a8_awq in model"),
        (
            groups({"num_bits": 4, "type": "int"}, {"num_bits": 8, "type": "int"}),
            "got int4 by tensor with activations of int8",
        ),
        (groups({"num_bits": 4, "type": "float", "group_size": 32}), "got float4 by group with activations of 16 bits"),
        (groups({"num_bits": 6, "type": "int"}), "got int6 by tensor with activations of 16 bits"),
        (groups({}, sparsity_config={"format": "sparse-24-bitmask"}), "weights must be dense, got 'sparse-24-bitmask'"),
        (
            {"quant_method": "compressed-tensors", "format": "pack-quantized"},
            "needs config_groups of schemes, got None",
        ),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "needs quantized_layers, got None"),
    ],
)
def test_another_format_is_refused_in_a_line(tmp_path: Path, entry: dict[str, Any], given: str) -> None:
    assert given in refusal(tmp_path, entry)


OF_BLOCKS = [f"model.layers.{i}.mlp.{name}_proj" for i in range(6) for name in ("gate", "up", "down")]


@pytest.mark.parametrize(
    ("entry", "in_bf16"),
    [
        (groups({"num_bits": 8, "type": "int"}, ignore=["lm_head", *OF_BLOCKS]), FEED_FORWARD),
        (groups({"num_bits": 8, "type": "int"}, ignore=["lm_head", "re:.*self_attn.*"]), ATTENTION),
        (groups({"num_bits": 8, "type": "int"}, ignore=[r"re:.*\.(q|k|v)_proj$"]), {BlockPart.QKV}),
        (groups({"num_bits": 8, "type": "int"}, ignore=["re:self_attn.*", "model.layers.9.mlp.down_proj"]), set()),
        (
            {"quant_method": "fp8", "modules_to_not_convert": [f"model.layers.{i}.self_attn" for i in range(6)]},
            ATTENTION,
        ),
        ({"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["self_attn", "visual"]}, ATTENTION),
        ({"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["_attn."]}, ATTENTION),
        ({"quant_method": "awq", "bits": 4, "modules_to_not_convert": "self_attn"}, ATTENTION),
        (groups({"num_bits": 8}, ignore=[r"re:.*layers\.\d+\.self_attn\.[a-z]+_proj.*"]), ATTENTION),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {r"-:.*\.mlp\..*": {}}}, FEED_FORWARD),
        (
            {"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": [["mlp.gate_proj", "mlp.up_proj"]]},
            {*ATTENTION, BlockPart.DOWN},
        ),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "FP8",
                "exclude_modules": ["lm_head", "model.layers.*.self_attn*"],
            },
            ATTENTION,
        ),
    ],
)
def test_modules_that_are_left_out_have_16_bits(tmp_path: Path, entry: dict[str, Any], in_bf16: set[BlockPart]) -> None:
    assert {part for part, stored in formats(tmp_path, entry).items() if stored.weights is BF16} == in_bf16
    notes = " ".join(graph_of(decoder_of(tmp_path / "model")).notes)
    assert all(part in notes for part in in_bf16)


def test_a_list_that_names_all_leaves_16_bits(tmp_path: Path) -> None:
    entry = {"quant_method": "fp8", "modules_to_not_convert": ["model.layers"]}
    assert set(formats(tmp_path, entry).values()) == {PartFormat()}


@pytest.mark.parametrize("routers", [["gate"], ["mlp.gate"], [f"model.layers.{i}.mlp.gate" for i in range(6)]])
def test_a_router_has_16_bits_in_any_case(tmp_path: Path, routers: list[str]) -> None:
    entry = {"quant_method": "awq", "bits": 4, "modules_to_not_convert": routers}
    assert set(formats(tmp_path, entry, **MIXTURE).values()) == {PartFormat(INT4)}


@pytest.mark.parametrize(
    ("entry", "experts", "attention"),
    [
        ({"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["self_attn"]}, INT4, BF16),
        ({"quant_method": "gptq", "bits": 8, "dynamic": {"+:.*experts.*": {"bits": 4}}}, INT4, INT8),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    **{f"model.layers.{i}.mlp.experts": {"quant_algo": "NVFP4"} for i in range(6)},
                    **{f"model.layers.{i}.self_attn.{n}_proj": {"quant_algo": "FP8"} for i in range(6) for n in "qkvo"},
                },
            },
            NVFP4,
            FP8,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"targets": ["Linear"], "weights": {"num_bits": 8}},
                    "group_1": {"targets": ["re:.*mlp.experts.*"], "weights": {"num_bits": 4}},
                },
            },
            INT4,
            INT8,
        ),
    ],
)
def test_parts_have_several_formats(
    tmp_path: Path, entry: dict[str, Any], experts: WeightFormat, attention: WeightFormat
) -> None:
    stored = formats(tmp_path, entry, **MIXTURE)
    assert (stored[BlockPart.EXPERTS].weights, stored[BlockPart.QKV].weights) == (experts, attention)
    assert decoder_of(tmp_path / "model").checkpoint.weights is experts, "most weights are theirs"


def test_blocks_of_several_formats_are_kinds_and_said_with_their_numbers(tmp_path: Path) -> None:
    entry = {
        "quant_method": "fp8",
        "modules_to_not_convert": [f"model.layers.{i}.mlp.{n}_proj" for i in (0, 1, 5) for n in ("gate", "up", "down")],
    }
    decoder = decoder_of(decoder_folder(tmp_path / "model", quantization_config=entry, num_hidden_layers=8))
    assert decoder.order == (0, 0, 1, 1, 1, 0, 1, 1)
    assert "Of blocks 0-1, 5, gate_up_proj, down_proj are in bf16." in graph_of(decoder).notes


def test_the_first_and_the_last_block_may_be_stored_otherwise(tmp_path: Path) -> None:
    """Attention in bf16, and all of both ends."""
    ends = [f"model.layers.{i}.mlp" for i in (0, 5)]
    entry = {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["self_attn", *ends, "lm_head"]}
    decoder = decoder_of(decoder_folder(tmp_path / "model", quantization_config=entry))
    in_bf16 = tuple((part, PartFormat()) for part in (BlockPart.GATE_UP, BlockPart.DOWN))
    assert decoder.checkpoint.weights is FP8_DYNAMIC
    assert decoder.order == (0, 1, 1, 1, 1, 0)
    outer, inside = (dict(kind.unlike) for kind in decoder.kinds)
    assert outer == dict.fromkeys(ATTENTION, PartFormat()) | dict(in_bf16)
    assert inside == dict.fromkeys(ATTENTION, PartFormat())
    assert set(decoder.by_kind[0].part_formats(FP8_DYNAMIC).values()) == {PartFormat()}
    assert "Of the first and the last block, gate_up_proj, down_proj are in bf16." in graph_of(decoder).notes


def test_one_expert_of_another_format_is_refused(tmp_path: Path) -> None:
    entry = groups({"num_bits": 4}, ignore=["re:.*experts.2.down_proj"])
    assert "mlp.experts.2.down_proj in bf16 in block 0 of model" in refusal(tmp_path, entry, **MIXTURE)


def test_modules_that_are_computed_together_have_one_format(tmp_path: Path) -> None:
    said = refusal(tmp_path, groups({"num_bits": 8}, ignore=["re:.*v_proj"]))
    assert said.startswith(
        "modules that engines compute together must have one format, got self_attn.k_proj in int8 and"
    )


@pytest.mark.parametrize(
    ("ignore", "in_bf16"),
    [
        (["re:.*kv_a_proj_with_mqa$", "re:.*q_a_proj$"], "q_a_proj, kv_a_proj_with_mqa are in bf16"),
        (["re:.*kv_b_proj$"], "kv_b_proj are in bf16"),
    ],
)
def test_small_matrices_of_latent_attention_count_in_the_format_of_the_largest(
    tmp_path: Path, ignore: list[str], in_bf16: str
) -> None:
    """Engines do not compute them together, and published checkpoints leave some in 16 bits."""
    of_rank = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
    latent = {"architectures": ["DeepseekV3ForCausalLM"], "v_head_dim": 128, "n_routed_experts": 8, **of_rank}
    entry = groups({"num_bits": 8, "type": "float", "strategy": "channel"}, DYNAMIC, ignore=ignore)
    decoder = decoder_of(decoder_folder(tmp_path, quantization_config=entry, moe_intermediate_size=256, **latent))
    assert {stored.weights for stored in decoder.part_formats(FP8_DYNAMIC).values()} == {FP8_DYNAMIC}
    assert f"Of latent attention, {in_bf16} and counted in fp8-dynamic." in decoder.checkpoint.notes


def test_a_linear_attention_may_be_left_out_by_the_name_of_its_joined_matrix(tmp_path: Path) -> None:
    """Qwen3-Next stores queries, keys, values and gates in one matrix. A sentence names eight ranges of blocks."""
    n_layers = 52
    linear = [number for number in range(n_layers) if (number + 1) % 4]
    left_out = [f"model.layers.{number}.linear_attn.in_proj_qkvz" for number in linear]
    sizes = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "shared_expert_intermediate_size": 64}
    heads = {"linear_key_head_dim": 64, "linear_value_head_dim": 64, "moe_intermediate_size": 64}
    folder = decoder_folder(
        tmp_path,
        architectures=["Qwen3NextForCausalLM"],
        num_hidden_layers=n_layers,
        quantization_config={"quant_method": "fp8", "modules_to_not_convert": left_out},
        **sizes,
        **heads,
    )
    decoder = decoder_of(folder)
    in_bf16 = [(BlockPart.QKV, PartFormat()) in decoder.block_kinds[number].unlike for number in decoder.block_order]
    assert [number for number, is_left_out in enumerate(in_bf16) if is_left_out] == linear
    ranges = "0-2, 4-6, 8-10, 12-14, 16-18, 20-22, 24-26, 28-30 and 15 more"
    assert f"Of blocks {ranges}, qkv_proj are in bf16." in decoder.checkpoint.notes


def test_a_head_that_may_be_quantised_is_said(tmp_path: Path) -> None:
    formats(tmp_path, groups({"num_bits": 8}))
    assert (
        "The head is counted in bf16; the checkpoint stores it in int8."
        in graph_of(decoder_of(tmp_path / "model")).notes
    )


@pytest.mark.parametrize("pattern", ["re:(a*)*b", "re:.*.*.*.*.*b", "re:(", f"re:{'a' * 3000}"])
def test_a_pattern_that_may_never_end_is_refused(tmp_path: Path, pattern: str) -> None:
    assert "2,000 signs and 4 repeats, none of groups, got" in refusal(
        tmp_path, groups({"num_bits": 8}, ignore=[pattern])
    )


def test_names_of_engines_for_several_modules_are_read(tmp_path: Path) -> None:
    entry = groups({"num_bits": 8}, ignore=["re:.*qkv_proj", *(f"model.layers.{i}.mlp.gate_up_proj" for i in range(6))])
    stored = formats(tmp_path, entry)
    assert {part for part, each in stored.items() if each.weights is BF16} == {BlockPart.QKV, BlockPart.GATE_UP}
    phi = {**entry, "ignore": ["re:.*qkv_proj"]}
    stored = formats(tmp_path, phi, architectures=["Phi3ForCausalLM"])
    assert {part for part, each in stored.items() if each.weights is BF16} == {BlockPart.QKV}


def test_a_model_with_images_has_names_of_its_own(tmp_path: Path) -> None:
    inner = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    entry = groups({"num_bits": 8}, ignore=["re:language_model.model.layers.*.self_attn.*", "re:vision_tower.*"])
    changes = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": inner}
    assert {part for part, each in formats(tmp_path, entry, **changes).items() if each.weights is BF16} == ATTENTION


@pytest.mark.parametrize(
    ("cache", "stored"),
    [
        ({"kv_cache_quant_algo": "NVFP4"}, "nvfp4"),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "int8"),
        ({"kv_cache_scheme": {"num_bits": 4, "type": "float"}}, "float4"),
    ],
)
def test_keys_and_values_in_another_format_are_refused(tmp_path: Path, cache: dict[str, object], stored: str) -> None:
    entry = {"quant_method": "modelopt", "quant_algo": "FP8", **cache}
    assert f"keys and values of a checkpoint must be in bf16 or fp8, got {stored} in" in refusal(tmp_path, entry)


@pytest.mark.parametrize("size", ["128", True, 0, -2, 128.0, [128]])
def test_a_group_is_a_whole_number_of_weights(tmp_path: Path, size: object) -> None:
    must = "group_size must be a whole number of weights, or -1 for a whole row, got"
    assert f"{must} {size!r} in model" in refusal(tmp_path, {"quant_method": "awq", "bits": 4, "group_size": size})
    assert f"q_{must} {size!r} in model" in refusal(tmp_path, {"quant_method": "awq", "bits": 4, "q_group_size": size})
    assert f"{must} {size!r} in model" in refusal(tmp_path, groups({"num_bits": 4, "type": "int", "group_size": size}))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            {"quant_method": "gptq", "bits": 4, "dynamic": [{"-:.*down_proj": {}}]},
            "dynamic must be an object, got [{'-:.*down_proj': {}}] in model; leave it out",
        ),
        (
            {"quant_method": "gptq", "bits": 4, "dynamic": {".*down_proj": 8}},
            ".*down_proj must be an object, got 8 in model; leave it out",
        ),
        (
            {"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": {"mlp": True}},
            "modules_in_block_to_quantize must be a list of names of modules, got {'mlp': True} in model",
        ),
        (
            {"quant_method": "awq", "bits": 4, "modules_to_not_convert": {"down_proj": True}},
            "modules_to_not_convert must be a list of names of modules, got {'down_proj': True} in model; leave it out",
        ),
        (
            {"quant_method": "fp8", "ignored_layers": [["down_proj"]]},
            "ignored_layers must be a list of names of modules, got [['down_proj']] in model; leave it out",
        ),
        (groups({}, ignore=3), "ignore must be a list of names of modules, got 3 in model"),
        (groups({"num_bits": 8, "type": "float"}, "fp8"), "input_activations must be an object, got 'fp8' in model"),
        (
            groups({"num_bits": 8}, sparsity_config="sparse-24-bitmask"),
            "sparsity_config must be an object, got 'sparse-24-bitmask'",
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32}, "nvfp4 with a scale for 32 weights"),
    ],
)
def test_an_entry_of_another_form_is_not_passed_over(tmp_path: Path, entry: dict[str, Any], said: str) -> None:
    assert said in refusal(tmp_path, entry)


@pytest.mark.parametrize("entry", [[], "awq", 0])
def test_formats_are_an_object(tmp_path: Path, entry: Any) -> None:
    assert f"quantization_config must be an object, got {entry!r} in model" in refusal(tmp_path, entry)


FP8_CONFIG = {"quant_method": "fp8", "activation_scheme": "static"}


@pytest.mark.parametrize(
    ("entry", "beside", "said"),
    [
        (
            *(FP8_CONFIG, {"quant_algo": "NVFP4", "group_size": 16}),
            "got fp8 with keys and values in bf16 and nvfp4 by groups of 16 with keys and values in bf16 in model",
        ),
        (
            *(FP8_CONFIG, {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}),
            "got fp8 with keys and values in bf16 and fp8 with keys and values in fp8 in model",
        ),
        (
            *({"quant_method": "awq", "bits": 4, "group_size": 64}, {"quant_algo": "W4A16_AWQ", "group_size": 128}),
            "got int4 by groups of 64 with keys and values in bf16 and int4 by groups of 128 with",
        ),
        (
            *(FP8_CONFIG, {"quant_algo": "FP8", "exclude_modules": ["*down_proj"]}),
            "got fp8 with keys and values in bf16 of both, with other formats of some parts of blocks in model",
        ),
    ],
)
def test_two_files_that_contradict_each_other_are_refused(
    tmp_path: Path, entry: dict[str, Any], beside: dict[str, Any], said: str
) -> None:
    folder = decoder_folder(tmp_path / "model", quantization_config=entry)
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": beside}))
    message = refusal(tmp_path, entry)
    assert message.startswith("config.json and hf_quant_config.json must name the same formats, got")
    assert said in message


def test_two_files_may_say_the_same(tmp_path: Path) -> None:
    weights = {"num_bits": 4, "type": "float", "group_size": 16}
    entry = groups(weights, {"num_bits": 4, "type": "float"}, ignore=["re:.*self_attn.*"])
    beside = {"quant_algo": "NVFP4", "exclude_modules": ["*self_attn*"]}
    folder = decoder_folder(tmp_path / "model", quantization_config=entry)
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": beside}))
    stored = formats(tmp_path, entry)
    assert {part for part, each in stored.items() if each.weights is NVFP4} == FEED_FORWARD


@pytest.mark.parametrize("content", [{}, {"quantization": None}, {"quantization": ["FP8"]}])
def test_a_file_beside_a_config_that_says_nothing_is_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    folder = decoder_folder(tmp_path / "model")
    (folder / "hf_quant_config.json").write_text(json.dumps(content))
    with pytest.raises(UnreadableModel, match=r"hf_quant_config\.json must be an object, got .*; or remove the file"):
        decoder_of(folder)


@pytest.mark.parametrize("method", [{}, {"quant_method": "modelopt"}])
def test_keys_and_values_alone_may_be_quantised_and_this_is_said(tmp_path: Path, method: dict[str, str]) -> None:
    entry = {**method, "quant_algo": None, "kv_cache_quant_algo": "FP8"}
    assert set(formats(tmp_path, entry).values()) == {PartFormat()}
    decoder = decoder_of(tmp_path / "model")
    assert (decoder.checkpoint.weights, decoder.checkpoint.kv_cache) == (BF16, FP8)
    assert decoder.checkpoint.notes == (
        "The config names no format of the weights (quant_algo is null); they are counted in bf16.",
    )
    assert "got no quant_method in model" in refusal(tmp_path, {"kv_cache_quant_algo": "FP8"})
