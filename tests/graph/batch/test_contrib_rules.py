"""Rules of quantised and contrib operators, and of newer standard ones, against ONNX Runtime: as in `test_rules.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from autoauto.graph.batch.rebatch import rebatch
from autoauto.records.errors import BadInput

G = np.random.default_rng(11)
S, Z, Z8 = np.array(0.1, np.float32), np.array(3, np.uint8), np.array(0, np.int8)
X, IMAGE = {"x": [1, 4, 6]}, {"x": [1, 4, 6, 6]}
BYTES, BYTE_IMAGE = {"uint8:x": [1, 4, 6]}, {"uint8:x": [1, 4, 6, 6]}
MS, NCHWC, ML = "com.microsoft.", "com.microsoft.nchwc.", "ai.onnx.ml."
QUERIES = {"q": [1, 4, 8], "k": [1, 5, 8], "v": [1, 5, 8]}
HEADS = {"q": [1, 2, 4, 8], "k": [1, 2, 5, 8], "v": [1, 2, 5, 8]}


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return G.standard_normal(shape).astype(np.float32)


def whole(dtype: type, *shape: int) -> np.ndarray[Any, Any]:
    return G.integers(0, 9, shape).astype(dtype)


QUANTISED = {"s": S, "z": Z}
RIGHT: dict[str, tuple[Any, ...]] = {
    "MatMulInteger": ("MatMulInteger x w z > y", BYTES, "int32:y", QUANTISED | {"w": whole(np.int8, 6, 3)}),
    "MatMulInteger of rows": ("MatMulInteger x w > y", {"uint8:x": [1, 6]}, "int32:y", {"w": whole(np.int8, 6, 3)}),
    "ConvInteger": ("ConvInteger x w z > y", BYTE_IMAGE, "int32:y", QUANTISED | {"w": whole(np.uint8, 2, 4, 3, 3)}),
    "QLinearConv": (
        "QLinearConv x s z w s z s z > y",
        BYTE_IMAGE,
        "uint8:y",
        QUANTISED | {"w": whole(np.uint8, 2, 4, 3, 3)},
    ),
    "QLinearMatMul": ("QLinearMatMul x s z w s z s z > y", BYTES, "uint8:y", QUANTISED | {"w": whole(np.uint8, 6, 3)}),
    "OneHot": ("OneHot x d v > y axis=0", {"int:x": [1, 5]}, "y", {"d": np.array(3), "v": np.array([0.0, 1.0], "f4")}),
    "OneHot behind": ("OneHot x d v > y", {"int:x": [1, 5]}, "y", {"d": np.array(3), "v": np.array([0.0, 1.0], "f4")}),
    "Trilu, Det": ("Trilu x > t; Det t > y", {"x": [1, 4, 3, 3]}, "y"),
    "grid": ("GridSample x g > y", IMAGE, "y", {"g": floats(1, 3, 5, 2)}),
    "grid of samples": ("GridSample x g > y", IMAGE | {"g": [1, 3, 5, 2]}, "y"),
    "regions": (
        "RoiAlign x r b > y output_height=2 output_width=2",
        IMAGE,
        "y",
        {"r": np.abs(floats(3, 4)), "b": [0, 0, 0]},
    ),
    "ScatterND": ("ScatterND x i u > y", X, "y", {"i": [[[0, 1], [0, 3]]], "u": floats(1, 2, 6)}),
    "ScatterND of samples": (
        "Slice x a b c > u; ScatterND x i u > y",
        X,
        "y",
        {"i": [[[0, 1], [0, 3]]], "a": [0], "b": [2], "c": [1]},
    ),
    "ScatterElements": (
        "ScatterElements x i u > y axis=2",
        X,
        "y",
        {"i": np.zeros((1, 4, 1), int), "u": floats(1, 4, 1)},
    ),
    "reversed": ("ReverseSequence x n > y batch_axis=0 time_axis=1", X, "y", {"n": [3]}),
    "affine grid": (
        "AffineGrid x n > g; GridSample w g > y",
        {"x": [1, 2, 3]},
        "y",
        {"n": [1, 1, 4, 5], "w": floats(1, 1, 4, 4)},
        20,
    ),
    "spectrum": ("DFT x > y axis=1 onesided=1", {"x": [1, 8, 1]}, "y"),
    "spectrum of an axis": ("DFT x - a > y", {"x": [1, 8, 6, 1]}, "y", {"a": np.array(2)}, 20),
    "frames": ("STFT x h - f > y onesided=1", {"x": [1, 64, 1]}, "y", {"h": np.array(8), "f": np.array(16)}),
    "Attention": ("Attention q k v > y", HEADS, "y", {}, 23),
    "Attention with a mask": ("Attention q k v m > y", HEADS, "y", {"m": floats(4, 5)}, 23),
    "Attention of three axes": ("Attention q k v > y q_num_heads=2 kv_num_heads=2", QUERIES, "y", {}, 23),
    "RotaryEmbedding": (
        "RotaryEmbedding q c s p > y",
        {"q": [1, 2, 4, 8], "int:p": [1, 4]},
        "y",
        {"c": floats(9, 4), "s": floats(9, 4)},
        23,
    ),
    "RotaryEmbedding at fixed positions": (
        "RotaryEmbedding q c s p > y",
        {"q": [1, 2, 4, 8]},
        "y",
        {"c": floats(9, 4), "s": floats(9, 4), "p": [[0, 1, 2, 3]]},
        23,
    ),
    "FusedConv": (
        f"Conv x w > r; {MS}FusedConv x w - r > y activation=Relu",
        IMAGE,
        "y",
        {"w": floats(2, 4, 3, 3)},
    ),
    "in blocks": (
        f"{NCHWC}ReorderInput x > b; {NCHWC}Conv b w > c activation=Relu; {NCHWC}MaxPool c > p kernel_shape=2,2; "
        f"{NCHWC}ReorderOutput p > y channels=28",
        {"x": [1, 16, 6, 6]},
        "y",
        {"w": floats(32, 16, 3, 3)},
    ),
    "FusedMatMul": (f"{MS}FusedMatMul x w > y transB=1 alpha=0.5", X, "y", {"w": floats(3, 6)}),
    "FusedMatMul of columns": (
        f"Transpose x > t; {MS}FusedMatMul t w > y transA=1",
        {"x": [1, 4]},
        "y",
        {"w": floats(4, 3)},
    ),
    "FusedMatMul of both": (f"{MS}FusedMatMul x z > y transA=1", {"x": [1, 4, 6], "z": [1, 4, 5]}, "y"),
    "FusedGemm": (f"{MS}FusedGemm x w b > y activation=Relu", {"x": [1, 4]}, "y", {"w": floats(4, 3), "b": floats(3)}),
    "gelus": (
        f"{MS}BiasGelu x b > a; {MS}FastGelu a b > c; {MS}Gelu c > d; {MS}QuickGelu d > y",
        X,
        "y",
        {"b": floats(6)},
    ),
    "skip norm": (
        f"{MS}SkipLayerNormalization x p g g b > n - - t; Add n t > a; {MS}SkipSimplifiedLayerNormalization a x g > y",
        X,
        "y",
        {"p": floats(1, 4, 6), "g": floats(6), "b": floats(6)},
    ),
    "rms norm": ("SimplifiedLayerNormalization x g > y", X, "y", {"g": floats(6)}),
    "merged attention": (
        f"{MS}Attention x w b > y num_heads=2",
        {"x": [1, 4, 8]},
        "y",
        {"w": floats(8, 24), "b": floats(24)},
    ),
    "merged attention with a past": (
        f"{MS}Attention x w b - p > y z num_heads=2",
        {"x": [1, 4, 8]},
        "y z",
        {"w": floats(8, 24), "b": floats(24), "p": floats(2, 1, 2, 3, 4)},
    ),
    "multi-head attention": (
        f"{MS}MultiHeadAttention q k v - - b > y num_heads=2",
        QUERIES,
        "y",
        {"b": floats(1, 2, 4, 5)},
    ),
    "grouped attention": (
        f"{MS}GroupQueryAttention q k v - - n t > y num_heads=2 kv_num_heads=1",
        {"q": [1, 4, 16], "k": [1, 4, 8], "v": [1, 4, 8]},
        "y",
        {"n": whole(np.int32, 1) * 0 + 3, "t": np.array(4, np.int32)},
    ),
    "rotary": (
        f"{MS}RotaryEmbedding q p c s > y num_heads=2",
        {"q": [1, 4, 8]},
        "y",
        {"p": [[0, 1, 2, 3]], "c": floats(9, 2), "s": floats(9, 2)},
    ),
    "embeddings": (
        f"{MS}EmbedLayerNormalization i - w p - g g > y m",
        {"int32:i": [1, 4]},
        "y int32:m",
        {"w": floats(9, 8), "p": floats(4, 8), "g": floats(8)},
    ),
    "packed weight": (
        f"{MS}MatMulNBits x w s > y K=32 N=3 bits=4 block_size=32",
        {"x": [1, 4, 32]},
        "y",
        {"w": whole(np.uint8, 3, 1, 16), "s": floats(3)},
    ),
    "quantised steps": (
        f"{MS}QLinearAdd x s z c s z s z > a; {MS}QLinearSigmoid a s z s z > b; {MS}QLinearMul a s z b s z s z > d; "
        f"{MS}QLinearConcat s z a s z d s z > e axis=1; {MS}QLinearSoftmax e s z t u > y opset=13 axis=-1",
        BYTES,
        "uint8:y",
        QUANTISED | {"c": whole(np.uint8, 6), "t": np.array(1 / 256, np.float32), "u": np.array(0, np.uint8)},
    ),
    "quantised pools": (
        f"{MS}QLinearAveragePool x s z s z > p kernel_shape=2,2; {MS}QLinearGlobalAveragePool p s z s z > y",
        BYTE_IMAGE,
        "uint8:y",
        QUANTISED,
    ),
    "channels last": (
        f"{MS}NhwcMaxPool x > p kernel_shape=2,2; {MS}QLinearConv p s z w s z s z > y channels_last=1",
        {"uint8:x": [1, 6, 6, 4]},
        "uint8:y",
        QUANTISED | {"w": whole(np.uint8, 2, 4, 3, 3)},
    ),
    "quantised gemm": (
        f"{MS}QGemm x s z w s z - s z > y",
        {"uint8:x": [1, 4]},
        "uint8:y",
        QUANTISED | {"w": whole(np.uint8, 4, 3)},
    ),
    "integers to floats": (
        f"{MS}MatMulIntegerToFloat x w s s z z > y",
        BYTES,
        "y",
        QUANTISED | {"w": whole(np.uint8, 6, 3)},
    ),
    "quantised attention": (
        f"{MS}QAttention x w b s s - z n > y num_heads=2",
        {"uint8:x": [1, 4, 8]},
        "y",
        QUANTISED | {"w": whole(np.int8, 8, 24), "b": floats(24), "n": Z8},
    ),
    "of Microsoft": (
        f"{MS}QuantizeLinear x s z > q; {MS}DequantizeLinear q s z > d; {MS}Pad d p > e; {MS}ExpandDims e a > f; "
        f"{MS}Trilu f > y",
        X,
        "y",
        QUANTISED | {"p": [0, 1, 0, 0, 0, 2], "a": np.array(1, np.int32)},
    ),
    **{
        f"an axis at {axis} beside samples": (
            f"Transpose x > t perm=1,0,2; {MS}ExpandDims t a > e; Transpose e > y perm={order}",
            X,
            "y",
            {"a": np.array(axis, np.int32)},
        )
        for axis, order in ((0, "2,0,1,3"), (1, "2,0,1,3"), (2, "1,0,2,3"), (3, "1,0,2,3"), (-1, "1,0,2,3"))
    },
    "packed table": (
        f"{MS}GatherBlockQuantized t x s > y gather_axis=0 quantize_axis=1 block_size=32",
        {"int:x": [1, 5]},
        "y",
        {"t": whole(np.uint8, 9, 16), "s": floats(9, 1)},
    ),
    "features": (
        f"{ML}Scaler x > a offset=0.0,0.0,0.0 scale=1.0,2.0,3.0; {ML}Normalizer a > b norm=L2; "
        f"{ML}LinearRegressor b > y coefficients=1.0,2.0,3.0 intercepts=0.5,",
        {"x": [1, 3]},
        "y",
    ),
}

WRONG: dict[str, tuple[Any, ...]] = {
    "a scale of all samples": ("DynamicQuantizeLinear x > q s z; DequantizeLinear q s z > y", X, "y"),
    "a product that quantises": (
        f"{MS}DynamicQuantizeMatMul x w s z > y",
        X,
        "y",
        {"w": whole(np.uint8, 6, 3), "s": S, "z": Z},
    ),
    "factors of rows": (
        "MatMulInteger x w z > y",
        {"uint8:x": [2, 6]},
        "y",
        {"w": whole(np.int8, 6, 3), "z": whole(np.uint8, 2)},
    ),
    "all fields together": ("MeanVarianceNormalization x > y", IMAGE, "y"),
    "lower triangles of samples": ("Trilu x > y", {"x": [3, 3]}, "y"),
    "keys of all samples": (
        "Attention q k v > y",
        {"q": [2, 2, 4, 8]},
        "y",
        {"k": floats(2, 2, 5, 8), "v": floats(2, 2, 5, 8)},
        23,
    ),
    "moved by a product": (f"{MS}FusedMatMul x w > y transBatchA=1", {"x": [1, 1, 4]}, "y", {"w": floats(4, 3)}),
    "summed by a turned product": (f"{MS}FusedMatMul x w > y transA=1", {"x": [1, 4]}, "y", {"w": floats(1, 3)}),
    "joined on samples": (f"{MS}QLinearConcat s z x s z x s z > y axis=0", BYTES, "y", QUANTISED),
    "written over samples": (
        "ScatterElements x i u > y axis=0",
        X,
        "y",
        {"i": np.zeros((1, 4, 6), int), "u": floats(1, 4, 6)},
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_samples_do_not_change_each_other(name: str, make: Callable[..., onnx.ModelProto], check: Any) -> None:
    check(make(*RIGHT[name]))


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_mixes_samples_is_refused(name: str, make: Callable[..., onnx.ModelProto]) -> None:
    with pytest.raises(BadInput, match="the file fixes the batch at") as caught:
        rebatch(make(*WRONG[name]), 4)
    assert "\n" not in str(caught.value)
