"""Rules of ONNX Runtime's operators and of `ai.onnx.ml`: `RULES`, by domain and operator.

Scales, zero points and weights are operands that all samples share.
"""

from __future__ import annotations

from autoauto.graph.batch import moves, products
from autoauto.graph.batch import rows as by_rows
from autoauto.graph.batch.operands import SampleRule, side_by_side
from autoauto.graph.batch.sample_axes import NodeStep
from autoauto.graph.shapes.contrib import MICROSOFT, NCHWC

_POINTWISE = (
    "BiasAdd BiasDropout BiasGelu FastGelu Gelu GatedAdd QLinearAdd QLinearLeakyRelu QLinearMul QLinearSigmoid "
    "QLinearWhere QuickGelu SampleOp ScaledSiLU"
)
_ROWS = "GroupNorm NhwcMaxPool QLinearAveragePool QLinearConv QLinearGlobalAveragePool"
_ALONG_LAST = "BiasSplitGelu MatMulBnb4 MatMulNBits"

_MICROSOFT: dict[str, SampleRule] = {
    **dict.fromkeys(_POINTWISE.split(), by_rows.pointwise),
    **dict.fromkeys(_ROWS.split(), by_rows.rows),
    **dict.fromkeys(_ALONG_LAST.split(), by_rows.last_axes(1)),
    **dict.fromkeys(("Inverse", "Trilu"), by_rows.last_axes(2)),
    **dict.fromkeys(("DynamicQuantizeLSTM", "DynamicQuantizeMatMul"), by_rows.by_all_samples),
    **dict.fromkeys(("FusedConv", "NhwcConv", "NhwcFusedConv"), side_by_side(0, 3)),
    **dict.fromkeys(("FusedMatMul", "TransposeMatMul", "MatMulInteger16"), products.multiplied()),
    **dict.fromkeys(("LayerNormalization", "SimplifiedLayerNormalization"), by_rows.layer_norm),
    **dict.fromkeys(("QLinearReduceMean", "ReduceSumInteger"), by_rows.reduce),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), by_rows.quantize),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), by_rows.normalised_sum),
    "Attention": products.merged_attention(mask=3, past=4, bias=5),
    "BiasSoftmax": by_rows.softmax_of_sum,
    "CausalConvWithState": side_by_side(0, 3),
    "EmbedLayerNormalization": side_by_side(0, 1, 7, 8, broadcast=(8,)),
    "ExpandDims": moves.expand_dims,
    "FusedGemm": products.gemm(),
    "GatedRelativePositionBias": side_by_side(0, 6),
    "GatherBlockQuantized": moves.gather_rows(1, "gather_axis"),
    "GatherND": moves.gather_nd,
    "GridSample": side_by_side(0, 1),
    "GroupQueryAttention": side_by_side(0, 1, 2, 3, 4, 5, 9, 10, broadcast=(10,)),
    "LinearAttention": side_by_side(0, 1, 2, 3, 4, 5),
    "MatMulIntegerToFloat": products.multiplied(of_rows=(2, 4)),
    "MultiHeadAttention": side_by_side(0, 1, 2, 4, 5, 6, 7, broadcast=(5,)),
    "Pad": moves.pad,
    "QAttention": products.merged_attention(mask=5, past=8),
    "QEmbedLayerNormalization": side_by_side(0, 1, 7),
    "QGemm": products.gemm(0, 3, 6),
    "QLinearConcat": moves.concat,
    "QLinearSoftmax": by_rows.softmax,
    "RotaryEmbedding": products.rotated_by_positions,
    "TorchEmbedding": moves.gather_rows(1),
}

_BLOCKS = "AveragePool GlobalAveragePool GlobalMaxPool MaxPool ReorderInput ReorderOutput Upsample"

_FEATURES = (
    "LinearClassifier LinearRegressor SVMClassifier SVMRegressor TreeEnsemble TreeEnsembleClassifier "
    "TreeEnsembleRegressor"
)
_CLASSIC: dict[str, SampleRule] = {
    **dict.fromkeys(_FEATURES.split(), by_rows.features),
    **dict.fromkeys(("ArrayFeatureExtractor", "Imputer", "Normalizer", "Scaler"), by_rows.last_axes(1)),
    **dict.fromkeys(("Binarizer", "LabelEncoder", "OneHotEncoder"), NodeStep.only),
    "FeatureVectorizer": by_rows.joined_features,
}

RULES: dict[tuple[str, str], SampleRule] = {
    **{(MICROSOFT, op): rule for op, rule in _MICROSOFT.items()},
    **{(NCHWC, op): by_rows.rows for op in _BLOCKS.split()},
    (NCHWC, "Conv"): side_by_side(0, 3),
    **{("ai.onnx.ml", op): rule for op, rule in _CLASSIC.items()},
}
