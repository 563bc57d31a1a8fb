"""The operations of a model of the package of kernel times: which are taken, and their parts: `Operations`.

The package numbers the operations of a step that decodes, and those of one over prompts. Names are those that it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from autoauto.records.costs.decoder import BlockPart
from autoauto.targets.gpu.answers import NamedOperation
from autoauto.targets.gpu.configs import Side

EMBEDDING, HEAD = ("embedding", "embedding_ar"), ("logits_gemm",)
_ATTENTION = ("attention", "mla_block")
"""What depends on the length of sequences."""
_BETWEEN_STAGES = "p2p"
_FIRST_REDUCE, _SECOND_NORM = "ar_1", "add_norm_2"
_DENSE = ("gate_ffn1_gemm", "act_gate", "ffn2_gemm")
_PARTS = {
    **dict.fromkeys(("qkv_gemm", "downscale_gemm", "q_b_proj_gemm", "kv_b_proj_gemm"), BlockPart.QKV),
    **dict.fromkeys(("bmm_pre", "bmm_post", *_ATTENTION), BlockPart.QKV),
    **dict.fromkeys(("gdn_in_proj_gemm", "gdn_in_proj_ba_gemm", "mamba_in_proj_gemm"), BlockPart.QKV),
    **dict.fromkeys(("proj_gemm", "gdn_out_proj_gemm", "mamba_out_proj_gemm"), BlockPart.OUTPUT),
    **dict.fromkeys(("gate_ffn1_gemm", "gdn_gate_ffn1_gemm", "full_gate_ffn1_gemm", "mlp_up_gemm"), BlockPart.GATE_UP),
    **dict.fromkeys(("ffn2_gemm", "gdn_ffn2_gemm", "full_ffn2_gemm", "mlp_down_gemm"), BlockPart.DOWN),
    **dict.fromkeys(("moe_overlap", "shared_gate_up_gemm", "shared_ffn2_gemm"), BlockPart.SHARED),
    **dict.fromkeys(("gdn_shared_gate_up_gemm", "gdn_shared_down_gemm"), BlockPart.SHARED),
    **dict.fromkeys(("full_shared_gate_up_gemm", "full_shared_down_gemm"), BlockPart.SHARED),
    **dict.fromkeys(("moe_shared_up_gemm", "moe_shared_down_gemm"), BlockPart.SHARED),
}
"""The operations whose format varies. Other ones are of bf16, or of experts."""
_ATTENTION_SIDE = {"add_norm_1", *(name for name, part in _PARTS.items() if part in (BlockPart.QKV, BlockPart.OUTPUT))}
_REDUCED_TWICE = {"gdn_ar": "gdn_moe_pre_dispatch", "full_ar": "full_moe_pre_dispatch"}
"""All-reduces that the package counts in another operation of some engines, too, as it says in its source."""
_MOST = 200


class Operation(NamedTuple):
    """An operation of a model.

    Attributes:
        number: that it has in the package.
        name: without the kind of step.
        part: whose format it has; None where that does not vary.
        is_attention: whether it depends on the length of sequences.
    """

    number: int
    name: str
    part: BlockPart | None
    is_attention: bool


class Operations(NamedTuple):
    """The operations of a block, or of one side of it, in a decode step and in a step that computes a prompt."""

    decode: Sequence[Operation]
    prompt: Sequence[Operation]

    @staticmethod
    def of(
        decode: Sequence[NamedOperation], prompt: Sequence[NamedOperation], side: Side, *, dispatch_reduces: bool
    ) -> Operations:
        """Those of a side.

        Args:
            decode, prompt: all operations of the steps.
            side: what is taken.
            dispatch_reduces: whether what sends tokens to experts has the all-reduce behind the attention in it.

        Raises:
            RuntimeError: as the package, where one that is taken has no times.
        """
        return Operations(
            _taken(decode, side, dispatch_reduces=dispatch_reduces),
            _taken(prompt, side, dispatch_reduces=dispatch_reduces),
        )


def part_of(name: str) -> BlockPart | None:
    """Whose format an operation has; None where that does not vary."""
    return _PARTS.get(name)


def operations_of(ask: Callable[[int], Any]) -> list[NamedOperation]:
    """The operations of a step; `ask` gives what the package answers of the one of a number."""
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


def _taken(operations: Sequence[NamedOperation], side: Side, *, dispatch_reduces: bool) -> list[Operation]:
    names = [operation.name for operation in operations]
    behind = names.index(_SECOND_NORM) if _SECOND_NORM in names else len(names)
    taken = []
    for index, (name, reason) in enumerate(operations):
        if reason:
            is_other = index < behind if side is Side.FEED_FORWARD else index > behind and side is Side.ATTENTION
            if not is_other:
                raise RuntimeError(reason)
        elif _is_of(name, side) and not (dispatch_reduces and _REDUCED_TWICE.get(name) in names):
            taken.append(Operation(index, name, _PARTS.get(name), name in _ATTENTION))
    return taken


def _is_of(name: str, side: Side) -> bool:
    """Whether an operation is of a side."""
    if name == _BETWEEN_STAGES:
        return False
    if side is Side.ATTENTION:
        return name in _ATTENTION_SIDE
    if side is Side.DENSE:
        return name in _DENSE
    if side is Side.FEED_FORWARD:
        return name not in _ATTENTION_SIDE and name != _FIRST_REDUCE
    return side is Side.ALL or name not in _ATTENTION_SIDE
