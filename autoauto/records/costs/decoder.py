"""A decoder-only language model as its `config.json` describes it: `Decoder`.

Its parts: `Experts`, `Checkpoint`, and the formats of weights, `WeightFormat`, of parts of a block, `BlockPart`. What
it is asked: `Workload`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple


class WeightFormat(StrEnum):
    """How the matrices of the blocks are stored and multiplied; embedding, norms and head stay bf16."""

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

    @property
    def n_bytes(self) -> float:
        """Bytes of one weight, scales of nvfp4 included.

        >>> WeightFormat.BF16.n_bytes, WeightFormat.FP8_BLOCK.n_bytes, WeightFormat.NVFP4.n_bytes
        (2.0, 1.0, 0.5625)
        """
        return {"bf16": 2.0, "int4": 0.5, "nvfp4": 9 / 16}.get(self, 1.0)


class BlockPart(StrEnum):
    """The matrices of a block that engines compute as one, each in one format."""

    QKV = "qkv_proj"
    OUTPUT = "o_proj"
    GATE_UP = "gate_up_proj"
    DOWN = "down_proj"
    EXPERTS = "experts"


class PartFormat(NamedTuple):
    """How the matrices of a part are stored.

    Attributes:
        weights: their format.
        group_size: neighbouring weights of a row that have one scale; None where a row has one, or none.
    """

    weights: WeightFormat = WeightFormat.BF16
    group_size: int | None = None

    @property
    def n_bytes(self) -> float:
        """Bytes of one weight, with 16 bits for the scale of a group of integers.

        >>> PartFormat(WeightFormat.INT4, 128).n_bytes, PartFormat(WeightFormat.FP8, None).n_bytes
        (0.515625, 1.0)
        """
        has_scales = self.weights in (WeightFormat.INT4, WeightFormat.INT8) and self.group_size
        return self.weights.n_bytes + (2 / self.group_size if has_scales and self.group_size else 0.0)


PartFormats = tuple[tuple[BlockPart, PartFormat], ...]
"""Parts of a block with their formats."""


class Window(NamedTuple):
    """Blocks that attend to the last tokens of a sequence only.

    Attributes:
        n_layers: how many blocks do.
        n_tokens: to how many tokens.
    """

    n_layers: int
    n_tokens: int


class Checkpoint(NamedTuple):
    """How a model is published.

    Attributes:
        weights: the format of those of the blocks.
        kv_cache: that of keys and values; bf16 or fp8.
        max_length: tokens of the longest sequence for which it has positions; None where its config does not say.
        group_size: neighbouring weights of a row that have one scale; None where a row has one, or none.
        unlike: the parts of every block that have another format than `weights`.
        first: the parts of the first block that have another format than those of other blocks.
        last: the same of the last block.
        window: None where all blocks attend to the whole sequence.
        notes: what was assumed of its config, a sentence each.
    """

    weights: WeightFormat = WeightFormat.BF16
    kv_cache: WeightFormat = WeightFormat.BF16
    max_length: int | None = None
    group_size: int | None = None
    unlike: PartFormats = ()
    first: PartFormats = ()
    last: PartFormats = ()
    window: Window | None = None
    notes: tuple[str, ...] = ()


IN_BF16 = Checkpoint()


class Experts(NamedTuple):
    """The feed-forward layers of a mixture of experts.

    Attributes:
        n_experts: of a block.
        n_chosen: that a token goes through.
        intermediate_size: of one expert.
    """

    n_experts: int
    n_chosen: int
    intermediate_size: int


@dataclass(frozen=True, slots=True)
class Decoder:
    """A model of equal blocks, each of attention and a gated feed-forward layer, between an embedding and a head.

    Attributes:
        name: for example "Qwen/Qwen3-32B", or that of its folder.
        architecture: as Hugging Face names its class, for example "Qwen3ForCausalLM".
        hidden_size: elements of the vector between blocks.
        n_layers: blocks.
        n_heads: of queries.
        n_kv_heads: of keys and values.
        head_size: elements of one head.
        intermediate_size: of the feed-forward layer of a dense block.
        vocabulary_size: number of tokens in the vocabulary, the rows of embedding and head.
        is_tied: whether embedding and head are one matrix.
        checkpoint: how it is published.
        experts: None in a dense model.
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

    def kv_elements(self, tensor_parallel: int) -> int:
        """Elements of keys and values of one token in one block on one GPU of a group."""
        return 2 * self.kv_heads_per_gpu(tensor_parallel) * self.head_size

    def part_weights(self, tensor_parallel: int) -> dict[BlockPart, int]:
        """Weights of the matrices of one block on one GPU of a group."""
        of_queries = self.hidden_size * self.attention_size // tensor_parallel
        attention = {
            BlockPart.QKV: of_queries + self.hidden_size * self.kv_elements(tensor_parallel),
            BlockPart.OUTPUT: of_queries,
        }
        if self.experts is not None:
            of_expert = 3 * self.hidden_size * self.experts.intermediate_size
            return {**attention, BlockPart.EXPERTS: self.experts.n_experts * of_expert // tensor_parallel}
        matrix = self.hidden_size * self.intermediate_size
        return {
            **attention,
            BlockPart.GATE_UP: 2 * matrix // tensor_parallel,
            BlockPart.DOWN: matrix // tensor_parallel,
        }

    def part_formats(self, weights: WeightFormat) -> dict[BlockPart, PartFormat]:
        """The formats of the matrices of a block that is served with `weights`: those of the checkpoint, if it has it.

        An engine that makes another format makes it of all matrices.
        """
        checkpoint = self.checkpoint
        is_made = weights is not checkpoint.weights
        every = PartFormat(weights, None if is_made else checkpoint.group_size)
        return dict.fromkeys(self.part_weights(1), every) | ({} if is_made else dict(checkpoint.unlike))

    def with_blocks_like_the_first(self) -> Decoder:
        """The decoder if all blocks were stored as the first one is."""
        return self._with_blocks(self.checkpoint.first)

    def with_blocks_like_the_last(self) -> Decoder:
        """The decoder if all blocks were stored as the last one is."""
        return self._with_blocks(self.checkpoint.last)

    def _with_blocks(self, formats: PartFormats) -> Decoder:
        unlike = tuple((dict(self.checkpoint.unlike) | dict(formats)).items())
        return replace(self, checkpoint=self.checkpoint._replace(unlike=unlike, first=(), last=()))

    @property
    def table_weights(self) -> int:
        """Weights of the embedding, or of the head."""
        return self.vocabulary_size * self.hidden_size


class DecoderFile(NamedTuple):
    """A decoder in one file, as an engine of this machine reads it.

    Attributes:
        path: of the file.
        decoder: by its header.
        weights: the format that most weights have, in the words of the file's format.
        n_bytes: of the file.
        content: changes with the header, so with all shapes and formats.
    """

    path: str
    decoder: Decoder
    weights: str
    n_bytes: int
    content: str


class Workload(NamedTuple):
    """Requests that are alike.

    Attributes:
        input_tokens: of a prompt.
        output_tokens: of an answer.
    """

    input_tokens: int
    output_tokens: int

    @property
    def max_length(self) -> int:
        """Tokens of a sequence when it ends."""
        return self.input_tokens + self.output_tokens

    @property
    def mean_length(self) -> int:
        """Tokens of a sequence in the middle of its answer: attention costs the mean over its steps there."""
        return self.input_tokens + self.output_tokens // 2
