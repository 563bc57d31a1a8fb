"""The operations of a model of the package of kernel times, by the side of a block and with their parts: `Operations`.

The package numbers the operations of a step that decodes, and those of a step over prompts. Names are the package's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from autoauto.records.costs.decoder import BlockPart
from autoauto.targets.gpu.answers import NamedOperation
from autoauto.targets.gpu.configs import Side

EMBEDDING, HEAD = ("embedding", "embedding_ar"), ("logits_gemm",)
_ATTENTION = ("attention", "mla_block")
"""Operations whose times depend on the length of sequences."""
_BETWEEN_STAGES = "p2p"
_FIRST_REDUCE, _SECOND_NORM = "ar_1", "add_norm_2"
_DENSE = ("gate_ffn1_gemm", "act_gate", "ffn2_gemm")
_OF_PARTS = {
    BlockPart.QKV: (
        "qkv_gemm downscale_gemm q_b_proj_gemm kv_b_proj_gemm bmm_pre bmm_post attention mla_block "
        "gdn_in_proj_gemm gdn_in_proj_ba_gemm mamba_in_proj_gemm"
    ),
    BlockPart.OUTPUT: "proj_gemm gdn_out_proj_gemm mamba_out_proj_gemm",
    BlockPart.GATE_UP: "gate_ffn1_gemm gdn_gate_ffn1_gemm full_gate_ffn1_gemm mlp_up_gemm",
    BlockPart.DOWN: "ffn2_gemm gdn_ffn2_gemm full_ffn2_gemm mlp_down_gemm",
    BlockPart.SHARED: (
        "moe_overlap shared_gate_up_gemm shared_ffn2_gemm gdn_shared_gate_up_gemm gdn_shared_down_gemm "
        "full_shared_gate_up_gemm full_shared_down_gemm moe_shared_up_gemm moe_shared_down_gemm"
    ),
}
_PARTS = {name: part for part, names in _OF_PARTS.items() for name in names.split()}
"""The operations whose format varies. Other ones are of bf16, or of experts."""
_ATTENTION_SIDE = {"add_norm_1", *_OF_PARTS[BlockPart.QKV].split(), *_OF_PARTS[BlockPart.OUTPUT].split()}
_REDUCED_TWICE = {"gdn_ar": "gdn_moe_pre_dispatch", "full_ar": "full_moe_pre_dispatch"}
"""All-reduces that the package counts in another operation of some engines, too, as it says in its source."""
_MOST = 200


class Operation(NamedTuple):
    """An operation of a model."""

    number: int  # that it has in the package
    name: str  # without the kind of step
    part: BlockPart | None  # whose format it has; None where that does not vary
    is_attention: bool  # it depends on the length of sequences


class Operations(NamedTuple):
    """The operations of a block, or of one side of it, in a decode step and in a step that computes a prompt."""

    decode: Sequence[Operation]
    prompt: Sequence[Operation]


def part_of(name: str) -> BlockPart | None:
    """The part whose format an operation has; None where its format does not vary."""
    return _PARTS.get(name)


def operations_of(ask: Callable[[int], Any]) -> list[NamedOperation]:
    """The operations of a step; `ask` asks the package for the operation with a number."""
    operations: list[NamedOperation] = []
    for number in range(_MOST):
        try:
            ((name, *_),) = ask(number)
            operations.append(NamedOperation(name.split("_", 1)[1]))
        except (ValueError, KeyError, RuntimeError) as error:
            if "out of range" in str(error):
                break
            operations.append(NamedOperation("", str(error)))
    return operations


def taken(operations: Sequence[NamedOperation], side: Side, *, dispatch_reduces: bool) -> list[Operation]:
    """The operations of a step that belong to one side, with their numbers in the step.

    With `dispatch_reduces` the one that sends tokens to experts includes the all-reduce behind the attention.

    Raises:
        RuntimeError: the package has no times of one of them; the text is that of the package.
    """
    names = [operation.name for operation in operations]
    behind = names.index(_SECOND_NORM) if _SECOND_NORM in names else len(names)
    of_side = []
    for index, (name, reason) in enumerate(operations):
        if reason:
            # Without a name, the side of an operation follows from its position: the second norm is between the sides.
            if side is Side.FEED_FORWARD and index < behind:
                continue
            if side is Side.ATTENTION and index > behind:
                continue
            raise RuntimeError(reason)
        if _is_of(name, side) and not (dispatch_reduces and _REDUCED_TWICE.get(name) in names):
            of_side.append(Operation(index, name, _PARTS.get(name), name in _ATTENTION))
    return of_side


def _is_of(name: str, side: Side) -> bool:
    if name == _BETWEEN_STAGES:
        return False
    if side is Side.ATTENTION:
        return name in _ATTENTION_SIDE
    if side is Side.DENSE:
        return name in _DENSE
    if side is Side.FEED_FORWARD:
        return name not in _ATTENTION_SIDE and name != _FIRST_REDUCE
    return side is Side.ALL or name not in _ATTENTION_SIDE
