"""Operands that contradict the definition of their operator: refused in one line, as ONNX Runtime refuses most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoauto.graph.shapes.trace import trace
from autoauto.records.errors import UnreadableModel


def weight(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def narrow(*shape: int) -> Any:
    return np.ones(shape, np.uint8)


IMAGE, TOKENS, STEPS = {"x": [1, 4, 8, 8]}, {"x": [1, 4, 8]}, {"x": [5, 1, 4]}
LSTM = {"w": weight(1, 32, 4), "r": weight(1, 32, 8)}
QUANTISED = {"s": np.float32(1), "p": np.uint8(0)}
NORM = {"s": weight(4), "b": weight(4), "t": weight(3)}
EXPERTS = {"w": weight(2, 16, 8), "v": weight(2, 8, 16)}
GROUPED = {"q": [2, 1, 32], "k": [2, 1, 16]}
ATTENTION = {name: [1, 2, 4, 8] for name in "xv"}
REFUSED: dict[str, tuple[Any, ...]] = {
    "kernel of a Conv": ("Conv x w > y kernel_shape=3,3", IMAGE, {"w": weight(6, 4, 1, 1)}, "'w' must be [6, 4, 3, 3]"),
    "bias of a Conv": ("Conv x w b > y", IMAGE, {"w": weight(6, 4, 1, 1), "b": weight(5)}, "'b' must be [6]"),
    "groups of filters": ("Conv x w > y group=4", IMAGE, {"w": weight(6, 1, 1, 1)}, "4 equal groups, there are 6"),
    "channels": ("ConvInteger x w > y", {"uint8:x": [1, 4, 8, 8]}, {"w": narrow(6, 3, 1, 1)}, "4 is not 3"),
    "quantised channels": (
        *("QLinearConv x s p w s p s p > y", {"uint8:x": [1, 4, 8, 8]}, {**QUANTISED, "w": narrow(6, 3, 1, 1)}),
        "4 is not 3",
    ),
    "scales of filters": (
        *("QLinearConv x s p w t p s p > y", {"uint8:x": [1, 4, 8, 8]}),
        *({**QUANTISED, "w": narrow(6, 4, 1, 1), "t": weight(5)}, "'t' must be [6], it is [5]"),
    ),
    "fused Conv": (
        *("com.microsoft.FusedConv x w > y kernel_shape=3,3", IMAGE, {"w": weight(6, 4, 1, 1)}),
        "'w' must be [6, 4, 3, 3], it is [6, 4, 1, 1]",
    ),
    "channels at the end": (
        *("com.microsoft.NhwcConv x w > y", {"x": [1, 8, 8, 4]}, {"w": weight(6, 3, 1, 1)}),
        "4 is not 3",
    ),
    "channels in blocks": (
        *("com.microsoft.nchwc.Conv x w > y kernel_shape=3,3", {"x": [1, 16, 8, 8]}, {"w": weight(16, 16, 1, 1)}),
        "'w' must be [16, 16, 3, 3]",
    ),
    "turned channels": ("ConvTranspose x w > y", IMAGE, {"w": weight(3, 6, 3, 3)}, "'w' must be [4, 6, 3, 3]"),
    "turned bias": (
        *("ConvTranspose x w b > y group=2", IMAGE, {"w": weight(4, 3, 3, 3), "b": weight(3)}),
        "'b' must be [6], it is [3]",
    ),
    "offsets": (
        *("DeformConv x w o > y", IMAGE, {"w": weight(6, 4, 3, 3), "o": weight(1, 17, 6, 6)}),
        *("'o' must be [1, 18, any, any]", 19),
    ),
    "scale of a channel": ("InstanceNormalization x t b > y", IMAGE, NORM, "'t' must be [4], it is [3]"),
    "groups of channels": ("GroupNormalization x s b > y num_groups=3", IMAGE, NORM, "3 equal groups", 21),
    "mean of a channel": ("BatchNormalization x s b t s > y", IMAGE, NORM, "between 3 and 4"),
    "scale of a row": ("LayerNormalization x t > y", TOKENS, NORM, "'t' must broadcast to [1, 4, 8], it is [3]"),
    "bias of a row": ("LayerNormalization x s b > y", TOKENS, {"s": weight(8), "b": weight(7)}, "'b' must broadcast"),
    "root mean square": ("RMSNormalization x t > y", TOKENS, NORM, "'t' must broadcast", 23),
    "bias of a Gemm": (
        *("Gemm x w b > y", {"x": [1, 4]}, {"w": weight(4, 5), "b": weight(3)}),
        "'b' must broadcast to [1, 5], it is [3]",
    ),
    "bias that widens a Gemm": (
        *("Gemm x w b > y", {"x": [1, 4]}, {"w": weight(4, 1), "b": weight(3)}),
        "'b' must broadcast to [1, 1], it is [3]",
    ),
    "slope": ("PRelu x w > y", TOKENS, {"w": weight(5)}, "'w' must broadcast to [1, 4, 8]"),
    "letters": ("Einsum x w > y equation=bij,jk", {"x": [1, 3, 5]}, {"w": weight(4, 6)}, "'j' of bij,jk must have one"),
    "hidden size": (
        *("LSTM x w r > y hidden_size=8", STEPS, {"w": weight(1, 12, 4), "r": weight(1, 12, 3)}),
        "'w' must be [1, 32, 4], it is [1, 12, 4]",
    ),
    "inputs of a step": (
        *("GRU x w r > y hidden_size=8", STEPS, {"w": weight(1, 24, 3), "r": weight(1, 24, 8)}),
        "'w' must be [1, 24, 4]",
    ),
    "recurrence": (
        *("RNN x w r > y hidden_size=8", STEPS, {"w": weight(1, 8, 4), "r": weight(1, 8, 3)}),
        "'r' must be [1, 8, 8]",
    ),
    "directions": ("LSTM x w r > y hidden_size=8 direction=bidirectional", STEPS, LSTM, "'w' must be [2, 32, 4]"),
    "biases of gates": (
        *("LSTM x w r b > y hidden_size=8", STEPS, {**LSTM, "b": weight(1, 32)}),
        "'b' must be [1, 64]",
    ),
    "first state": (
        *("LSTM x w r - - h > y hidden_size=8", STEPS, {**LSTM, "h": weight(1, 1, 7)}),
        "'h' must be [1, 1, 8]",
    ),
    "peepholes": (
        *("LSTM x w r - - - - p > y hidden_size=8", STEPS, {**LSTM, "p": weight(1, 23)}),
        "'p' must be [1, 24]",
    ),
    "index": ("Gather x i > y axis=1", TOKENS, {"i": [9]}, "'i' must lie in an axis of length 4, one is 9"),
    "negative index": ("Gather x i > y axis=1", TOKENS, {"i": [-5]}, "one is -5"),
    "index of an element": ("GatherElements x i > y axis=1", {"x": [1, 4]}, {"i": [[4]]}, "one is 4"),
    "index of a point": ("GatherND x i > y", {"x": [1, 4]}, {"i": [[0, 9]]}, "one is 9"),
    "index that is written": ("ScatterND x i u > y", {"x": [1, 4]}, {"i": [[0, 9]], "u": weight(1)}, "one is 9"),
    "what is written": ("ScatterND x i u > y", {"x": [1, 4]}, {"i": [[0, 1]], "u": weight(3)}, "'u' must be [1]"),
    "updates": (
        *("ScatterElements x i u > y axis=1", {"x": [1, 4]}, {"i": [[1]], "u": weight(1, 3)}),
        "'u' must be [1, 1]",
    ),
    "feature": ("ai.onnx.ml.ArrayFeatureExtractor x i > y", {"x": [1, 4]}, {"i": [4]}, "one is 4"),
    "scales of 0": ("Resize x - s > y", IMAGE, {"s": np.array([1, 1, 0, 0], np.float32)}, "must be above 0"),
    "sizes of 0": ("Resize x - - s > y", IMAGE, {"s": [1, 4, 0, 8]}, "must be above 0, they are [1, 4, 0, 8]"),
    "old scales of 0": ("Upsample x s > y", IMAGE, {"s": np.array([1, 1, 0, 0], np.float32)}, "must be above 0", 9),
    "nothing left": ("Resize x - s > y", IMAGE, {"s": np.array([1, 1, 0.1, 1], np.float32)}, "a length of 1 or more"),
    "negative part": ("Split x s > y z axis=1", TOKENS, {"s": [5, -1]}, "0 or more, they are [5, -1]"),
    "permutation": ("Transpose x > t perm=0,1; Relu t > y", TOKENS, {}, "perm must have every axis of [1, 4, 8] once"),
    "axis of a sum": ("CumSum x a > y", TOKENS, {"a": np.array(9)}, "axis 9 is none of [1, 4, 8]"),
    "neighbours": ("LRN x > y size=0", IMAGE, {}, "attribute 'size' must be at least 1"),
    "scales of an axis": (
        *("DequantizeLinear x t p > y axis=1", {"uint8:x": [1, 4]}, {"t": weight(3), "p": narrow(3)}),
        "'t' must be [4], it is [3]",
    ),
    "keys": ("Attention x k v > y", {**ATTENTION, "k": [1, 2, 4, 7]}, {}, "'k' must be [1, 2, any, 8]", 23),
    "heads": ("Attention x x x > y q_num_heads=3 kv_num_heads=3", TOKENS, {}, "must be 3 and 3 equal heads", 23),
    "angles": ("RotaryEmbedding x c c > y", ATTENTION, {"c": weight(1, 4, 3)}, "'c' must be [1, 4, 4]", 23),
    "merged weights": (
        *("com.microsoft.Attention x w b > y num_heads=2", TOKENS, {"w": weight(7, 24), "b": weight(24)}),
        "'w' must be [8, 24]",
    ),
    "merged heads": (
        *("com.microsoft.Attention x w b > y num_heads=3", TOKENS, {"w": weight(8, 24), "b": weight(24)}),
        "queries, keys and values of 3 heads",
    ),
    "keys of heads": (
        *("com.microsoft.MultiHeadAttention x k v > y num_heads=2", {**TOKENS, "k": [1, 4, 7], "v": [1, 4, 8]}, {}),
        "'k' must be [1, 4, 8]",
    ),
    "sum before a normalisation": (
        *("com.microsoft.SkipLayerNormalization x s g > y", {**TOKENS, "s": [1, 4, 7]}, {"g": weight(8)}),
        "'s' must broadcast to [1, 4, 8]",
    ),
    "bias before an activation": ("com.microsoft.BiasGelu x b > y", TOKENS, {"b": weight(7)}, "'b' must be [8]"),
    "packed weight": (
        *("com.microsoft.MatMulNBits x w s > y K=64 N=16 bits=4 block_size=32", {"x": [1, 64]}),
        *({"w": narrow(16, 3, 16), "s": weight(32)}, "'w' must have 512 elements"),
    ),
    "conditions": ("Compress x c > y axis=1", TOKENS, {"c": np.ones(9, bool)}, "longer than its axis of 4, it has 9"),
    "blocks": ("Col2Im x s b > y", {"x": [1, 5, 9]}, {"s": [4, 4], "b": [2, 2]}, "whole blocks of [2, 2]", 18),
    "number of blocks": ("Col2Im x s b > y", {"x": [1, 4, 8]}, {"s": [4, 4], "b": [2, 2]}, "must be [1, 4, 9]", 18),
    "matrices of samples": ("AffineGrid x s > y", {"x": [2, 2, 2]}, {"s": [2, 3, 5, 6]}, "must be [2, 2, 3]", 20),
    "features of trees": (
        *("ai.onnx.ml.TreeEnsembleRegressor x > y nodes_featureids=[4,0] n_targets=1", {"x": [1, 4]}, {}),
        "one of 4 features, one asks for feature 4 from 0",
    ),
    "zero points of columns": (
        *("MatMulInteger x w p q > y", {"uint8:x": [4, 3]}, {"w": narrow(3, 2), "p": np.uint8(0), "q": narrow(3)}),
        "'q' must have 1 or 2 elements, it is [3]",
    ),
    "scales of a product": (
        *("QLinearMatMul x s p w t p s p > y", {"uint8:x": [4, 3]}, {**QUANTISED, "w": narrow(3, 2), "t": weight(3)}),
        "'t' must have 1 or 2 elements, it is [3]",
    ),
    "scores of boxes": (
        *(
            "NonMaxSuppression x s > y",
            {"x": [1, 6, 4], "s": [1, 2, 5]},
            {},
            "'s' must be [1, any, 6], it is [1, 2, 5]",
        ),
    ),
    "axis of a norm": ("RMSNormalization x s > y axis=9", TOKENS, {"s": weight(8)}, "must be an axis of [1, 4, 8]", 23),
    "sines of a turn": (
        *("RotaryEmbedding x c d p > y num_heads=2", {**TOKENS, "int:p": [1, 4]}),
        *({"c": weight(16, 2), "d": weight(15, 2)}, "'d' must be [16, 2]", 23),
    ),
    "features": (
        *("ai.onnx.ml.FeatureVectorizer x > y inputdimensions=[9]", {"x": [1, 4]}, {}),
        "operand 'x' must be [1, 9], it is [1, 4]",
    ),
    "lengths of samples": ("ReverseSequence x l > y", {"x": [4, 2, 3]}, {"l": [1, 2, 3]}, "'l' must be [2], it is [3]"),
    "factors": ("ai.onnx.ml.Scaler x > y scale=[1.0,2.0] offset=[0.0]", {"x": [1, 4]}, {}, "each of 4 features, got 2"),
    "groups of a layout": (
        *("com.microsoft.GroupNorm x g g > y groups=3 activation=0", {"x": [1, 8, 8, 4]}, {"g": weight(4)}),
        "4 channels must fall into 3 equal groups",
    ),
    "tables": (
        *("com.microsoft.EmbedLayerNormalization i i w p t g g > y m", {"int32:i": [1, 8]}),
        *({"w": weight(9, 16), "p": weight(8, 16), "t": weight(2, 15), "g": weight(16)}, "'t' must be [any, 16]"),
    ),
    "summand of a layout": (
        *("com.microsoft.SkipGroupNorm x g g s > y groups=2 activation=0", {"x": [1, 8, 8, 4], "s": [1, 8, 7, 4]}),
        *({"g": weight(4)}, "'s' must be [1, 8, 8, 4] or [1, 4] or [1, 1, 1, 4], it is [1, 8, 7, 4]"),
    ),
    "tokens of experts": (
        *("com.microsoft.MoE x r w - v > y k=1", {"x": [3, 8], "r": [2, 2]}, EXPERTS),
        "'r' must be [3, 2], it is [2, 2]",
    ),
    "number of experts": (
        *("com.microsoft.MoE x r w - v > y k=1", {"x": [3, 8], "r": [3, 4]}, EXPERTS),
        "'w' must be [4, any, any], it is [2, 16, 8]",
    ),
    "experts of a token": (
        *("com.microsoft.MoE x r w - v > y k=3", {"x": [3, 8], "r": [3, 2]}, EXPERTS),
        "at most 2 experts, 'k' is 3",
    ),
    "weights of experts": (
        *("com.microsoft.MoE x r w - v > y k=1", {"x": [3, 8], "r": [3, 2]}, {**EXPERTS, "v": weight(2, 8, 12)}),
        "from 8 elements of a token to 8, they are of [16, 8] and [8, 12]",
    ),
    "packed experts": (
        *("com.microsoft.QMoE x r w s - v t > y k=1 expert_weight_bits=4", {"x": [3, 8], "r": [3, 2]}),
        *({"w": narrow(2, 16, 4), "s": weight(2, 16), "v": narrow(2, 8, 8), "t": weight(2, 9)}, "'t' must be [2, 8]"),
    ),
    "mask of keys": (
        *("com.microsoft.MultiHeadAttention x x x - m > y num_heads=2", {**TOKENS, "int32:m": [1, 5]}, {}),
        "'m' must be [1] or [2] or [5] or [1, 4] or",
    ),
    "bias of scores": (
        *("com.microsoft.MultiHeadAttention x x x - - a > y num_heads=2", {**TOKENS, "a": [1, 3, 4, 4]}, {}),
        "it is [1, 3, 4, 4]",
    ),
    "bias of heads": (
        *("com.microsoft.MultiHeadAttention x x x b > y num_heads=2", TOKENS, {"b": weight(16)}),
        "'b' must be [24], it is [16]",
    ),
    "past of other heads": (
        *("com.microsoft.MultiHeadAttention x x x - - - p p > y num_heads=2", {**TOKENS, "p": [1, 4, 6, 2]}, {}),
        "'p' must be [1, 2, any, 4], it is [1, 4, 6, 2]",
    ),
    "values of a shorter past": (
        *("com.microsoft.MultiHeadAttention x x x - - - p q > y num_heads=2", {**TOKENS, "p": [1, 2, 6, 4]}),
        *({"q": weight(1, 2, 5, 4)}, "'q' must be [1, 2, 6, 4]"),
    ),
    "past of merged weights": (
        *("com.microsoft.Attention x w b - p > y num_heads=2", {**TOKENS, "p": [2, 1, 2, 5, 3]}),
        *({"w": weight(8, 24), "b": weight(24)}, "'p' must be [2, 1, 2, any, 4]"),
    ),
    "mask of merged weights": (
        *("com.microsoft.Attention x w b m > y num_heads=2", {**TOKENS, "int32:m": [1, 4, 5]}),
        *({"w": weight(8, 24), "b": weight(24)}, "or [1, 4, 4] or"),
    ),
    "past of grouped heads": (
        *("com.microsoft.GroupQueryAttention q k k p p n t > y num_heads=4 kv_num_heads=2", GROUPED),
        *({"p": weight(2, 4, 6, 8), "n": np.ones(2, np.int32), "t": np.int32(7)}, "'p' must be [2, 2, any, 8]"),
    ),
    "groups of those heads": (
        *("com.microsoft.GroupQueryAttention q k k - - n t > y num_heads=4 kv_num_heads=3", GROUPED),
        *({"n": np.ones(2, np.int32), "t": np.int32(1)}, "a multiple of those of keys, 4 is not of 3"),
    ),
    "mask of the standard": (
        *("Attention x x x m > y q_num_heads=2 kv_num_heads=2", {**TOKENS, "m": [4, 6]}, {}),
        *("'m' must broadcast to [1, 2, 4, 4]", 23),
    ),
    "turned pairs": (
        *("com.microsoft.RotaryEmbedding x p c c > y num_heads=2", {**TOKENS, "int:p": [1, 4]}),
        *({"c": weight(16, 4)}, "'c' must be [any, 2], it is [16, 4]"),
    ),
    "positions": (
        *("com.microsoft.EmbedLayerNormalization i - w p - g g > y m", {"int32:i": [1, 8]}),
        *({"w": weight(9, 16), "p": weight(6, 16), "g": weight(16)}, "8 tokens must have positions, operand 'p' has 6"),
    ),
    "quantised tables": (
        *("com.microsoft.QEmbedLayerNormalization i - w p - g g - s s - s s z z - z z > y m", {"int32:i": [1, 8]}),
        {"w": narrow(9, 16), "p": narrow(8, 12), "g": narrow(16), "s": np.float32(1), "z": np.uint8(0)},
        "'p' must be [any, 16]",
    ),
    "scales of blocks of a row": (
        *("com.microsoft.MatMulBnb4 x w s > y K=64 N=6 block_size=64 quant_type=1", {"x": [1, 64]}),
        *({"w": narrow(192), "s": weight(5)}, "'s' must have 6 elements, it is [5]"),
    ),
    "zero points of blocks": (
        *("com.microsoft.MatMulNBits x w s z > y K=64 N=6 bits=4 block_size=32", {"x": [1, 64]}),
        *({"w": narrow(6, 2, 16), "s": weight(12), "z": narrow(7)}, "'z' must have 12 or 6 elements"),
    ),
    "scales of a table": (
        *(
            "com.microsoft.GatherBlockQuantized t x s > y gather_axis=0 quantize_axis=1 block_size=32",
            {"int:x": [1, 3]},
        ),
        *({"t": narrow(9, 16), "s": weight(9, 2)}, "'s' must be [9, 1], it is [9, 2]"),
    ),
    "bias of columns": (
        *("com.microsoft.DynamicQuantizeMatMul x w s - b > y", {"x": [1, 4]}),
        *({"w": narrow(4, 6), "s": np.float32(1), "b": weight(5)}, "'b' must have 6 elements, it is [5]"),
    ),
    "scales of columns": (
        *("com.microsoft.QGemm x s p w t p > y", {"uint8:x": [1, 4]}),
        *({**QUANTISED, "w": narrow(4, 6), "t": weight(5)}, "'t' must have 1 or 6 elements, it is [5]"),
    ),
    "coordinates": ("com.microsoft.CDist x w > y", {"x": [4, 3]}, {"w": weight(5, 2)}, "'w' must be [any, 3]"),
    "square matrices": ("com.microsoft.Inverse x > y", {"x": [1, 2, 3]}, {}, "'x' must be [1, 2, 2], it is [1, 2, 3]"),
    "channels of a state": (
        *("com.microsoft.CausalConvWithState x w - s > y", {"x": [1, 8, 3], "s": [1, 8, 3]}, {"w": weight(8, 1, 3)}),
        "'s' must be [1, 8, 2], it is [1, 8, 3]",
    ),
    "axes of a mean": ("MeanVarianceNormalization x > y axes=0,9", IMAGE, {}, "axes must be of [1, 4, 8, 8]"),
    "weights of classes": (
        *("NegativeLogLikelihoodLoss x t w > y", {"x": [2, 4, 3], "int:t": [2, 3]}, {"w": weight(3)}),
        "'w' must be [4], it is [3]",
    ),
    "scores without classes": (
        *("SoftmaxCrossEntropyLoss x t > y", {"x": [4]}, {"t": [0]}, "'x' must be [4, any], it is [4]"),
    ),
    "corners of boxes": ("NonMaxSuppression x s > y", {"x": [1, 6, 3], "s": [1, 2, 6]}, {}, "must be [1, 6, 4]"),
    "corners of regions": (
        *("RoiAlign x r b > y", {**IMAGE, "r": [3, 5], "int:b": [3]}, {}, "'r' must be [3, 4], it is [3, 5]"),
    ),
    "pooled elements": ("MaxUnpool x i > y kernel_shape=2,2", {**IMAGE, "int:i": [1, 4, 8, 7]}, {}, "[1, 4, 8, 8], it"),
    "mask of a field": (
        *("com.microsoft.MaxpoolWithMask x m > y kernel_shape=3,3", {**IMAGE, "m": [1, 1, 8]}, {}),
        "'m' must be [any, any, 8, 8], it is [1, 1, 8]",
    ),
    "bias of a product": (
        *("com.microsoft.GemmFastGelu x w b > y", {"x": [2, 4]}, {"w": weight(4, 6), "b": weight(4)}),
        "'b' must be [6], it is [4]",
    ),
    "sum after a bias": (
        *("com.microsoft.BiasAdd x b s > y", {**TOKENS, "s": [4, 8]}, {"b": weight(8)}),
        "'s' must be [1, 4, 8], it is [4, 8]",
    ),
    "keys of other tokens": (
        *("com.microsoft.LinearAttention x k x > y q_num_heads=2 kv_num_heads=2", {**TOKENS, "k": [1, 5, 8]}, {}),
        "'k' must be [1, 4, any], it is [1, 5, 8]",
    ),
    "scale of columns": (
        *("com.microsoft.MatMulIntegerToFloat x w s t > y", {"uint8:x": [2, 3, 4]}),
        *({"w": narrow(4, 6), "s": np.float32(1), "t": weight(4)}, "'t' must have 1 or 6 elements, it is [4]"),
    ),
    "coefficients": ("ai.onnx.ml.LinearRegressor x > y coefficients=[1.0,2.0]", {"x": [1, 4]}, {}, "got 2"),
}
COMPUTED: dict[str, tuple[Any, ...]] = {
    "groups": ("Conv x w b > y group=2", IMAGE, {"w": weight(6, 2, 3, 3), "b": weight(6)}),
    "turned groups": ("ConvTranspose x w b > y group=2", IMAGE, {"w": weight(4, 3, 2, 2), "b": weight(6)}),
    "one scale of a row": ("LayerNormalization x s s > y", TOKENS, {"s": weight(1)}),
    "scales of groups": ("GroupNormalization x s s > y num_groups=2", IMAGE, {"s": weight(2)}, 18),
    "scales of two axes": ("LayerNormalization x s > y axis=1", TOKENS, {"s": weight(4, 8)}),
    "bias of all": ("Gemm x w b > y", {"x": [2, 4]}, {"w": weight(4, 5), "b": weight()}),
    "bias of rows": ("Gemm x w b > y", {"x": [2, 4]}, {"w": weight(4, 5), "b": weight(2, 1)}),
    "bias of turned matrices": (
        *("Gemm x w b > y transA=1 transB=1", {"x": [4, 2]}, {"w": weight(5, 4), "b": weight(5)}),
    ),
    "negative index": ("Gather x i > y axis=1", TOKENS, {"i": [-4, 3]}),
    "negative elements": ("GatherElements x i > y axis=1", {"x": [2, 4]}, {"i": [[-1, 0, 0, 1, 2]]}),
    "points of samples": ("GatherND x i > y batch_dims=1", {"x": [2, 4]}, {"i": [[3], [-1]]}),
    "rows that are written": ("ScatterND x i u > y", {"x": [2, 4]}, {"i": [[1], [-1]], "u": weight(2, 4)}),
    "fewer updates": ("ScatterElements x i u > y axis=1", {"x": [2, 4]}, {"i": [[1]], "u": weight(1, 1)}),
    "letter of length 1": ("Einsum x w > y equation=ij,ij->ij", {"x": [1, 4]}, {"w": weight(3, 4)}),
    "sum of a letter of length 1": ("Einsum x w > y equation=ij,jk->ik", {"x": [3, 1]}, {"w": weight(3, 4)}),
    "axes without letters": ("Einsum x w > y equation=...ij,...jk", {"x": [2, 3, 4]}, {"w": weight(1, 4, 5)}),
    "letters in order": ("Einsum x w > y equation=ba,bc", {"x": [2, 3]}, {"w": weight(2, 5)}),
    "sizes of some axes": ("Resize x - - s > y axes=2,3 keep_aspect_ratio_policy=not_larger", IMAGE, {"s": [9, 8]}, 18),
    "both directions": (
        *("GRU x w r > y hidden_size=8 direction=bidirectional", STEPS),
        {"w": weight(2, 24, 4), "r": weight(2, 24, 8)},
    ),
    "first state": ("LSTM x w r - - h h > y hidden_size=8", STEPS, {**LSTM, "h": weight(1, 1, 8)}),
    "scales of rows": (*("DequantizeLinear x s p > y axis=0", {"uint8:x": [4, 6]}, {"s": weight(4), "p": narrow(4)}),),
    "scales of blocks": (
        *("DequantizeLinear x s p > y axis=0 block_size=2", {"uint8:x": [4, 6]}),
        *({"s": weight(2, 6), "p": narrow(2, 6)}, 21),
    ),
    "slope of channels": ("PRelu x w > y", TOKENS, {"w": weight(4, 1)}),
    "shared heads": (*("Attention x k v > y", {"x": [1, 8, 4, 16], "k": [1, 2, 6, 16], "v": [1, 2, 6, 12]}, {}, 23),),
    "mask of ends": (
        *("com.microsoft.Attention x w b m > y num_heads=2", {"x": [2, 4, 8], "int32:m": [2, 4]}),
        {"w": weight(8, 24), "b": weight(24)},
    ),
    "bias of all samples": (
        *("com.microsoft.MultiHeadAttention x x x - - a > y num_heads=2", {"x": [2, 4, 8], "a": [1, 1, 4, 4]}, {}),
    ),
    "gated experts": (
        *("com.microsoft.MoE x r w b v > y k=2 activation_type=swiglu swiglu_fusion=1", {"x": [3, 8], "r": [3, 2]}),
        {"w": weight(2, 32, 8), "b": weight(2, 32), "v": weight(2, 8, 16)},
    ),
    "experts in blocks": (
        *("com.microsoft.QMoE x r w s - v t > y k=1 expert_weight_bits=4 block_size=16", {"x": [3, 32], "r": [3, 2]}),
        {"w": narrow(2, 64, 16), "s": weight(2, 64, 2), "v": narrow(2, 32, 32), "t": weight(2, 32, 4)},
    ),
    "scales in a row": (
        *("com.microsoft.DynamicQuantizeMatMul x w s > y", {"x": [1, 4]}, {"w": narrow(4, 6), "s": weight(1, 6)}),
    ),
    "added rows": ("com.microsoft.SkipLayerNormalization x s g > y", {**TOKENS, "s": [4, 8]}, {"g": weight(8)}),
    "packed weight": (
        *("com.microsoft.MatMulNBits x w s > y K=64 N=16 bits=4 block_size=32", {"x": [1, 64]}),
        {"w": narrow(16, 2, 16), "s": weight(32)},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_operands_that_do_not_fit_are_one_clear_line(name: str, make: Any) -> None:
    program, inputs, constants, message, *version = REFUSED[name]
    with pytest.raises(UnreadableModel) as refused:
        trace(make(program, inputs, "y", constants, *version))
    said = str(refused.value)
    assert message in said
    assert "\n" not in said
    assert "node '" in said


@pytest.mark.parametrize("name", COMPUTED)
def test_operands_that_fit_have_the_shape_of_the_runtime(name: str, make: Any, sample: Any, execute: Any) -> None:
    program, inputs, constants, *version = COMPUTED[name]
    model = make(program, inputs, "y", constants, *version)
    (result, *_) = execute(model, sample(model, np.random.default_rng(0)))
    assert trace(model)["y"].shape == result.shape


def test_lengths_that_depend_on_data_are_no_contradiction(make: Any) -> None:
    program = "NonZero x > n; Transpose n > i; GatherND x i > p; ScatterND x i p > y"
    assert trace(make(program, {"x": [2, 4]}, "y"))["y"].shape == (2, 4)
    program = "NonZero x > n; Transpose n > i; ScatterND x i u > y"
    assert trace(make(program, {"x": [2, 4]}, "y", {"u": weight(3)}))["y"].shape == (2, 4)


def test_an_index_that_depends_on_an_input_is_not_looked_at(make: Any) -> None:
    assert trace(make("Gather w i > y", {"int:i": [3]}, "y", {"w": weight(4, 2)}))["y"].shape == (3, 2)
