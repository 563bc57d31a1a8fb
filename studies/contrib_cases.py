"""Operators of ONNX Runtime and of `ai.onnx.ml` in shapes that are small and large: `CASES`, as in `operator_cases.py`.

What real files have as constants, quantised weights for example, is an input here where its type is not a float.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onnx import TensorProto, helper

from studies.operator_cases import Case

_MICROSOFT, _NCHWC, _ML = "com.microsoft", "com.microsoft.nchwc", "ai.onnx.ml"
_UNARY = ("1x8", "64x197x768", "4000000x4")
_TOKENS = ("1x8x64", "16x384x768")
_BYTES = ("u1x8 %0.1 u", "u64x197x768 %0.1 u")
_OF_BYTES = "%0.1 u"


def _of(domain: str, operators: str, *operands: str, n_outputs: int = 0, **attributes: Any) -> Iterator[Case]:
    """A case for every operator and every text of operands."""
    for op in operators.split():
        for words in operands:
            yield Case(op, words, attributes, domain, n_outputs)


def _named(domain: str, operators: str, *operands: str, n_outputs: int = 0, **attributes: Any) -> Iterator[Case]:
    """The same for operators whose names the standard has, too."""
    names = " ".join(f"{domain}.{op}" for op in operators.split())
    return _of(domain, names, *operands, n_outputs=n_outputs, **attributes)


def _fused() -> Iterator[Case]:
    """What the optimiser fuses."""
    yield from _of(_MICROSOFT, "FastGelu QuickGelu ScaledSiLU", *_UNARY)
    yield from _named(_MICROSOFT, "Gelu", *_UNARY)
    yield from _of(_MICROSOFT, "BiasGelu", "1x8 w8", "64x197x768 w768")
    yield from _of(_MICROSOFT, "BiasAdd", "1x8x8 w8 1x8x8", "16x4096x320 w320 16x4096x320")
    yield from _of(_MICROSOFT, "BiasSplitGelu", "16x1024x5120 w5120")
    yield from _of(_MICROSOFT, "GatedAdd", "1x8 1x8 1x1", "64x197x768 64x197x768 64x197x1")
    yield from _named(_MICROSOFT, "SwiGLU", "1x8 1x8", "64x128x4096 64x128x4096")
    yield from _named(_MICROSOFT, "LayerNormalization", "1x8 w8 w8", "64x197x768 w768 w768")
    yield from _named(_MICROSOFT, "SimplifiedLayerNormalization", "1x8 w8", "64x197x768 w768")
    yield from _of("", "SimplifiedLayerNormalization", "1x8 w8", "64x197x768 w768")
    yield from _of(_MICROSOFT, "SkipLayerNormalization", "1x8x8 1x8x8 w8 w8 w8", "16x384x768 16x384x768 w768 w768 w768")
    yield from _of(_MICROSOFT, "SkipSimplifiedLayerNormalization", "1x8x8 1x8x8 w8", "16x384x768 16x384x768 w768")
    yield from _of(_MICROSOFT, "GroupNorm", "1x8x8x32 w32 w32", "8x64x64x320 w320 w320", groups=32, activation=1)
    yield from _of(_MICROSOFT, "SkipGroupNorm", "8x64x64x320 w320 w320 8x64x64x320", groups=32, activation=1)
    yield from _of(_MICROSOFT, "BiasSoftmax", "1x8x8 1x1x8", "16x12x384x384 16x1x1x384", axis=-1, is_inner_broadcast=0)
    yield from _of(_MICROSOFT, "BiasDropout BitmaskBiasDropout", "64x197x768 w768")
    yield from _of(_MICROSOFT, "BitmaskDropout", "64x197x768")
    yield from _of("ai.onnx.preview.training", "Adagrad", "%0.1 #0 64x768 64x768 64x768", n_outputs=2,
                   norm_coefficient=0.1, decay_factor=0.1, epsilon=0.1)  # fmt: skip
    yield from _of("ai.onnx.preview.training", "Momentum", "%0.1 #0 64x768 64x768 64x768", n_outputs=2,
                   alpha=0.9, beta=0.1, mode="standard", norm_coefficient=0.1)  # fmt: skip
    yield from _of("ai.onnx.preview.training", "Adam", "%0.1 #0 64x768 64x768 64x768 64x768", n_outputs=3)
    yield from _of("ai.onnx.preview", "FlexAttention", "16x12x384x64 16x12x384x64 16x12x384x64")
    yield from _of(_MICROSOFT, "ComplexMul ComplexMulConj", "1x8x2 1x8x2", "64x1000x2 64x1000x2")
    yield from _convolutions()
    yield from _products()
    yield from _attention()
    yield from _moves()


def _convolutions() -> Iterator[Case]:
    yield from _of(
        _MICROSOFT,
        "FusedConv",
        "1x3x224x224 w64x3x7x7 w64",
        "16x64x56x56 w64x64x3x3 w64 16x64x56x56",
        activation="Relu",
    )
    yield from _of(_MICROSOFT, "NhwcConv NhwcFusedConv", "1x7x7x64 w64x64x3x3", "16x56x56x64 w64x64x3x3 w64")
    yield from _named(_NCHWC, "Conv", "1x3x224x224 w64x3x7x7 w64", "16x64x56x56 w64x64x3x3 w64", activation="Relu")
    yield from _named(_NCHWC, "MaxPool AveragePool", "1x16x7x7", "16x64x112x112", kernel_shape=[3, 3], strides=[2, 2])
    yield from _named(_NCHWC, "GlobalAveragePool GlobalMaxPool", "1x16x7x7", "16x2048x7x7")
    yield from _named(_NCHWC, "Upsample", "16x64x56x56", scales=[1, 1, 2, 2])
    yield from _of(_NCHWC, "ReorderInput", "1x16x7x7", "16x64x56x56")
    yield from _of(_NCHWC, "ReorderOutput", "16x64x56x56", channels=64)
    yield from _of(_MICROSOFT, "NhwcMaxPool", "u1x7x7x16", "u16x112x112x64", kernel_shape=[3, 3], strides=[2, 2])
    yield from _of(_MICROSOFT, "MaxpoolWithMask", "16x64x112x112 j16x1x112x112", kernel_shape=[3, 3])
    yield from _of(_MICROSOFT, "ConvTransposeWithDynamicPads", "16x64x28x28 w64x32x2x2 =0,0,0,0", strides=[2, 2])
    yield from _of(_MICROSOFT, "CropAndResize", "1x256x56x56 1000x4 j1000 =7,7")
    yield from _named(_MICROSOFT, "GridSample", "16x64x56x56 16x56x56x2")
    yield from _named(_MICROSOFT, "CausalConvWithState", "4x768x128 w768x1x4", n_outputs=2)


def _products() -> Iterator[Case]:
    yield from _of(_MICROSOFT, "FusedMatMul TransposeMatMul", "1x8x64 w32x64", "16x384x768 w3072x768", transB=1)
    yield from _of(_MICROSOFT, "FusedMatMulActivation", "16x384x768 w768x3072", activation="Relu")
    yield from _of(_MICROSOFT, "GemmFastGelu", "16x384x768 w768x3072")
    yield from _of(_MICROSOFT, "FusedGemm", "1x8 w8x8 w8", "256x2048 w2048x1000 w1000", activation="Relu")
    yield from _of(_MICROSOFT, "MatMulNBits", "1x1x4096 v4096x128x16 w4096x128", "1x128x4096 v4096x128x16 w4096x128",
                   K=4096, N=4096, bits=4, block_size=32)  # fmt: skip
    yield from _of(_MICROSOFT, "MatMulBnb4", "1x1x4096 v8388608 w262144", K=4096, N=4096, block_size=64, quant_type=1)
    yield from _of(_MICROSOFT, "CDist", "1x64 8x64", "1000x64 5000x64", metric="euclidean")
    yield from _of(_MICROSOFT, "MoE", "128x768 128x8 w8x768x1024 - w8x1024x768", k=2)
    yield from _of(_MICROSOFT, "QMoE", "128x768 128x8 w8x1024x384 - - w8x768x512", k=2)
    yield from _of(_MICROSOFT, "Inverse", "1x64x64", "1000x4x4")
    yield from _of(_MICROSOFT, "Rfft", "1x512", "64x100x400", "4x16000", signal_ndim=1)
    yield from _of(_MICROSOFT, "Irfft", "1x257x2", "64x100x201x2", signal_ndim=1)


def _attention() -> Iterator[Case]:
    yield from _named(_MICROSOFT, "Attention", "1x8x64 w64x192 w192", num_heads=4)
    yield from _named(_MICROSOFT, "Attention", "16x384x768 w768x2304 w2304", num_heads=12)
    yield from _of(_MICROSOFT, "MultiHeadAttention", "1x8x64 1x8x64 1x8x64", num_heads=4)
    yield from _of(_MICROSOFT, "MultiHeadAttention", "16x384x768 16x384x768 16x384x768", num_heads=12)
    yield from _of(_MICROSOFT, "DecoderMaskedMultiHeadAttention", "64x1x768 64x1x768 64x1x768 - - 64x12x512x64",
                   num_heads=12)  # fmt: skip
    yield from _of(_MICROSOFT, "DecoderMaskedSelfAttention", "1x1x768 w768x2304 w2304", num_heads=12)
    yield from _of(_MICROSOFT, "PackedAttention", "2000x768 w768x2304 w2304 j16x384", num_heads=12)
    yield from _of(_MICROSOFT, "GroupQueryAttention", "4x128x4096 4x128x1024 4x128x1024 - - j4 #128",
                   num_heads=32, kv_num_heads=8, do_rotary=1)  # fmt: skip
    yield from _of(_MICROSOFT, "SparseAttention", "4x128x4096 4x128x1024 4x128x1024 4x8x256x128 4x8x256x128",
                   num_heads=32, kv_num_heads=8, sparse_block_size=64)  # fmt: skip
    yield from _named(_MICROSOFT, "LinearAttention", "4x128x768 4x128x768 4x128x768", q_num_heads=12, kv_num_heads=12)
    yield from _of(_MICROSOFT, "EmbedLayerNormalization", "j16x128 j16x128 w30522x768 w512x768 w2x768 w768 w768")
    yield from _named(_MICROSOFT, "RotaryEmbedding", "16x12x384x64 =0 w1024x32 w1024x32")
    yield from _of(_MICROSOFT, "GemmaRotaryEmbedding", "4x128x64 4x8x128x64 4x8x128x64 4x8x128x64 4x8x128x64",
                   n_outputs=2)  # fmt: skip
    yield from _of(_MICROSOFT, "RelativePositionBias", "32x12 =384 =384", max_distance=128)
    yield from _of(_MICROSOFT, "GatedRelativePositionBias", "16x384x768 w768 w1x12x384x384 w64x8 w8 w1x12x1x1",
                   num_heads=12)  # fmt: skip


def _moves() -> Iterator[Case]:
    yield from _of(_MICROSOFT, "ExpandDims", "64x197x768 #1")
    yield from _of(_MICROSOFT, "RestorePadding", "2000x768 j16x384")
    yield from _of(_MICROSOFT, "UnfoldTensor", "16x1000x64", dim=1, size=4, step=2)
    yield from _of(_MICROSOFT, "TorchEmbedding", "w30522x768 i64x128")
    yield from _of(_MICROSOFT, "GatherBlockQuantized", "v32000x2048 i4x128 w32000x128", block_size=32)
    yield from _named(_MICROSOFT, "GatherND", "64x197x768 i1000x2")
    yield from _named(_MICROSOFT, "Pad", "16x64x112x112 =0,0,1,1,0,0,1,1")
    yield from _named(_MICROSOFT, "Trilu", "1x8x8", "12x1024x1024")


def _quantised() -> Iterator[Case]:
    """What the quantiser writes."""
    yield from _of(_MICROSOFT, "QLinearSigmoid QLinearLeakyRelu", *(f"{words} {_OF_BYTES}" for words in _BYTES))
    yield from _of(_MICROSOFT, "QLinearAdd QLinearMul", *(f"{words} {words} {_OF_BYTES}" for words in _BYTES))
    yield from _of(_MICROSOFT, "QLinearWhere", f"b64x197x768 {_BYTES[1]} {_BYTES[1]} {_OF_BYTES}")
    yield from _of(_MICROSOFT, "QLinearSoftmax", *(f"{words} {_OF_BYTES}" for words in _BYTES), opset=13, axis=-1)
    yield from _of(
        _MICROSOFT, "QLinearReduceMean", *(f"{words} {_OF_BYTES}" for words in _BYTES), axes=[-1], keepdims=1
    )
    yield from _of(_MICROSOFT, "ReduceSumInteger", "u1x8", "u64x197x768", axes=[-1], keepdims=1)
    yield from _of(_MICROSOFT, "QLinearConcat", f"{_OF_BYTES} {_BYTES[1]} {_BYTES[1]}", axis=1)
    yield from _of(_MICROSOFT, "QLinearAveragePool", f"u16x64x112x112 {_OF_BYTES} {_OF_BYTES}", kernel_shape=[3, 3])
    yield from _of(_MICROSOFT, "QLinearGlobalAveragePool", f"u16x2048x7x7 {_OF_BYTES} {_OF_BYTES}", channels_last=0)
    yield from _named(
        _MICROSOFT, "QLinearConv", f"u16x56x56x64 {_OF_BYTES} v64x64x3x3 {_OF_BYTES} {_OF_BYTES}", channels_last=1
    )
    yield from _of(_MICROSOFT, "QGemm", f"u256x2048 {_OF_BYTES} v2048x1000 {_OF_BYTES} - {_OF_BYTES}")
    yield from _of(_MICROSOFT, "MatMulInteger16", "u64x197x768 v768x3072")
    yield from _of(_MICROSOFT, "MatMulIntegerToFloat", "u64x197x768 v768x3072 %0.1 %0.1")
    yield from _of(_MICROSOFT, "DynamicQuantizeMatMul", "64x197x768 v768x3072 %0.1")
    yield from _of(_MICROSOFT, "DynamicQuantizeLSTM", "10x1x64 v1x64x128 v1x32x128", hidden_size=32)
    yield from _of(_MICROSOFT, "QAttention", "u16x384x768 v768x2304 w2304 %0.1 %0.1", num_heads=12)
    yield from _of(_MICROSOFT, "QEmbedLayerNormalization",
                   "j16x128 j16x128 v30522x768 v512x768 v2x768 v768 v768 - %0.1")  # fmt: skip
    yield from _named(_MICROSOFT, "QuantizeLinear", "1x8 %0.1", "64x197x768 %0.1")
    yield from _named(_MICROSOFT, "DequantizeLinear", "u1x8 %0.1", "u64x197x768 %0.1")


_TREES: dict[str, Any] = {
    "nodes_treeids": [tree for tree in range(100) for _ in range(3)],
    "nodes_nodeids": [0, 1, 2] * 100,
    "nodes_featureids": [0] * 300,
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * 100,
    "nodes_values": [0.5] * 300,
    "nodes_truenodeids": [1, 0, 0] * 100,
    "nodes_falsenodeids": [2, 0, 0] * 100,
}


_FOREST: dict[str, Any] = {
    "tree_roots": list(range(100)),
    "nodes_featureids": [0] * 100,
    "nodes_modes": helper.make_tensor("modes", TensorProto.UINT8, [100], [0] * 100),
    "nodes_splits": helper.make_tensor("splits", TensorProto.FLOAT, [100], [0.5] * 100),
    "nodes_truenodeids": [0] * 100,
    "nodes_falsenodeids": [0] * 100,
    "nodes_trueleafs": [1] * 100,
    "nodes_falseleafs": [1] * 100,
    "leaf_targetids": [0],
    "leaf_weights": helper.make_tensor("leaves", TensorProto.FLOAT, [1], [0.5]),
    "n_targets": 1,
}


def _classic() -> Iterator[Case]:
    """Trees, linear models and encoders."""
    rows = ("1x64", "100000x64")
    yield from _of(_ML, "Binarizer Normalizer Scaler", *rows)
    yield from _of(_ML, "Imputer", *rows, imputed_value_floats=[1.0])
    yield from _of(_ML, "LabelEncoder", *rows, keys_floats=[0.0, 1.0, 2.0], values_floats=[5.0, 6.0, 7.0])
    yield from _of(_ML, "CategoryMapper", "i1x64", "i100000x64", cats_int64s=[0, 1], cats_strings=["a", "b"])
    yield from _of(_ML, "OneHotEncoder", *rows, cats_int64s=list(range(8)))
    yield from _of(_ML, "FeatureVectorizer", "1000x64 1000x8", inputdimensions=[64, 8])
    yield from _of(_ML, "ArrayFeatureExtractor", "1000x64 =0,3,5,7,9")
    yield from _of(_ML, "LinearRegressor", *rows, coefficients=[0.5] * 640, targets=10)
    yield from _of(_ML, "LinearClassifier", *rows, coefficients=[0.5] * 640, classlabels_ints=list(range(10)))
    yield from _of(_ML, "SVMRegressor", *rows, support_vectors=[0.5] * 6400, coefficients=[0.5] * 100)
    yield from _of(
        _ML, "SVMClassifier", *rows, support_vectors=[0.5] * 6400, coefficients=[0.5] * 100, classlabels_ints=[0, 1]
    )
    yield from _of(_ML, "TreeEnsemble", *rows, **_FOREST)
    yield from _of(_ML, "TreeEnsembleRegressor", *rows, n_targets=1, **_TREES)
    yield from _of(_ML, "TreeEnsembleClassifier", *rows, classlabels_int64s=[0, 1, 2], **_TREES)


VIEWS = frozenset({"com.microsoft.Range"})
"""Operators that cost nothing: their output is a constant."""

UNREADABLE = frozenset({"com.microsoft.Unique"})
"""Operators whose shapes depend on data."""

CASES: tuple[Case, ...] = (*_fused(), *_quantised(), *_classic())
