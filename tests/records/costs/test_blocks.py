"""Weights and bytes of blocks of decoders, each worked out by hand from what the kind of block is.

Vectors between blocks have 10 elements. A GPU of a group has its part of the heads and matrices.
"""

from __future__ import annotations

import pytest

from autoauto.records.costs.blocks import (
    Attention,
    BlockKind,
    BlockPart,
    Dense,
    Experts,
    Indexer,
    LatentAttention,
    LinearAttention,
    Mixer,
    PartFormat,
    StateSpace,
    WeightFormat,
)
from autoauto.records.costs.decoder import Checkpoint, Decoder

BF16, FP8 = WeightFormat.BF16, WeightFormat.FP8
ATTENTION = Attention(4, 2, 3, value_size=5, gate_size=7)
"""Queries and gates: 4 x 3 + 7 elements; keys and values: 2 x (3 + 5); output: 4 x 5."""
LATENT = LatentAttention(4, 6, latent_size=8, rope_size=2, head_size=3, value_size=5)
INDEXER = Indexer(2, 4, 16)
LINEAR = LinearAttention(2, 3, 4, 5, kernel_size=4)
"""Queries and keys 2 x 3 each, values 4 x 5: 32 elements go through the convolution; gates 20, two rates a head."""
MAMBA = StateSpace(4, 5, state_size=3, n_groups=2, kernel_size=4)
"""Inputs 4 x 5 and two states of 2 x 3: 32 elements go through the convolution; gates 20, a step a head."""


