"""The layers of a decoder, `graph_of`, and what is assumed of it, `notes_of`.

embedding ── block 0 ── block 1 ── ... ── block n-1 ── norm ── head
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from itertools import accumulate

from autoauto.records.costs.blocks import Attention, BlockKind, LatentAttention, LinearAttention, Mixer, StateSpace
from autoauto.records.costs.decoder import BlockPart, Decoder
from autoauto.records.layers import Block, Layer, LayerGraph, LayerRange, Tensor
from autoauto.records.units import GIB, MIB

EMBEDDING, BLOCK, NORM, HEAD = "Embedding", "DecoderBlock", "RMSNorm", "Logits"
"""Operators of the layers of a decoder."""


def graph_of(decoder: Decoder) -> LayerGraph:
    """The layers of a decoder for one sequence of which it computes the next word: embedding, blocks, norm and head.

    Embedding and head of one matrix read the same tensor, and are `tied`.
    """
    layers, tensors = _layers(decoder), _tensors(decoder)
    content = sha256(repr((decoder, layers, tensors)).encode()).hexdigest()
    blocks = tuple(Block(f"model.layers.{i}", LayerRange(i + 1, i + 2)) for i in range(decoder.n_layers))
    return LayerGraph(decoder.name, layers, tensors, None, content, blocks, notes=notes_of(decoder))


def notes_of(decoder: Decoder) -> tuple[str, ...]:
    """The assumptions of the cost model about a decoder, a sentence each."""
    notes = list(decoder.checkpoint.notes)
    if decoder.architecture.startswith("Gemma"):
        notes.append("The two norms behind attention and feed-forward layer of Gemma are not counted.")
    attentions: Counter[Mixer | None] = Counter()
    for number in decoder.block_order:
        attention = decoder.block_kinds[number].attention
        if isinstance(attention, LatentAttention):  # blocks with and without an index of their own cache the same
            attention = attention._replace(indexer=None)
        attentions[attention] += 1
    for attention, n in attentions.items():
        blocks = f"{n} of {decoder.n_layers} blocks"
        if isinstance(attention, Attention) and attention.window is not None:
            last = f"the last {attention.window:,} tokens"
            notes.append(f"{blocks} attend to {last}, and the KV cache has no others of them.")
        elif isinstance(attention, LatentAttention):
            notes.append(f"{blocks} cache a latent vector a token, which every GPU of a group has.")
        elif isinstance(attention, LinearAttention | StateSpace):
            state = n * attention.cached_bytes(1, decoder.checkpoint.kv_cache, 1) / MIB
            notes.append(f"{blocks} have a state of constant size, {state:,.1f} MiB a sequence together.")
    if len(attentions) > 1 or None in attentions:
        length = decoder.checkpoint.max_length or 1
        cached = decoder.cached_bytes(1, decoder.checkpoint.kv_cache, length)
        notes.append(f"A sequence of {length:,} tokens holds {cached / GIB:,.1f} GiB.")
    if decoder.architecture.endswith("ForConditionalGeneration"):
        notes.append("Prompts are text only; the encoder of images is neither counted nor held.")
    return tuple(notes)


def _block_weights(decoder: Decoder, kind: BlockKind) -> dict[str, int]:
    parts = kind.part_weights(decoder.hidden_size, 1)
    attention = parts.pop(BlockPart.QKV, 0) + parts.pop(BlockPart.OUTPUT, 0)
    router = 0 if kind.feed_forward is None else kind.feed_forward.unsplit_weights(decoder.hidden_size)
    norms = kind.unsplit_weights(decoder.hidden_size) - router
    named = {"attention": attention, "feed_forward": sum(parts.values()), "norms": norms, "router": router}
    return {name: n for name, n in named.items() if n}


def _tensors(decoder: Decoder) -> tuple[Tensor, ...]:
    """Tokens, hidden vectors and logits, then the weights of the embedding, the blocks, the norm, an untied head."""
    last, hidden = decoder.n_layers + 2, decoder.hidden_size  # of the head: embedding, blocks and norm come first
    activations = [Tensor("tokens", (1,), 0, "int64", -1, 0)]
    activations += [Tensor(f"hidden.{i}", (1, hidden), 0, "float", i, i + 1) for i in range(last)]
    activations.append(Tensor("logits", (1, decoder.vocabulary_size), 0, "float", last, last + 1))
    table_use = last if decoder.is_tied else 0  # the head reads a tied table once more
    weights = [_weight("embed_tokens", decoder.table_weights, table_use)]
    of_kinds = [_block_weights(decoder, kind) for kind in decoder.block_kinds]
    for i, kind in enumerate(decoder.block_order):
        weights += [_weight(f"layers.{i}.{name}", n, i + 1) for name, n in of_kinds[kind].items()]
    weights.append(_weight("norm", hidden, last - 1))
    if not decoder.is_tied:
        weights.append(_weight("lm_head", decoder.table_weights, last))
    return (*activations, *weights)


def _weight(name: str, n_elements: int, last_use: int) -> Tensor:
    return Tensor(name, (n_elements,), None, "float", -1, last_use)


def _layers(decoder: Decoder) -> tuple[Layer, ...]:
    last = decoder.n_layers + 2
    first_weight = last + 2  # behind tokens, the hidden vectors, and logits
    n_of_kinds = [len(_block_weights(decoder, kind)) for kind in decoder.block_kinds]
    starts = list(accumulate((n_of_kinds[kind] for kind in decoder.block_order), initial=first_weight + 1))
    norm = starts[-1]
    head, table = norm + 1, None
    if decoder.is_tied:
        head, table = first_weight, "embed_tokens"

    def layer(index: int, name: str, op: str, weights: tuple[int, ...], tied: str | None = None) -> Layer:
        output = index + 1  # the tensor of layer i stands behind the tokens and those of the layers before it
        return Layer(name, op, (), (index,), (output,), weights, (index, *weights), f"{op} {decoder.hidden_size}", tied)

    def block(i: int) -> Layer:
        weights = tuple(range(starts[i], starts[i + 1]))
        return layer(i + 1, f"model.layers.{i}", f"{BLOCK}{decoder.block_order[i] or ''}", weights)

    layers = [layer(0, "model.embed_tokens", EMBEDDING, (first_weight,), table)]
    layers += map(block, range(decoder.n_layers))
    layers.append(layer(last - 1, "model.norm", NORM, (norm,)))
    layers.append(layer(last, "lm_head", HEAD, (head,), table))
    return tuple(layers)
