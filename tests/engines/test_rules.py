"""What engines take of models, groups and formats: refusals name the dimension, and what loads is taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoauto.engines.registry import ENGINES
from autoauto.engines.rules import GroupSplit
from autoauto.graph.decoders.huggingface import decoder_of
from autoauto.records.costs.blocks import Attention, BlockKind
from autoauto.records.costs.decoder import BlockPart, Checkpoint, Decoder, Experts, PartFormat, WeightFormat
from tests.decoders import decoder_folder

FP8, INT4, BF16 = WeightFormat.FP8_BLOCK, WeightFormat.INT4, WeightFormat.BF16
DENSE = Decoder("dense", "Qwen3ForCausalLM", 4096, 36, 32, 8, 128, 9728, 151936, is_tied=False)
IN_GROUPS = replace(DENSE, intermediate_size=29568, checkpoint=Checkpoint(INT4, group_size=128))
MIXTURE = replace(DENSE, experts=Experts(128, 8, 768))


def refused(decoder: Decoder, weights: WeightFormat, *split: int) -> set[str | None]:
    """What the engines say, which is the same of all rules here."""
    return {engine.takes(decoder, GroupSplit(*split), weights) for engine in ENGINES.values()}


@pytest.mark.parametrize(("n_kv_heads", "refusing"), [(8, []), (10, [4, 8]), (4, []), (1, []), (6, [4, 8])])
def test_heads_of_keys_and_values_divide_by_gpus_or_gpus_by_them(n_kv_heads: int, refusing: list[int]) -> None:
    decoder = replace(DENSE, n_heads=40, n_kv_heads=n_kv_heads)
    assert [n for n in (1, 2, 4, 8) if refused(decoder, BF16, n) != {None}] == refusing
    for n in refusing:
        (said,) = refused(decoder, BF16, n)
        assert said is not None
        assert f"the {n_kv_heads} heads of keys and values of dense" in said


def test_a_block_of_fp8_is_on_one_gpu() -> None:
    assert [n for n in (1, 2, 4, 8) if refused(DENSE, FP8, n) != {None}] == [8]
    (said,) = refused(DENSE, FP8, 8)
    assert said == (
        "intermediate_size 9728 of dense must be a multiple of 8 GPUs x 128 weights with one scale in fp8-block, "
        "got 9.5 of them a GPU; try a smaller tensor_parallel"
    )
    assert refused(DENSE, BF16, 8) == {None}


def test_engines_but_vllm_do_not_split_a_block_of_keys() -> None:
    narrow = replace(DENSE, head_size=64, intermediate_size=8192)
    for name, engine in ENGINES.items():
        refusing = [n for n in (1, 2, 4, 8) if engine.takes(narrow, GroupSplit(n), FP8)]
        assert refusing == ([] if name == "vllm" else [8])


def test_every_gpu_has_as_much_of_a_feed_forward_layer() -> None:
    odd = replace(DENSE, intermediate_size=9730)
    assert [n for n in (1, 2, 4, 8) if refused(odd, BF16, n) != {None}] == [4, 8]
    (said,) = refused(odd, BF16, 4)
    assert said is not None
    assert said.startswith("intermediate_size 9730 of dense must be a multiple of 4 GPUs, got 2432.5 a GPU; try")
    (said,) = refused(replace(MIXTURE, experts=Experts(128, 8, 766)), BF16, 4)
    assert said is not None
    assert said.startswith("moe_intermediate_size 766 of dense must be a multiple of 4 GPUs, got 191.5")
    assert refused(replace(MIXTURE, experts=Experts(128, 8, 766)), BF16, 4, 4) == {None}


def test_engines_but_vllm_refuse_a_block_between_two_joined_matrices_on_one_gpu_too() -> None:
    none, said = sorted(refused(replace(DENSE, intermediate_size=9700), FP8, 1), key=str)
    assert none is None
    assert said is not None
    assert said.endswith(
        "a multiple of 1 GPU x 128 weights with one scale in fp8-block, got 75.7812 of them a GPU; try another format"
    )


def test_a_group_of_four_bits_is_on_one_gpu() -> None:
    assert [n for n in (1, 2, 4, 8) if refused(IN_GROUPS, INT4, n) != {None}] == [2, 4, 8]
    assert refused(IN_GROUPS, BF16, 8) == {None}
    assert refused(replace(IN_GROUPS, checkpoint=Checkpoint(INT4)), INT4, 8) == {None}


@pytest.mark.parametrize("size", [100, 8192, 3 * 64])
def test_groups_are_whole_on_one_gpu_too(size: int) -> None:
    """An input of every matrix counts, also of those that are not split."""
    (said,) = refused(replace(IN_GROUPS, checkpoint=Checkpoint(INT4, group_size=size)), INT4, 1)
    assert said is not None
    assert said.startswith(f"hidden_size 4096 of dense must be a multiple of 1 GPU x {size} weights with one scale in")
    assert said.endswith(f"got {4096 / size:g} of them a GPU; try another format")


def test_groups_of_the_last_matrix_and_of_experts_are_whole_on_one_gpu() -> None:
    (said,) = refused(replace(IN_GROUPS, intermediate_size=9728 + 64), INT4, 1)
    assert said is not None
    assert said.startswith("intermediate_size 9792 of dense must be a multiple of 1 GPU x 128 weights")
    (said,) = refused(replace(MIXTURE, checkpoint=Checkpoint(INT4, group_size=512)), INT4, 1)
    assert said is not None
    assert said.startswith("moe_intermediate_size 768 of dense must be a multiple of 1 GPU x 512 weights")
    unlike = ((BlockPart.QKV, PartFormat(INT4, 96)),)
    (said,) = refused(replace(DENSE, checkpoint=Checkpoint(INT4, group_size=128, unlike=unlike)), INT4, 1)
    assert said is not None
    assert said.startswith("hidden_size 4096 of dense must be a multiple of 1 GPU x 96 weights")


def test_the_last_block_of_fp8_may_be_a_part_on_a_gpu_with_whole_rows() -> None:
    decoder = replace(DENSE, hidden_size=4096 + 64, checkpoint=Checkpoint(FP8))
    assert refused(decoder, FP8, 1) == {None}


def test_parts_in_bf16_have_no_scales_to_split() -> None:
    down = ((BlockPart.DOWN, PartFormat()), (BlockPart.GATE_UP, PartFormat()))
    checkpoint = Checkpoint(INT4, group_size=128, unlike=down)
    assert refused(replace(IN_GROUPS, checkpoint=checkpoint), INT4, 8) == {None}
    assert refused(replace(DENSE, checkpoint=Checkpoint(FP8, unlike=down)), FP8, 8) == {None}
    assert refused(replace(DENSE, checkpoint=Checkpoint(FP8, unlike=down[:1])), FP8, 8) != {None}


def test_whole_experts_are_not_split() -> None:
    (said,) = refused(MIXTURE, FP8, 4)
    assert said is not None
    assert said.startswith("moe_intermediate_size 768 of dense must be a multiple of 4 GPUs")
    assert refused(MIXTURE, FP8, 4, 4) == {None}


@pytest.mark.parametrize(
    ("entry", "size"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, None),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 64}}},
            },
            64,
        ),
    ],
)
def test_a_config_says_how_many_weights_have_one_scale(
    tmp_path: Path, entry: dict[str, object], size: int | None
) -> None:
    decoder = decoder_of(decoder_folder(tmp_path / "small", quantization_config=entry))
    assert (decoder.checkpoint.weights, decoder.checkpoint.group_size) == (INT4, size)


def test_a_window_in_some_blocks_of_qwen_is_refused_by_one_engine() -> None:
    full, windowed_kind = DENSE.kind, BlockKind(Attention(32, 8, 128, window=4096), DENSE.kind.feed_forward)
    windowed = DENSE.of_kinds((*[windowed_kind] * 8, *[full] * 28))
    said = {name: engine.takes(windowed, GroupSplit(), BF16) for name, engine in ENGINES.items()}
    assert said["vllm"] is not None
    assert "in all of its 36 blocks or in none, got 8; try another engine" in said["vllm"]
    assert {reason for name, reason in said.items() if name != "vllm"} == {None}
    assert refused(replace(windowed, architecture="LlamaForCausalLM"), BF16, 1) == {None}
    assert refused(DENSE.of_kinds((windowed_kind,) * 36), BF16, 1) == {None}
