"""The layers of a decoder, `graph_of`, and what is assumed of it, `notes_of`.

embedding ── block 0 ── block 1 ── ... ── block n-1 ── norm ── head
"""

from __future__ import annotations

from hashlib import sha256

from autoauto.records.costs.decoder import BlockPart, Decoder, Window
from autoauto.records.layers import Block, Layer, LayerGraph, LayerRange, Tensor
from autoauto.records.units import GIB

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
    """What the model of costs assumes of a decoder, a sentence each."""
    notes = list(decoder.checkpoint.notes)
    if decoder.architecture.startswith("Gemma"):
        notes.append("The two norms behind attention and feed-forward layer of Gemma are not counted.")
    if decoder.checkpoint.window is not None:
        notes.append(_window_note(decoder, decoder.checkpoint.window))
    if decoder.architecture.endswith("ForConditionalGeneration"):
        notes.append("Prompts are text only; the encoder of images is neither counted nor held.")
    return tuple(notes)


def _window_note(decoder: Decoder, window: Window) -> str:
    """What is counted too much."""
    n_layers, n_full = decoder.n_layers, decoder.n_layers - window.n_layers
    of_token = decoder.kv_elements(1) * decoder.checkpoint.kv_cache.n_bytes
    length = decoder.checkpoint.max_length or window.n_tokens
    attended = (n_full * length + window.n_layers * min(length, window.n_tokens)) * of_token
    return (
        f"{window.n_layers} of {n_layers} blocks attend to the last {window.n_tokens:,} tokens: time and KV cache are "
        f"counted for all, {n_layers * of_token / 1024:,.1f} KiB a token, of which {n_full * of_token / 1024:,.1f} are "
        f"attended to beyond these; a sequence of {length:,} tokens caches {n_layers * length * of_token / GIB:,.1f} "
        f"GiB, of which {attended / GIB:,.1f} are attended to."
    )


def _block_weights(decoder: Decoder) -> dict[str, int]:
    """The elements of the weights of one block: of attention, feed-forward layer, norms, and the router of experts."""
    router = {} if decoder.experts is None else {"router": decoder.hidden_size * decoder.experts.n_experts}
    parts = decoder.part_weights(1)
    attention = parts.pop(BlockPart.QKV) + parts.pop(BlockPart.OUTPUT)
    return {"attention": attention, "feed_forward": sum(parts.values()), "norms": 2 * decoder.hidden_size, **router}


def _tensors(decoder: Decoder) -> tuple[Tensor, ...]:
    """Tokens, hidden vectors and logits, then weights: embedding, those of every block, norm, head where it has one."""
    last, hidden = decoder.n_layers + 2, decoder.hidden_size
    activations = [Tensor("tokens", (1,), 0, "int64", -1, 0)]
    activations += [Tensor(f"hidden.{i}", (1, hidden), 0, "float", i, i + 1) for i in range(last)]
    activations.append(Tensor("logits", (1, decoder.vocabulary_size), 0, "float", last, last + 1))
    table_use = last if decoder.is_tied else 0
    weights = [_weight("embed_tokens", decoder.table_weights, table_use)]
    of_block = _block_weights(decoder)
    for i in range(decoder.n_layers):
        weights += [_weight(f"layers.{i}.{name}", n, i + 1) for name, n in of_block.items()]
    weights.append(_weight("norm", hidden, last - 1))
    head = [] if decoder.is_tied else [_weight("lm_head", decoder.table_weights, last)]
    return (*activations, *weights, *head)


def _weight(name: str, n_elements: int, last_use: int) -> Tensor:
    return Tensor(name, (n_elements,), None, "float", -1, last_use)


def _layers(decoder: Decoder) -> tuple[Layer, ...]:
    last = decoder.n_layers + 2
    first_weight = last + 2  # behind tokens, the hidden vectors, and logits
    n_of_block = len(_block_weights(decoder))
    norm = first_weight + 1 + n_of_block * decoder.n_layers
    table = "embed_tokens" if decoder.is_tied else None

    def layer(index: int, name: str, op: str, weights: tuple[int, ...], tied: str | None = None) -> Layer:
        output = index + 1  # the tensor of layer i stands behind the tokens and those of the layers before it
        return Layer(name, op, (), (index,), (output,), weights, (index, *weights), f"{op} {decoder.hidden_size}", tied)

    def block(i: int) -> Layer:
        first = first_weight + 1 + n_of_block * i
        weights = tuple(range(first, first + n_of_block))
        return layer(i + 1, f"model.layers.{i}", BLOCK, weights)

    return (
        layer(0, "model.embed_tokens", EMBEDDING, (first_weight,), table),
        *map(block, range(decoder.n_layers)),
        layer(last - 1, "model.norm", NORM, (norm,)),
        layer(last, "lm_head", HEAD, (first_weight if decoder.is_tied else norm + 1,), table),
    )
