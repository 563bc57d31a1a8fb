"""Kinds of blocks of a decoder, `BlockKind`, of an attention and a feed-forward layer; formats, `WeightFormat`.

    Attention           heads of keys and values; a window bounds what they hold    bytes a token, up to the window
    LatentAttention     one latent vector for all heads (MLA)                       bytes a token
    LinearAttention     a matrix a head (gated delta rule)                          a state of constant size
    StateSpace          a matrix a head (Mamba 2)                                   a state of constant size

Weights and elements are those of one GPU of a group that splits heads and matrices.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class WeightFormat(StrEnum):
    """The format in which the matrices of blocks are stored and multiplied; embedding, norms and head stay bf16."""

    BF16 = "bf16"
    FP8 = "fp8"
    """One scale a tensor, of activations too, known before the model runs [aiconfigurator: fp8_static]."""
    FP8_DYNAMIC = "fp8-dynamic"
    """One scale a tensor; that of activations is computed while the model runs [aiconfigurator: fp8]."""
    FP8_BLOCK = "fp8-block"
    """One scale a block of 128 x 128 weights."""
    FP8_W8A16 = "fp8-w8a16"
    """Weights only; products are bf16."""
    INT8 = "int8"
    """Weights only; products are bf16."""
    INT8_W8A8 = "int8-w8a8"
    """Weights and activations; products are int8."""
    INT4 = "int4"
    """Weights only; products are bf16."""
    NVFP4 = "nvfp4"
    """4 bits a weight and an fp8 scale for 16 of them."""
    MXFP4 = "mxfp4"
    """Weights of experts only, 4 bits and a scale of 8 bits for 32 of them."""

    @property
    def n_bytes(self) -> float:
        """Bytes of one weight, scales of nvfp4 and mxfp4 included."""
        return {"bf16": 2.0, "int4": 0.5, "nvfp4": 9 / 16, "mxfp4": 17 / 32}.get(self, 1.0)


class BlockPart(StrEnum):
    """The matrices of a block that engines compute as one, each in one format."""

    QKV = "qkv_proj"
    OUTPUT = "o_proj"
    GATE_UP = "gate_up_proj"
    DOWN = "down_proj"
    EXPERTS = "experts"
    SHARED = "shared_experts"


class PartFormat(NamedTuple):
    """The format in which the matrices of a part of a block are stored.

    `group_size` neighbouring weights of a row share a scale; None for one scale a row, or no scales.
    """

    weights: WeightFormat = WeightFormat.BF16
    group_size: int | None = None

    @property
    def n_bytes(self) -> float:
        """Bytes of one weight, with 16 bits for the scale of a group of integers."""
        if self.weights in (WeightFormat.INT4, WeightFormat.INT8) and self.group_size:
            return self.weights.n_bytes + 2 / self.group_size
        return self.weights.n_bytes


PartFormats = tuple[tuple[BlockPart, PartFormat], ...]
"""Parts of a block with their formats."""


Weights = dict[BlockPart, int]
"""Weights of the matrices of a block, by part."""
_STATE_BYTES, _BF16_BYTES = 4, 2
_LATENT_SCALES = 4
"""Scales of the 512 elements of a latent vector in fp8 that is read sparsely, of 4 bytes [sparse-mla]."""


class Attention(NamedTuple):
    """Attention with heads of keys and values.

    Attributes:
        head_size: elements of a head of queries or keys.
        window: to how many last tokens it attends; None to all.
        value_size: elements of a head of values, where it has others than `head_size`.
        gate_size: elements that gate what the heads give, of one token.
        has_values: whether values have a matrix of their own; else keys are values, too.
    """

    n_heads: int
    n_kv_heads: int
    head_size: int
    window: int | None = None
    value_size: int | None = None
    gate_size: int = 0
    has_values: bool = True

    @property
    def output_size(self) -> int:
        """Elements that the heads give, of one token."""
        return self.n_heads * (self.value_size or self.head_size)

    def cached_elements(self, n_gpus: int) -> int:
        """Elements of keys and values of one token: a GPU holds one head at least, so more GPUs than heads copies."""
        return -(-self.n_kv_heads // n_gpus) * (self.head_size + (self.value_size or self.head_size))

    def weights(self, hidden_size: int, n_gpus: int) -> Weights:
        """Weights on one GPU: of queries, keys and values, and of the output projection."""
        kv_size = self.cached_elements(n_gpus)
        if not self.has_values:
            kv_size //= 2
        of_queries = hidden_size * (self.n_heads * self.head_size + self.gate_size) // n_gpus
        return {
            BlockPart.QKV: of_queries + hidden_size * kv_size,
            BlockPart.OUTPUT: hidden_size * self.output_size // n_gpus,
        }

    def cached_bytes(self, n_gpus: int, kv_cache: WeightFormat, n_tokens: int) -> float:
        """Bytes of the KV cache on one GPU for a sequence of `n_tokens`."""
        n_attended = n_tokens if self.window is None else min(n_tokens, self.window)
        return self.cached_elements(n_gpus) * kv_cache.n_bytes * n_attended


class Indexer(NamedTuple):
    """The part of sparse attention that chooses the tokens to attend to.

    Attributes:
        head_size: elements of a head; it has one key a token.
        n_chosen: how many tokens of a sequence it chooses.
        is_own: whether the block computes an index; else it uses the index of an earlier block.
    """

    n_heads: int
    head_size: int
    n_chosen: int
    is_own: bool = True


class LatentAttention(NamedTuple):
    """Multi-head latent attention: keys and values of all heads are made of one vector a token.

    Attributes:
        query_rank: elements of the vector of which queries are made; None where they are made of the hidden vector.
        latent_size: elements of the vector that is cached.
        rope_size: elements of the part of keys that has positions, cached too.
        head_size: elements of a head of queries or keys without positions.
        indexer: what chooses tokens; None where it attends to all.
    """

    n_heads: int
    query_rank: int | None
    latent_size: int
    rope_size: int
    head_size: int
    value_size: int
    indexer: Indexer | None = None

    @property
    def output_size(self) -> int:
        """Elements that the heads give, of one token."""
        return self.n_heads * self.value_size

    def weights(self, hidden_size: int, n_gpus: int) -> Weights:
        """Weights on one GPU. GPUs split the heads; the matrices that make the latent vectors are on every GPU."""
        shared = hidden_size * (self.latent_size + self.rope_size)
        from_size = hidden_size  # of the vector that queries are made of
        if self.query_rank is not None:
            from_size = self.query_rank
            shared += hidden_size * self.query_rank
        queries = from_size * self.n_heads * (self.head_size + self.rope_size)
        keys_values = self.latent_size * self.n_heads * (self.head_size + self.value_size)
        if self.indexer is not None and self.indexer.is_own:
            shared += self.indexer.n_heads * self.indexer.head_size * from_size
            shared += hidden_size * (self.indexer.head_size + self.indexer.n_heads)
        return {
            BlockPart.QKV: shared + (queries + keys_values) // n_gpus,
            BlockPart.OUTPUT: hidden_size * self.output_size // n_gpus,
        }

    def cached_bytes(self, n_gpus: int, kv_cache: WeightFormat, n_tokens: int) -> float:
        """Bytes of the KV cache on one GPU for a sequence of `n_tokens`. Every GPU has the vectors of all heads.

        Of sparse attention in fp8 the part with positions stays bf16, and the rest has scales [sparse-mla]. A key of
        the index is fp8 with a scale of 4 bytes.
        """
        of_token = (self.latent_size + self.rope_size) * kv_cache.n_bytes
        if self.indexer is not None:
            if kv_cache is WeightFormat.FP8:
                of_token = self.latent_size + 4 * _LATENT_SCALES + self.rope_size * _BF16_BYTES
            if self.indexer.is_own:
                of_token += self.indexer.head_size + 4
        return of_token * n_tokens


class LinearAttention(NamedTuple):
    """Attention by the gated delta rule: a sequence has a matrix a head of values.

    Attributes:
        n_key_heads: of queries and of keys.
        key_size: elements of a head of keys.
        kernel_size: tokens of the convolution before.
    """

    n_key_heads: int
    key_size: int
    n_value_heads: int
    value_size: int
    kernel_size: int

    @property
    def output_size(self) -> int:
        """Elements that the heads give, of one token."""
        return self.n_value_heads * self.value_size

    @property
    def _convolved_size(self) -> int:
        return 2 * self.n_key_heads * self.key_size + self.output_size

    def weights(self, hidden_size: int, n_gpus: int) -> Weights:
        """Weights on one GPU: of queries, keys, values, gates, rates and convolution, and of the output projection."""
        made = self._convolved_size + self.output_size + 2 * self.n_value_heads
        return {
            BlockPart.QKV: (hidden_size * made + self._convolved_size * self.kernel_size) // n_gpus,
            BlockPart.OUTPUT: hidden_size * self.output_size // n_gpus,
        }

    def cached_bytes(self, n_gpus: int, kv_cache: WeightFormat, n_tokens: int) -> float:
        """The state of a sequence, in 4 bytes, and the last tokens of the convolution, in 2."""
        state = self.output_size * self.key_size * _STATE_BYTES
        return (state + self._convolved_size * (self.kernel_size - 1) * _BF16_BYTES) / n_gpus


class StateSpace(NamedTuple):
    """A layer of Mamba 2: a sequence has a matrix a head.

    Attributes:
        state_size: elements of the state of an element.
        n_groups: of heads with inputs and outputs of the state in common.
        kernel_size: tokens of the convolution before.
    """

    n_heads: int
    head_size: int
    state_size: int
    n_groups: int
    kernel_size: int

    @property
    def output_size(self) -> int:
        """Elements that the heads give, of one token."""
        return self.n_heads * self.head_size

    @property
    def _convolved_size(self) -> int:
        return self.output_size + 2 * self.n_groups * self.state_size

    def weights(self, hidden_size: int, n_gpus: int) -> Weights:
        """Weights on one GPU: of gates, inputs, states, steps and convolution, and of the output projection."""
        made = self._convolved_size + self.output_size + self.n_heads
        return {
            BlockPart.QKV: (hidden_size * made + self._convolved_size * self.kernel_size) // n_gpus,
            BlockPart.OUTPUT: hidden_size * self.output_size // n_gpus,
        }

    def cached_bytes(self, n_gpus: int, kv_cache: WeightFormat, n_tokens: int) -> float:
        """The state of a sequence, in 4 bytes, and the last tokens of the convolution, in 2."""
        state = self.output_size * self.state_size * _STATE_BYTES
        return (state + self._convolved_size * (self.kernel_size - 1) * _BF16_BYTES) / n_gpus


class Dense(NamedTuple):
    """A feed-forward layer with `intermediate_size` elements between its matrices."""

    intermediate_size: int
    is_gated: bool = True  # it has a matrix of gates

    def weights(self, hidden_size: int, n_gpus: int) -> Weights:
        """Weights on one GPU: of the gate and up projections, and of the down projection."""
        matrix = hidden_size * self.intermediate_size
        return {
            BlockPart.GATE_UP: (1 + self.is_gated) * matrix // n_gpus,
            BlockPart.DOWN: matrix // n_gpus,
        }

    def unsplit_weights(self, hidden_size: int) -> int:
        """Weights that every GPU holds in full: none, as a dense layer has no router."""
        return 0


class Experts(NamedTuple):
    """The feed-forward layer of a mixture of experts.

    Attributes:
        n_chosen: that a token goes through.
        intermediate_size: of one expert.
        shared_size: of the experts, or of the layer, through which every token goes besides; 0 where there is none.
        is_gated: whether experts have a matrix of gates.
        inner_size: elements of the vector that experts take and give, where it is not the hidden one.
    """

    n_experts: int
    n_chosen: int
    intermediate_size: int
    shared_size: int = 0
    is_gated: bool = True
    inner_size: int | None = None

    def weights(self, hidden_size: int, n_gpus: int) -> Weights:
        """Weights on one GPU: of all experts, and of the shared expert that all tokens go through."""
        n_matrices = 2 + self.is_gated
        of_expert = n_matrices * (self.inner_size or hidden_size) * self.intermediate_size
        made: Weights = {BlockPart.EXPERTS: self.n_experts * of_expert // n_gpus}
        if self.shared_size:
            made[BlockPart.SHARED] = n_matrices * hidden_size * self.shared_size // n_gpus
        return made

    def unsplit_weights(self, hidden_size: int) -> int:
        """Weights that every GPU holds in full: of the router, and of the projections to `inner_size` and back."""
        return hidden_size * self.n_experts + 2 * hidden_size * (self.inner_size or 0)


Mixer = Attention | LatentAttention | LinearAttention | StateSpace
"""The layers that mix the tokens of a sequence."""


class BlockKind(NamedTuple):
    """The layers of a kind of blocks.

    Attributes:
        attention: None where a block has a feed-forward layer alone.
        feed_forward: None where a block has an attention alone.
        unlike: the parts that have another format than the checkpoint's `weights`.
    """

    attention: Mixer | None
    feed_forward: Dense | Experts | None
    unlike: PartFormats = ()

    def part_weights(self, hidden_size: int, n_gpus: int) -> Weights:
        """Weights of the matrices of a block on one GPU of a group, by part."""
        made: Weights = {}
        for layer in (self.attention, self.feed_forward):
            if layer is not None:
                made |= layer.weights(hidden_size, n_gpus)
        return made

    def unsplit_weights(self, hidden_size: int) -> int:
        """Weights that every GPU of a group holds in full, in bf16: of the norms before the layers, and of a router."""
        n_weights = 0
        if self.attention is not None:
            n_weights += hidden_size
        if self.feed_forward is not None:
            n_weights += hidden_size + self.feed_forward.unsplit_weights(hidden_size)
        return n_weights

    def cached_bytes(self, n_gpus: int, kv_cache: WeightFormat, n_tokens: int) -> float:
        """Bytes that a sequence of `n_tokens` holds on one GPU of a group."""
        if self.attention is None:
            return 0.0
        return self.attention.cached_bytes(n_gpus, kv_cache, n_tokens)
