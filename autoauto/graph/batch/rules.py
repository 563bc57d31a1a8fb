"""Rules of the operators that keep samples apart, `RULES`: where the samples lie in the outputs.

A rule reads a `NodeStep` and returns the `SampleAxis` in all outputs, or one for each. It raises `NodeStep.refuse` when
the node mixes samples. To add one, put it into the table here, or into that of `contrib.py`; the rules are in

    operands.py    what several of them share: how the samples of operands meet
    rows.py        operators that compute element by element, or along some axes
    moves.py       operators that move, join, cut or pick elements
    products.py    products, recurrent cells and attention
    contrib.py     ONNX Runtime's operators and those of `ai.onnx.ml`
"""

from __future__ import annotations

from autoauto.graph.batch import contrib, moves, products
from autoauto.graph.batch import rows as by_rows
from autoauto.graph.batch.operands import SampleRule, side_by_side
from autoauto.graph.batch.sample_axes import NodeStep

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
    **dict.fromkeys((*_REDUCE.split(), "ReduceSumSquare"), by_rows.reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), by_rows.arg_reduce),
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

RULES: dict[tuple[str, str], SampleRule] = {("", op): rule for op, rule in _STANDARD.items()} | contrib.RULES
"""By domain and operator."""
