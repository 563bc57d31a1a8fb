"""A decoder-only language model as its `config.json` describes it: `Decoder`.

Its blocks: `records/costs/blocks.py`. How it is published: `Checkpoint`. What it is asked: `Workload`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

from autoauto.records.costs.blocks import (
    Attention,
    BlockKind,
    BlockPart,
    Dense,
    Experts,
    LinearAttention,
    PartFormat,
    PartFormats,
    WeightFormat,
)

__all__ = [
    "BlockPart",
    "Checkpoint",
    "Decoder",
    "DecoderFile",
    "Experts",
    "PartFormat",
    "PartFormats",
    "WeightFormat",
    "Workload",
]


class Checkpoint(NamedTuple):
    """The formats and limits of a published model.

    Attributes:
        weights: the format of those of the blocks.
        kv_cache: that of keys and values; bf16 or fp8.
        max_length: tokens of the longest sequence for which it has positions; None where its config does not say.
        group_size: neighbouring weights of a row that have one scale; None where a row has one, or none.
        unlike: the parts of every block that have another format than `weights`.
        notes: what was assumed of its config, a sentence each.
        drafts: whether it has layers that predict several tokens (MTP).
    """

    weights: WeightFormat = WeightFormat.BF16
    kv_cache: WeightFormat = WeightFormat.BF16
    max_length: int | None = None
    group_size: int | None = None
    unlike: PartFormats = ()
    notes: tuple[str, ...] = ()
    drafts: bool = False


IN_BF16 = Checkpoint()


@dataclass(frozen=True, slots=True)
class Decoder:
    """Blocks of attention and a feed-forward layer between an embedding and a head.

    Blocks are alike, of the sizes below, or of `kinds` in an `order`; then the sizes below are those of the kind that
    most blocks have.

    Attributes:
        name: for example "Qwen/Qwen3-32B", or that of its folder.
        architecture: as Hugging Face names its class, for example "Qwen3ForCausalLM".
        hidden_size: elements of the vector between blocks.
        n_layers: blocks.
        n_kv_heads: of keys and values.
        intermediate_size: of the feed-forward layer of a dense block.
        vocabulary_size: number of tokens in the vocabulary, the rows of embedding and head.
        is_tied: whether embedding and head are one matrix.
        experts: None in a dense model.
        kinds: of blocks that are not what the sizes say; empty where they are.
        order: by block, the number of its kind; empty where all are of one.
    """

    name: str
    architecture: str
    hidden_size: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_size: int
    intermediate_size: int
    vocabulary_size: int
    is_tied: bool
    checkpoint: Checkpoint = IN_BF16
    experts: Experts | None = None
    kinds: tuple[BlockKind, ...] = ()
    order: tuple[int, ...] = ()

    @property
    def block_kinds(self) -> tuple[BlockKind, ...]:
        """The kinds of its blocks, one or more."""
        if self.kinds:
            return self.kinds
        attention = Attention(self.n_heads, self.n_kv_heads, self.head_size)
        return (BlockKind(attention, self.experts or Dense(self.intermediate_size), self.checkpoint.unlike),)

    @property
    def block_order(self) -> tuple[int, ...]:
        """By block, the number of its kind."""
        return self.order or (0,) * self.n_layers

    @property
    def kind(self) -> BlockKind:
        """The kind that most blocks have."""
        [(number, _)] = Counter(self.block_order).most_common(1)
        return self.block_kinds[number]

    @property
    def n_windowed(self) -> int:
        """Blocks that attend to the last tokens of a sequence only."""
        attentions = [self.block_kinds[number].attention for number in self.block_order]
        return sum(isinstance(each, Attention) and each.window is not None for each in attentions)

    @property
    def by_kind(self) -> tuple[Decoder, ...]:
        """For every kind a decoder all of whose blocks are of this kind."""
        if not self.kinds:
            return (self,)
        return tuple(self._alike(kind) for kind in self.kinds)

    def _alike(self, kind: BlockKind) -> Decoder:
        """The decoder with blocks of one kind only, and with the sizes of this kind."""
        attention, feed_forward = kind.attention, kind.feed_forward
        made = replace(self, checkpoint=self.checkpoint._replace(unlike=kind.unlike), kinds=(kind,), order=())
        if isinstance(attention, LinearAttention):
            n_heads, n_kv_heads = attention.n_value_heads, attention.n_key_heads
            made = replace(made, n_heads=n_heads, n_kv_heads=n_kv_heads, head_size=attention.value_size)
        elif attention is not None:
            n_kv_heads = getattr(attention, "n_kv_heads", attention.n_heads)
            head_size = attention.output_size // attention.n_heads
            made = replace(made, n_heads=attention.n_heads, n_kv_heads=n_kv_heads, head_size=head_size)
        if isinstance(feed_forward, Dense):
            return replace(made, intermediate_size=feed_forward.intermediate_size, experts=None)
        return replace(made, experts=feed_forward)

    def of_kinds(self, blocks: tuple[BlockKind, ...]) -> Decoder:
        """The decoder with these blocks, and the sizes of the kind that most have."""
        kinds = tuple(dict.fromkeys(blocks))
        order: tuple[int, ...] = ()
        if len(kinds) > 1:
            order = tuple(map(kinds.index, blocks))
        made = replace(self, kinds=kinds, order=order)
        of_most = made._alike(made.kind)
        experts = next((kind.feed_forward for kind in kinds if isinstance(kind.feed_forward, Experts)), None)
        made = replace(of_most, kinds=kinds, order=order, experts=of_most.experts or experts)
        # Where the sizes say all about the blocks, the kinds are left out: equal decoders then compare as equal.
        plain = replace(made, kinds=())
        return plain if plain.block_kinds == kinds else made

    @property
    def attention_size(self) -> int:
        """Elements of all heads of queries of one token."""
        return self.n_heads * self.head_size

    def kv_heads_per_gpu(self, tensor_parallel: int) -> int:
        """Heads of keys and values that one GPU of a group holds: one at least, so more GPUs than heads hold copies.

        >>> llama = Decoder("", "LlamaForCausalLM", 8192, 80, 64, 8, 128, 28672, 128256, is_tied=False)
        >>> [llama.kv_heads_per_gpu(n) for n in (1, 4, 16)]
        [8, 2, 1]
        """
        return -(-self.n_kv_heads // tensor_parallel)

    def part_weights(self, tensor_parallel: int) -> dict[BlockPart, int]:
        """Weights of the matrices of a block of most on one GPU of a group."""
        return self.kind.part_weights(self.hidden_size, tensor_parallel)

    def part_formats(self, weights: WeightFormat) -> dict[BlockPart, PartFormat]:
        """The formats of the matrices of a block that is served with `weights`.

        If the checkpoint has this format, parts may have others. An engine that converts the weights converts all.
        """
        parts = self.part_weights(1)
        if weights is not self.checkpoint.weights:
            return dict.fromkeys(parts, PartFormat(weights, None))
        return dict.fromkeys(parts, PartFormat(weights, self.checkpoint.group_size)) | dict(self.kind.unlike)

    @property
    def n_weights(self) -> int:
        """All weights: embedding, blocks, the last norm, and a head of its own."""
        of_kind = []
        for kind in self.block_kinds:
            parts = kind.part_weights(self.hidden_size, 1)
            of_kind.append(sum(parts.values()) + kind.unsplit_weights(self.hidden_size))
        of_blocks = sum(of_kind[number] for number in self.block_order)
        return of_blocks + self.hidden_size + self.table_weights * (2 - self.is_tied)

    def cached_bytes(self, tensor_parallel: int, kv_cache: WeightFormat, n_tokens: int) -> float:
        """Bytes that a sequence of `n_tokens` holds on one GPU of a group, over all blocks."""
        of_kind = [kind.cached_bytes(tensor_parallel, kv_cache, n_tokens) for kind in self.block_kinds]
        return sum(of_kind[number] for number in self.block_order)

    @property
    def table_weights(self) -> int:
        """Weights of the embedding, or of the head."""
        return self.vocabulary_size * self.hidden_size


class DecoderFile(NamedTuple):
    """A decoder in a file, as an engine of this machine reads it.

    Attributes:
        path: the file, of several parts the first.
        decoder: by the header of the file.
        weights: the format that most weights have, in the words of the file's format.
        n_bytes: of all parts.
        content: changes with the header, so with all shapes and formats.
    """

    path: str
    decoder: Decoder
    weights: str
    n_bytes: int
    content: str


class Speculation(NamedTuple):
    """Speculative decoding: a draft proposes tokens of every sequence, and one step of the model verifies them.

    Attributes:
        accept_length: tokens that a sequence gets of a step in the mean: the accepted ones and the model's own.
        draft_tokens: that are proposed for every sequence and step; 0 where nothing speculates.
        draft_cost: the time of the draft, as a share of the step that verifies it.
        draft_model: an EAGLE-3 head; None for the layers of the checkpoint that predict several tokens (MTP).
    """

    accept_length: float = 1.0
    draft_tokens: int = 0
    draft_cost: float = 0.0
    draft_model: str | None = None

    @property
    def step_tokens(self) -> int:
        """Tokens of a sequence that a step computes: the proposed ones and the one before them."""
        return 1 + self.draft_tokens


NO_SPECULATION = Speculation()


def lacks_draft(speculation: Speculation, checkpoint: Checkpoint) -> bool:
    """True if answers are to be drafted, with neither a head that is named nor layers of the checkpoint."""
    return speculation.draft_tokens > 0 and speculation.draft_model is None and not checkpoint.drafts


class Workload(NamedTuple):
    """Requests that are alike.

    The prefix cache has the keys and values of `cached_share` of the tokens of a prompt, below 1.
    """

    input_tokens: int  # of a prompt
    output_tokens: int  # of an answer
    speculation: Speculation = NO_SPECULATION  # how answers are drafted
    cached_share: float = 0.0

    @property
    def computed_tokens(self) -> int:
        """Tokens of a prompt that are computed, the last one at least."""
        return max(1, round(self.input_tokens * (1 - self.cached_share)))

    @property
    def n_steps(self) -> float:
        """Steps of an answer in the mean; its first token comes with the prompt."""
        return 1 + (self.output_tokens - 1) / self.speculation.accept_length

    @property
    def max_length(self) -> int:
        """Tokens of a sequence when it ends."""
        return self.input_tokens + self.output_tokens

    @property
    def mean_length(self) -> int:
        """Tokens of a sequence in the middle of its answer: attention costs the mean over its steps there."""
        return self.input_tokens + self.output_tokens // 2