@pytest.mark.parametrize(
    ("mixer", "n_gpus", "before", "behind"),
    [
        (ATTENTION, 1, 10 * 19 + 10 * 16, 10 * 20),
        (ATTENTION, 2, 10 * 19 // 2 + 10 * 8, 10 * 10),
        (ATTENTION, 4, 47 + 10 * 8, 10 * 5),  # a head of keys and values is on two GPUs
        (Attention(4, 2, 3, has_values=False), 1, 10 * 12 + 10 * 6, 10 * 12),
        (LATENT, 1, 10 * (6 + 8 + 2) + 6 * 4 * 5 + 8 * 4 * 8, 10 * 20),
        (LATENT, 2, 160 + (120 + 256) // 2, 100),
        (LATENT._replace(query_rank=None), 1, 10 * (8 + 2) + 10 * 4 * 5 + 256, 200),
        (LATENT._replace(indexer=INDEXER), 2, 160 + 188 + 2 * 4 * 6 + 10 * (4 + 2), 100),
        (LATENT._replace(query_rank=None, indexer=INDEXER), 1, 100 + 200 + 256 + 2 * 4 * 10 + 10 * 6, 200),
        (LATENT._replace(indexer=INDEXER._replace(is_own=False)), 1, 536, 200),
        (LINEAR, 1, 10 * (32 + 20 + 2 * 4) + 32 * 4, 200),
        (LINEAR, 2, 728 // 2, 100),
        (MAMBA, 1, 10 * (32 + 20 + 4) + 32 * 4, 200),
        (MAMBA, 2, 688 // 2, 100),
    ],
)
def test_weights_before_and_behind_what_mixes_tokens(mixer: Mixer, n_gpus: int, before: int, behind: int) -> None:
    assert mixer.weights(10, n_gpus) == {BlockPart.QKV: before, BlockPart.OUTPUT: behind}


@pytest.mark.parametrize(
    ("mixer", "n_gpus", "kv_cache", "n_tokens", "n_bytes"),
    [
        (ATTENTION, 1, BF16, 100, 100 * 16 * 2),
        (ATTENTION, 4, FP8, 100, 100 * 8 * 1),
        (ATTENTION._replace(window=30), 2, BF16, 100, 30 * 8 * 2),
        (ATTENTION._replace(window=30), 2, BF16, 20, 20 * 8 * 2),
        (LATENT, 2, BF16, 100, 100 * 10 * 2),
        (LATENT, 2, FP8, 100, 100 * 10),
        # Read sparsely in fp8: 8 bytes and four scales of 4, 2 elements with positions in bf16; a key and its scale.
        (LATENT._replace(indexer=INDEXER), 1, FP8, 100, 100 * (8 + 16 + 4 + 4 + 4)),
        (LATENT._replace(indexer=INDEXER._replace(is_own=False)), 1, FP8, 100, 100 * (8 + 16 + 4)),
        (LATENT._replace(indexer=INDEXER), 1, BF16, 100, 100 * (20 + 4 + 4)),
        # 20 rows of 3 elements of 4 bytes, and the last 3 tokens of 32 elements of 2 bytes, of however many tokens.
        (LINEAR, 1, FP8, 100, 20 * 3 * 4 + 3 * 32 * 2),
        (LINEAR, 2, BF16, 7, 216),
        (MAMBA, 1, FP8, 100, 20 * 3 * 4 + 3 * 32 * 2),
        (MAMBA, 2, BF16, 7, 216),
    ],
)
def test_bytes_that_a_sequence_holds(
    mixer: Mixer, n_gpus: int, kv_cache: WeightFormat, n_tokens: int, n_bytes: int
) -> None:
    assert mixer.cached_bytes(n_gpus, kv_cache, n_tokens) == n_bytes
    assert BlockKind(mixer, None).cached_bytes(n_gpus, kv_cache, n_tokens) == n_bytes


@pytest.mark.parametrize(
    ("layer", "n_gpus", "weights", "unsplit"),
    [
        (Dense(6), 1, {BlockPart.GATE_UP: 120, BlockPart.DOWN: 60}, 0),
        (Dense(6, is_gated=False), 2, {BlockPart.GATE_UP: 30, BlockPart.DOWN: 30}, 0),
        (Experts(8, 2, 6), 1, {BlockPart.EXPERTS: 8 * 3 * 60}, 80),
        (Experts(8, 2, 6, shared_size=4), 2, {BlockPart.EXPERTS: 720, BlockPart.SHARED: 3 * 40 // 2}, 80),
        (
            Experts(8, 2, 6, shared_size=4, is_gated=False, inner_size=5),
            1,
            {BlockPart.EXPERTS: 8 * 2 * 5 * 6, BlockPart.SHARED: 2 * 40},
            80 + 2 * 10 * 5,
        ),
    ],
)
def test_weights_of_feed_forward_layers(
    layer: Dense | Experts, n_gpus: int, weights: dict[BlockPart, int], unsplit: int
) -> None:
    """The router, and what makes the vectors of experts, are on every GPU of a group, as norms are."""
    assert layer.weights(10, n_gpus) == weights
    assert layer.unsplit_weights(10) == unsplit
    assert BlockKind(None, layer).unsplit_weights(10) == 10 + unsplit
    assert BlockKind(MAMBA, layer).unsplit_weights(10) == 20 + unsplit
    assert BlockKind(MAMBA, layer).part_weights(10, n_gpus) == MAMBA.weights(10, n_gpus) | weights


def test_a_block_without_attention_holds_nothing_and_one_without_a_layer_has_one_norm() -> None:
    assert BlockKind(None, Dense(6)).cached_bytes(1, BF16, 100) == 0
    assert BlockKind(MAMBA, None).unsplit_weights(10) == 10


UNLIKE = ((BlockPart.DOWN, PartFormat(BF16)),)
BLOCKS = (
    BlockKind(ATTENTION, Dense(6), UNLIKE),
    BlockKind(LINEAR, Experts(8, 2, 6)),
    BlockKind(LATENT, Dense(7)),
    BlockKind(LINEAR, Experts(8, 2, 6)),
    BlockKind(None, Dense(9)),
)
PLAIN = Decoder("d", "LlamaForCausalLM", 10, 5, 1, 1, 1, 1, 100, is_tied=False)
MIXED = PLAIN.of_kinds(BLOCKS)


def test_a_decoder_of_several_kinds_has_the_sizes_of_most_of_its_blocks() -> None:
    assert MIXED.order == (0, 1, 2, 1, 3)
    assert MIXED.kinds == (BLOCKS[0], BLOCKS[1], BLOCKS[2], BLOCKS[4])
    assert (MIXED.n_heads, MIXED.n_kv_heads, MIXED.head_size) == (4, 2, 5)
    assert MIXED.experts == Experts(8, 2, 6)
    assert MIXED.kind is MIXED.kinds[1]


def test_a_decoder_of_each_kind_has_the_sizes_of_that_kind() -> None:
    sizes = [
        (each.n_heads, each.n_kv_heads, each.head_size, each.intermediate_size, each.experts) for each in MIXED.by_kind
    ]
    assert sizes[0] == (4, 2, 5, 6, None)  # a head gives 5 elements
    assert (*sizes[1][:3], sizes[1][4]) == (4, 2, 5, Experts(8, 2, 6))
    assert sizes[2] == (4, 4, 5, 7, None)  # a latent vector is of all heads
    assert sizes[3][3:] == (9, None)
    assert [each.order for each in MIXED.by_kind] == [()] * 4
    assert [each.checkpoint.unlike for each in MIXED.by_kind] == [UNLIKE, (), (), ()]
    assert [each.block_order for each in MIXED.by_kind] == [(0,) * 5] * 4


def test_blocks_of_one_plain_kind_need_no_list() -> None:
    plain = PLAIN.of_kinds((BlockKind(Attention(4, 2, 3), Dense(6)),) * 5)
    assert (plain.kinds, plain.order, plain.block_order) == ((), (), (0,) * 5)
    assert (plain.n_heads, plain.n_kv_heads, plain.head_size, plain.intermediate_size) == (4, 2, 3, 6)
    assert plain.by_kind == (plain,)
    gated = PLAIN.of_kinds((BlockKind(ATTENTION, Dense(6)),) * 5)
    assert (gated.kinds, gated.order) == ((BlockKind(ATTENTION, Dense(6)),), ())


def test_blocks_add_up() -> None:
    """Blocks: 350 + 200 + 180; twice 728 + 200 + 1440; 536 + 200 + 210; 270. Norms: 9 of 10; two routers of 80.

    Behind the blocks a norm of 10; embedding and head have 100 x 10 each.
    """
    blocks = 730 + 2 * 2368 + 946 + 270 + 9 * 10 + 2 * 80
    assert MIXED.n_weights == blocks + 10 + 2 * 1000
    assert MIXED.cached_bytes(1, BF16, 100) == 3200 + 2 * 432 + 2000
    windows = [BlockKind(ATTENTION._replace(window=w), Dense(6)) for w in (30, None, 30)]
    assert PLAIN.of_kinds(tuple(windows)).n_windowed == 2


def test_llama_2_7b_has_as_many_weights_as_its_file() -> None:
    """6,738,415,616 elements in the published file."""
    assert Decoder("", "", 4096, 32, 32, 32, 128, 11_008, 32_000, is_tied=False).n_weights == 6_738_415_616


def test_parts_have_the_formats_of_the_checkpoint_unless_an_engine_makes_another() -> None:
    checkpoint = Checkpoint(WeightFormat.INT4, group_size=128)
    first = Decoder("d", "", 10, 5, 1, 1, 1, 1, 100, is_tied=False, checkpoint=checkpoint).of_kinds(BLOCKS[:1] * 5)
    assert first.part_formats(WeightFormat.INT4) == {
        BlockPart.QKV: PartFormat(WeightFormat.INT4, 128),
        BlockPart.OUTPUT: PartFormat(WeightFormat.INT4, 128),
        BlockPart.GATE_UP: PartFormat(WeightFormat.INT4, 128),
        BlockPart.DOWN: PartFormat(BF16),
    }
    assert set(first.part_formats(FP8).values()) == {PartFormat(FP8, None)}
