"""Rules of the operators that keep samples apart, `RULES`: where the samples lie in the outputs.

A rule reads a `NodeStep` and returns the `SampleAxis` in all outputs, or one for each. It raises `NodeStep.refuse` when
the node mixes samples. To add one, put it into the table of its domain; the rules are in

    operands.py    what several of them share: how the samples of operands meet
    rows.py        operators that compute element by element, or along some axes
    moves.py       operators that move, join, cut or pick elements
    products.py    products, recurrent cells and attention
"""

from __future__ import annotations

from autoauto.graph.batch import moves, products
from autoauto.graph.batch import rows as by_rows
from autoauto.graph.batch.operands import SampleRule, side_by_side
from autoauto.graph.batch.sample_axes import NodeStep
from autoauto.graph.shapes.contrib import MICROSOFT, NCHWC

_POINTWISE = (
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Celu "
    "Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN "
    "LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink "
    "Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum SwiGLU Swish Tan Tanh ThresholdedRelu Where Xor"
)
_ROWS = (
    "AveragePool BatchNormalization Col2Im Conv ConvInteger ConvTranspose DepthToSpace GlobalAveragePool GlobalLpPool "
    "GlobalMaxPool GroupNormalization InstanceNormalization LRN LpPool MaxPool QLinearConv STFT SpaceToDepth"
)
_REDUCE = "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum"

_STANDARD: dict[str, SampleRule] = {
    **dict.fromkeys(_POINTWISE.split(), by_rows.pointwise),
    **dict.fromkeys(_ROWS.split(), by_rows.rows),
    **dict.fromkeys((*_REDUCE.split(), "ReduceSumSquare", "ArgMax", "ArgMin"), by_rows.reduce),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), by_rows.softmax),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"), by_rows.layer_norm),
    **dict.fromkeys(("Split", "TopK", "LpNormalization"), by_rows.along_axis),
    **dict.fromkeys(("CumSum", "CumProd"), by_rows.cumulate),
    **dict.fromkeys(("Det", "Trilu"), by_rows.last_axes(2)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), products.recurrent),
    **dict.fromkeys(("Resize", "Upsample"), moves.resize),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), by_rows.quantize),
    **dict.fromkeys(("CastLike", "Dropout"), NodeStep.only),
    **dict.fromkeys(("GatherElements", "ScatterElements"), moves.by_elements),
    "AffineGrid": moves.affine_grid,
    "Attention": products.attention,
    "CausalConvWithState": side_by_side(0, 3),
    "Concat": moves.concat,
    "DFT": by_rows.transform,
    "DeformConv": side_by_side(0, 2, 4),
    "DynamicQuantizeLinear": by_rows.by_all_samples,
    "Einsum": products.einsum,
    "Expand": moves.expand,
    "Flatten": moves.flatten,
    "Gather": moves.gather,
    "GatherND": moves.gather_nd,
    "Gemm": products.gemm(),
    "GridSample": side_by_side(0, 1),
    "LinearAttention": side_by_side(0, 1, 2, 3, 4, 5),
    "MatMul": products.multiplied(),
    "MatMulInteger": products.multiplied(of_rows=(2,)),
    "MeanVarianceNormalization": by_rows.field_norm,
    "OneHot": by_rows.one_hot,
    "Pad": moves.pad,
    "QLinearMatMul": products.multiplied(0, 3, of_rows=(1, 2)),
    "Reshape": moves.reshape,
    "ReverseSequence": by_rows.reverse_sequence,
    "RoiAlign": by_rows.regions,
    "RotaryEmbedding": products.rotated,
    "ScatterND": moves.scatter_nd,
    "Slice": moves.cut,
    "Squeeze": moves.squeeze,
    "TensorScatter": side_by_side(0, 1, 2),
    "Tile": moves.tile,
    "Transpose": moves.transpose,
    "Unsqueeze": moves.unsqueeze,
}

# ONNX Runtime's operators and those of `ai.onnx.ml`.
_CONTRIB_POINTWISE = (
    "BiasAdd BiasDropout BiasGelu FastGelu Gelu GatedAdd QLinearAdd QLinearLeakyRelu QLinearMul QLinearSigmoid "
    "QLinearWhere QuickGelu SampleOp ScaledSiLU"
)
_CONTRIB_ROWS = "GroupNorm NhwcMaxPool QLinearAveragePool QLinearConv QLinearGlobalAveragePool"
_ALONG_LAST = "BiasSplitGelu MatMulBnb4 MatMulNBits"

_MICROSOFT: dict[str, SampleRule] = {
    **dict.fromkeys(_CONTRIB_POINTWISE.split(), by_rows.pointwise),
    **dict.fromkeys(_CONTRIB_ROWS.split(), by_rows.rows),
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
    "BiasSoftmax": by_rows.normalised_sum,
    "CausalConvWithState": side_by_side(0, 3),
    "EmbedLayerNormalization": side_by_side(0, 1, 7, 8, broadcast=(8,)),
    "ExpandDims": moves.expand_dims,
    "FusedGemm": products.gemm(),
    "GatedRelativePositionBias": side_by_side(0, 6),
    "GatherBlockQuantized": moves.gather_rows("gather_axis"),
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
    "TorchEmbedding": moves.gather_rows(),
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
    **{("", op): rule for op, rule in _STANDARD.items()},
    **{(MICROSOFT, op): rule for op, rule in _MICROSOFT.items()},
    **{(NCHWC, op): by_rows.rows for op in _BLOCKS.split()},
    (NCHWC, "Conv"): side_by_side(0, 3),
    **{("ai.onnx.ml", op): rule for op, rule in _CLASSIC.items()},
}
"""By domain and operator; scales, zero points and weights are operands that all samples share."""
