"""Every operator in shapes that are small, large, thin and wide: `CASES`, each a model of one node (`Case.model`).

Operands are written as words: `4x8` is an input of float elements, `w4x8` a weight, `v4x8` one of bytes, `i4x8`,
`j4x8`, `b4x8` and `u4x8` inputs of int64, int32, bool and uint8, `=1,2` and `~1.5` constants of int64 and float, `#1`
and `%1.5` the same as scalars, and `-` an operand that is left out. Operators of other domains than the standard's are
in `contrib_cases.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autoauto.graph.onnx_file import MAX_CONSTANT_ELEMENTS

_TYPES = {"i": TensorProto.INT64, "j": TensorProto.INT32, "b": TensorProto.BOOL, "u": TensorProto.UINT8}
_CONSTANTS = {"=": np.int64, "#": np.int64, "~": np.float32, "%": np.float32}
_IR_VERSION = 10


@dataclass(frozen=True, slots=True)
class Case:
    """One operator at one shape.

    Attributes:
        op: the operator, as a layer names it.
        operands: as words, see above.
        attributes: of the node.
        domain: of the operator, the standard one by default.
        n_outputs: how many the node writes, 0 for as many as its definition says.
    """

    op: str
    operands: str
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    n_outputs: int = 0

    def model(self) -> onnx.ModelProto:
        """A model of this node alone, in the last operator set that has the operator."""
        inputs, constants, names = [], [], []
        for position, word in enumerate(self.operands.split()):
            name = "" if word == "-" else f"operand_{position}"
            names.append(name)
            if word[0] in _CONSTANTS:
                numbers = np.array([float(number) for number in word[1:].split(",")], _CONSTANTS[word[0]])
                constants.append(numpy_helper.from_array(numbers[0] if word[0] in "#%" else numbers, name))
            elif word[0] in "wv":
                dtype = TensorProto.FLOAT if word[0] == "w" else TensorProto.UINT8
                constants.append(_weight(name, dtype, _shape(word[1:])))
            elif name:
                dtype = _TYPES.get(word[0], TensorProto.FLOAT)
                inputs.append(helper.make_tensor_value_info(name, dtype, _shape(word.lstrip("ibju"))))
        outputs = [f"output_{index}" for index in range(self._count_outputs())]
        op = self.op.rpartition(".")[2]
        node = helper.make_node(op, names, outputs, op, domain=self.domain or None, **self.attributes)
        graph = helper.make_graph([node], self.op, inputs, list(map(helper.make_empty_tensor_value_info, outputs)))
        graph.initializer.extend(constants)
        versions = {"": 22, self.domain: _version(op, self.domain)}
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid(*each) for each in versions.items()], ir_version=_IR_VERSION
        )

    def _count_outputs(self) -> int:
        """As many as are asked for, else as the definition has at least."""
        if self.n_outputs or self.domain.startswith("com."):
            return self.n_outputs or 1
        definition = onnx.defs.get_schema(self.op, domain=self.domain)
        return int(max(self.attributes.get("num_outputs", 1), definition.min_output))


def _weight(name: str, dtype: int, shape: list[int]) -> onnx.TensorProto:
    """A weight, of which only a small one has values: the others are not read."""
    if np.prod(shape) <= MAX_CONSTANT_ELEMENTS:
        return numpy_helper.from_array(np.ones(shape, helper.tensor_dtype_to_np_dtype(dtype)), name)
    return TensorProto(name=name, data_type=dtype, dims=shape)


def _shape(word: str) -> list[int]:
    return [int(length) for length in word.split("x") if length]


def _version(op: str, domain: str) -> int:
    """The newest operator set in which an operator is not withdrawn."""
    if domain:
        return 1 if domain.startswith("com.") else onnx.defs.get_schema(op, domain=domain).since_version
    schema = onnx.defs.get_schema(op)
    return schema.since_version - 1 if schema.deprecated else onnx.defs.onnx_opset_version()


def each(operators: str, *operands: str, **attributes: Any) -> Iterator[Case]:
    """A case for every operator and every text of operands."""
    for op in operators.split():
        for words in operands:
            yield Case(op, words, attributes)


_UNARY = ("1x8", "64x197x768", "4000000x4", "3x5000000")
_BINARY = (
    "1x8 1x8",
    "64x197x768 64x197x768",
    "64x197x768 w768",
    "1000000x4 1000000x1",
    "1x1000000 16x1",
    "3x5000000 1",
)
_INTEGERS = ("u1x8 u1x8", "u64x197x768 u64x197x768", "u1000000x4 u1000000x1")
_LOGICAL = ("b1x8 b1x8", "b64x197x768 b64x197x768", "b1000000x4 b1000000x1")
_ROWS = ("1x8", "64x12x197x197", "1000000x4", "16384x50", "4x250000", "1x5000000")
_IMAGES = ("1x8x7x7", "16x64x112x112", "1x2048x7x7", "256x3x224x224", "1x1x2000x2000")

VIEWS = frozenset(
    {
        "BlackmanWindow",
        "Constant",
        "ConstantOfShape",
        "Flatten",
        "HammingWindow",
        "HannWindow",
        "Identity",
        "MelWeightMatrix",
        "Range",
        "Reshape",
        "Shape",
        "Size",
        "Squeeze",
        "Unsqueeze",
    }
)
"""Operators that cost nothing: constants, and other shapes of the same tensor."""

UNREADABLE = frozenset(
    {
        "ConcatFromSequence",
        "If",
        "ImageDecoder",
        "Loop",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "RegexFullMatch",
        "Scan",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "SequenceMap",
        "SplitToSequence",
        "StringConcat",
        "StringNormalizer",
        "StringSplit",
        "TfIdfVectorizer",
    }
)
"""Operators whose shapes depend on data, that hold graphs, or whose values are texts or sequences of tensors."""

CASES: tuple[Case, ...] = (
    # one pass over the output
    *each(
        "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsInf "
        "IsNaN LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt "
        "Swish Tan Tanh ThresholdedRelu Bernoulli RandomNormalLike RandomUniformLike DynamicQuantizeLinear Clip",
        *_UNARY,
    ),
    *each(
        "Add Sub Mul Div Max Min Mean Sum PRelu Pow Equal Greater GreaterOrEqual Less LessOrEqual SwiGLU", *_BINARY[:2]
    ),
    *each("Add Sub Mul Div Max Min Mean Sum Pow Equal Greater GreaterOrEqual Less LessOrEqual", *_BINARY[2:]),
    *each("PRelu", "64x197x768 w768", "1000000x4 1000000x1"),
    *each("Sum Max Mean Min", "64x197x768 64x197x768 64x197x768 64x197x768"),
    *each("Pow", "64x197x768 ~2.0", "64x197x768 ~0.5", "64x197x768 ~3.7"),
    *each("Mod", "i1x8 i1x8", "i64x197x768 i64x197x768", "i1000000x4 i1000000x1"),
    *each("And Or Xor", *_LOGICAL),
    *each("BitwiseAnd BitwiseOr BitwiseXor", *_INTEGERS),
    *each("BitShift", *_INTEGERS, direction="LEFT"),
    *each("BitwiseNot", "u1x8", "u64x197x768", "u1000000x4"),
    *each("Not", "b1x8", "b64x197x768", "b1000000x4"),
    *each("Cast", *_UNARY, to=TensorProto.INT32),
    *each("BitCast", "1x8", "64x197x768", to=TensorProto.INT32),
    *each("CastLike", "1x8 i1", "64x197x768 i1"),
    *each("Where", "b1x8 1x8 1x8", "b64x197x768 64x197x768 64x197x768", "b1000000x4 1000000x1 w1"),
    *each("Dropout", "64x197x768 %0.5 b", "1000000x4 %0.5 b"),
    *each(
        "BatchNormalization",
        *(
            f"{words} w{words.split('x')[1]} w{words.split('x')[1]} w{words.split('x')[1]} w{words.split('x')[1]}"
            for words in _IMAGES
        ),
    ),
    *each("QuantizeLinear", "1x8 ~0.1", "64x197x768 ~0.1", "1000000x4 ~0.1"),
    *each("DequantizeLinear", "u1x8 ~0.1", "u64x197x768 ~0.1", "u1000000x4 ~0.1"),
    *each("RandomNormal RandomUniform", "", shape=[64, 197, 768]),
    *each("Multinomial", "64x1000", "1x50000", sample_size=8),
    # rows
    *each("Softmax LogSoftmax Hardmax", *_ROWS, "16x1000x64x64"),
    *each("Softmax LogSoftmax", "16x21x256x256", axis=1),
    *each("LpNormalization", *_ROWS, axis=-1),
    *each("LayerNormalization RMSNormalization", *(f"{words} w{words.split('x')[-1]}" for words in _ROWS)),
    *each(
        "GroupNormalization",
        *(f"{words} w{words.split('x')[1]} w{words.split('x')[1]}" for words in _IMAGES),
        num_groups=1,
    ),
    *each("GroupNormalization", "8x320x64x64 w320 w320", num_groups=32),
    *each("InstanceNormalization", *(f"{words} w{words.split('x')[1]} w{words.split('x')[1]}" for words in _IMAGES)),
    *each("MeanVarianceNormalization", *_IMAGES),
    *each("LRN", *_IMAGES, size=5),
    *each(
        "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
        "ReduceSumSquare",
        *(f"{words} =-1" for words in _ROWS),
        "64x197x768 =0",
        "16x64x112x112 =2,3",
        "64x3x5000 =0,1,2",
    ),
    *each("ArgMax ArgMin", *_ROWS, axis=-1),
    *each("GlobalAveragePool GlobalMaxPool GlobalLpPool", *_IMAGES),
    *each("CumSum CumProd", *(f"{words} #1" for words in ("1x8", "64x197x768", "1000000x4", "4x250000", "1x5000000"))),
    *each("TopK", *(f"{words} =4" for words in _ROWS)),
    *each("Unique", "1000", "64x197x768"),
    *each("NonZero", "1x8", "64x197x768"),
    *each("Compress", "64x197x768 b197", axis=1),
    *each("NonMaxSuppression", "1x1000x4 1x80x1000 =100"),
    # data movement
    *each("Transpose", "64x197x768", "4x250000", "64x3x224x224"),
    *each("Transpose", "64x12x197x64", "8x1000000x2x2", perm=[0, 2, 1, 3]),
    *each("Concat", "64x197x768 64x197x768", "1000000x4 1000000x1", "1x8 1x8", axis=1),
    *each("Slice", "64x197x768 =0 =100 =1", "1000000x4 =0 =2 =1", "64x197x768 =0 =1 =1"),
    *each("Split", "64x197x768", "1000000x4", axis=-1, num_outputs=2),
    *each("Pad", "1x8x7x7 =0,0,1,1,0,0,1,1", "16x64x112x112 =0,0,1,1,0,0,1,1"),
    *each("Expand", "64x1x768 =64,197,768", "1x1x384x384 =16,12,384,384"),
    *each("Tile", "64x1x768 =1,197,1", "1000000x1 =1,4"),
    *each("DepthToSpace SpaceToDepth", "16x64x112x112", "1x4x8x8", blocksize=2),
    *each("CenterCropPad", "16x64x112x112 =16,64,56,56"),
    *each("Col2Im", "16x576x3136 =56,56 =3,3", pads=[1, 1, 1, 1]),
    *each("Trilu", "12x1024x1024", "1x8x8"),
    *each("ReverseSequence", "197x64x768 i64"),
    *each("OneHot", "i64x128 =30522 ~0.0,1.0", "i8 =4 ~0.0,1.0"),
    *each("EyeLike", "1024x1024"),
    *each("MaxUnpool", "16x64x56x56 i16x64x56x56", kernel_shape=[2, 2], strides=[2, 2]),
    *each("Resize", "16x64x56x56 - ~1,1,2,2", "1x3x32x32 - ~1,1,8,8", mode="nearest"),
    *each("Resize", "16x64x56x56 - ~1,1,2,2", "1x3x32x32 - ~1,1,8,8", mode="linear"),
    *each("Resize", "16x64x56x56 - ~1,1,2,2", mode="cubic"),
    *each("Upsample", "16x64x56x56 ~1,1,2,2"),
    *each("GridSample", "16x64x56x56 16x56x56x2", "1x3x32x32 1x8x8x2"),
    *each("AffineGrid", "16x2x3 =16,3,224,224"),
    # look-ups and updates
    *each(
        "Gather", "w30522x768 i64x128", "w30522x768 i1x1", "w10x2 i1000000", "w1000000x16 i4096x26", "64x197x768 i64"
    ),
    *each("Gather", "64x197x768 =0", "64x12x197x64 =3", axis=1),
    *each("Gather", "64x197x768 i4", "1024x1024 i1024", axis=1),
    *each(
        "GatherElements",
        "12x384x512 i12x384x384",
        "1x8 i1x2",
        "1000000x4 i1000000x1",
        "4x250000 i4x1000",
        "1x5000000 i1x5000000",
        axis=-1,
    ),
    *each("GatherElements", "64x900x4 i64x300x4", axis=1),
    *each("GatherND", "64x197x768 i64x8x1", batch_dims=1),
    *each("GatherND", "64x197x768 i1000x2", "1000x1000 i1000000x2", "8x8 i1x2"),
    *each(
        "ScatterElements Scatter",
        "12x384x512 i12x384x384 12x384x384",
        "1x8 i1x2 1x2",
        "1000000x4 i1000000x1 1000000x1",
        "4x250000 i4x1000 4x1000",
        axis=-1,
    ),
    *each("ScatterND", "64x197x768 i64x2 64x768", "1000x1000 i100000x2 100000", "8x8 i1x2 1"),
    *each("ScatterND", "1000x1000 i100000x2 100000", reduction="add"),
    *each("TensorScatter", "64x12x1024x64 64x12x1x64", "1x8x16x4 1x8x1x4"),
    # windows
    *each(
        "Conv",
        "1x3x224x224 w64x3x7x7 w64",
        "16x3x224x224 w96x3x4x4",
        "16x64x56x56 w64x64x3x3",
        "1x2048x7x7 w512x2048x1x1",
        "1x16x7x7 w16x16x3x3",
        "16x256x56x56 w64x256x1x1",
        "1x1x2000x2000 w1x1x3x3",
        "8x80x3000 w384x80x3",
        "1x16x16x56x56 w16x16x3x3x3",
    ),
    *each(
        "Conv", "16x96x112x112 w96x1x3x3", "1x96x7x7 w96x1x7x7", "64x96x56x56 w96x1x7x7", group=96, kernel_shape=None
    ),
    *each("Conv", "16x128x56x56 w128x4x3x3", "16x1024x14x14 w1024x32x3x3", group=32),
    *each("ConvInteger", "u16x64x56x56 u64x64x3x3"),
    *each("QLinearConv", "u16x64x56x56 ~0.1 u1 u64x64x3x3 ~0.1 u1 ~0.1 u1"),
    *each("ConvTranspose", "16x64x28x28 w64x32x2x2", "1x512x4x4 w512x256x4x4", strides=[2, 2]),
    *each("DeformConv", "1x64x56x56 w64x64x3x3 1x18x54x54"),
    *each("MaxPool AveragePool LpPool", *_IMAGES[1:2], "1x8x7x7", "256x3x224x224", kernel_shape=[3, 3], strides=[2, 2]),
    *each("MaxPool AveragePool LpPool", "16x2048x7x7", kernel_shape=[7, 7]),
    *each("MaxPool AveragePool LpPool", "1x64x112x112", "64x64x112x112", kernel_shape=[112, 112]),
    *each("MaxPool AveragePool LpPool", "1x64x112x112", kernel_shape=[13, 13], strides=[1, 1], pads=[6, 6, 6, 6]),
    *each("MaxRoiPool", "1x256x56x56 1000x5", pooled_shape=[7, 7]),
    *each("RoiAlign", "1x256x56x56 1000x4 i1000", "1x8x8x8 1x4 i1", output_height=7, output_width=7, sampling_ratio=2),
    # products
    *each(
        "MatMul",
        "1x8 w8x8",
        "64x197x768 w768x3072",
        "1x4096 w4096x4096",
        "1000000x4 w4x4",
        "64x12x197x64 64x12x64x197",
        "100000x4x4 100000x4x4",
        "4096x64x1 4096x1x64",
        "1000x1000000 w1000000x1",
        "1x1000000 w1000000x8",
        "2048x2048 2048x2048",
    ),
    *each("MatMulInteger", "u64x197x768 u768x3072"),
    *each("QLinearMatMul", "u64x197x768 ~0.1 u1 u768x3072 ~0.1 u1 ~0.1 u1"),
    *each("Gemm", "1x8 w8x8 w8", "256x2048 w2048x1000 w1000", "1000000x4 w4x4 w4", "1x25088 w25088x4096 w4096"),
    *each("Einsum", "16x12x384x64 16x12x384x64", equation="bhid,bhjd->bhij"),
    *each("Einsum", "64x128x768 w768x12x64", equation="bsd,dhe->bshe"),
    *each("Einsum", "64x128x768 64x128x768", equation="bsd,bsd->bs"),
    *each("Einsum", "64x128x768", equation="bsd->bds"),
    *each("Einsum", "1024x1024", equation="ii->i"),
    *each("Einsum", "64x128x768", equation="bsd->b"),
    *each(
        "Attention",
        "1x2x8x8 1x2x8x8 1x2x8x8",
        "16x12x384x64 16x12x384x64 16x12x384x64",
        "64x12x1x64 64x12x1024x64 64x12x1024x64",
    ),
    *each("LSTM", "10x1x64 w1x128x64 w1x128x32", hidden_size=32),
    *each("LSTM", "128x32x512 w1x2048x512 w1x2048x512", hidden_size=512),
    *each("GRU", "10x1x64 w1x96x64 w1x96x32", hidden_size=32),
    *each("GRU", "128x32x512 w1x1536x512 w1x1536x512", hidden_size=512),
    *each("RNN", "10x1x64 w1x32x64 w1x32x32", hidden_size=32),
    *each("RNN", "128x32x512 w1x512x512 w1x512x512", hidden_size=512),
    *each("RotaryEmbedding", "16x12x384x64 w1024x32 w1024x32 i16x384"),
    *each("LinearAttention", "4x128x768 4x128x768 4x128x768", q_num_heads=12, kv_num_heads=12, update_rule="linear"),
    *each("CausalConvWithState", "4x768x128 w768x1x4"),
    *each("DFT", "16x1000x1 - #1", "1x8x1 - #1"),
    *each("STFT", "4x16000x1 #160 w400 #400"),
    *each("Det", "1000x4x4", "1x64x64"),
    # losses
    *each(
        "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss",
        "64x1000 i64",
        "1000000x4 i1000000",
        "4096x30522 i4096",
        reduction="mean",
    ),
)
