"""The formats of the matrices of a decoder: `WeightFormat`, and by part of a block (`BlockPart`) `PartFormat`."""

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
        """Bytes of one weight, scales of nvfp4 and mxfp4 included.

        >>> WeightFormat.BF16.n_bytes, WeightFormat.FP8_BLOCK.n_bytes, WeightFormat.NVFP4.n_bytes
        (2.0, 1.0, 0.5625)
        """
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
        """Bytes of one weight, with 16 bits for the scale of a group of integers.

        >>> PartFormat(WeightFormat.INT4, 128).n_bytes, PartFormat(WeightFormat.FP8, None).n_bytes
        (0.515625, 1.0)
        """
        if self.weights in (WeightFormat.INT4, WeightFormat.INT8) and self.group_size:
            return self.weights.n_bytes + 2 / self.group_size
        return self.weights.n_bytes


PartFormats = tuple[tuple[BlockPart, PartFormat], ...]
"""Parts of a block with their formats."""
