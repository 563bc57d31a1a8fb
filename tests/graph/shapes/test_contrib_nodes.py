"""Shapes of single contrib operators, against ONNX Runtime; several operators together: `test_contrib.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from autoauto.graph.shapes.rules import SHAPE_RULES
from autoauto.graph.shapes.trace import trace
from autoauto.graph.shapes.values import Value
from autoauto.records.errors import UnreadableModel
from studies.operator_cases import Case
from tests.drawn import n_examples

MS, NCHWC = "com.microsoft", "com.microsoft.nchwc"
G = np.random.default_rng(5)


def each(domain: str, op: str, operands: str, n_outputs: int = 1, **attributes: Any) -> Iterator[Case]:
    yield Case(op, operands, attributes, domain, n_outputs)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return G.standard_normal(shape).astype(np.float32)


CASES: tuple[Case, ...] = (
    *each(MS, "FusedConv", "2x4x9x9 6x2x3x3 6", group=2, activation="Relu", pads=[1, 1, 1, 1], strides=[2, 2]),
    *each(MS, "FusedMatMul", "2x3x5x4 2x3x4x6"),
    *each(MS, "FusedMatMul", "2x3x4x5 2x3x6x4", transA=1, transB=1, alpha=0.5),
    *each(MS, "FusedMatMul", "5x2x3x4 2x3x4x6", transBatchA=1),
    *each(MS, "FusedMatMul", "4x2x3x5 2x3x6x4", transA=1, transBatchA=1, transB=1),
    *each(MS, "FusedMatMul", "2x3x5x4 4x2x3x6", transBatchB=1),
    *each(MS, "FusedGemm", "4x3 5x4 5", transA=1, transB=1, activation="LeakyRelu", activation_alpha=0.1),
    *each(MS, "BiasGelu", "2x3x8 8"),
    *each(MS, "FastGelu", "2x3x8 8"),
    *each(MS, "FastGelu", "2x3x8"),
    *each(MS, "Gelu", "2x3x8"),
    *each(MS, "QuickGelu", "2x3x8", alpha=1.7),
    *each(MS, "SkipLayerNormalization", "2x3x8 2x3x8 8 8 8"),
    *each("", "SimplifiedLayerNormalization", "2x3x8 8", axis=-1),
    *each(MS, "Attention", "2x3x8 8x24 24", num_heads=2),
    *each(MS, "Attention", "2x3x8 8x20 20", num_heads=2, qkv_hidden_sizes=[6, 6, 8]),
    *each(MS, "Attention", "2x3x8 8x24 24 - 2x2x2x5x4", n_outputs=2, num_heads=2),
    *each(MS, "MultiHeadAttention", "2x3x8 2x5x8 2x5x12", num_heads=2),
    *each(MS, "MultiHeadAttention", "2x3x8 2x5x8 2x5x8", n_outputs=3, num_heads=2),
    *each(MS, "MultiHeadAttention", "2x3x8 2x3x8 2x3x8 - - - 2x2x6x4 2x2x6x4", n_outputs=3, num_heads=2),
    *each(MS, "MultiHeadAttention", "2x3x8 2x2x5x4 2x2x5x4", num_heads=2),
    *each(MS, "EmbedLayerNormalization", "j2x3 j2x3 9x8 5x8 2x8 8 8", n_outputs=2),
    *each(MS, "EmbedLayerNormalization", "j2x3 - 9x8 5x8 - 8 8", n_outputs=3),
    *each(
        MS,
        "QEmbedLayerNormalization",
        "j2x3 j2x3 u9x8 u5x8 u2x8 u8 u8 - %0.1 %0.1 %0.1 %0.1 %0.1 u u u u u",
        n_outputs=2,
    ),
    *each(MS, "QLinearAdd", "u2x3x4 %0.1 u u4 %0.1 u %0.1 u"),
    *each(MS, "QLinearMul", "u2x1x4 %0.1 u u3x4 %0.1 u %0.1 u"),
    *each(MS, "QLinearSigmoid", "u2x4 %0.1 u %0.1 u"),
    *each(MS, "QLinearLeakyRelu", "u2x4 %0.1 u %0.1 u"),
    *each(MS, "QLinearConcat", "%0.1 u u2x3 %0.1 u u2x5 %0.1 u", axis=1),
    *each(MS, "QLinearAveragePool", "u2x3x9x9 %0.1 u %0.1 u", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    *each(
        MS,
        "QLinearAveragePool",
        "u2x9x9x3 %0.1 u %0.1 u",
        kernel_shape=[3, 3],
        strides=[2, 2],
        channels_last=1,
        ceil_mode=1,
    ),
    *each(MS, "QLinearGlobalAveragePool", "u2x3x9x9 %0.1 u %0.1 u", channels_last=0),
    *each(MS, "QLinearGlobalAveragePool", "u2x9x9x3 %0.1 u %0.1 u", channels_last=1),
    *each(MS, "QLinearWhere", "b2x1 u2x4 %0.1 u u4 %0.1 u %0.1 u"),
    *each(MS, "QGemm", "u4x3 %0.1 u u3x5 %0.1 u j5 %0.1 u"),
    *each(MS, "QGemm", "u4x3 %0.1 u u5x3 %0.1 u", transB=1),
    *each(MS, "DynamicQuantizeMatMul", "2x3x4 u4x6 %0.1 u"),
    *each(MS, "MatMulIntegerToFloat", "u2x3x4 u4x6 %0.1 %0.1 u u"),
    *each(MS, "MatMulNBits", "2x3x32 u6x1x16 6", K=32, N=6, bits=4, block_size=32),
    *each(MS, "MatMulBnb4", "2x3x64 u192 6", K=64, N=6, block_size=64, quant_type=1),
    *each(MS, "QuantizeLinear", "2x3 %0.1"),
    *each(MS, "DequantizeLinear", "u2x3 %0.1 u"),
    *each(MS, "NhwcMaxPool", "u2x9x9x3", kernel_shape=[3, 3], strides=[2, 2]),
    *each(MS, "QLinearConv", "u2x9x9x3 %0.1 u u6x3x3x3 %0.1 u %0.1 u", channels_last=1, pads=[1, 1, 1, 1]),
    *each(MS, "QLinearConv", "u2x3x9x9 %0.1 u u6x3x3x3 %0.1 u %0.1 u j6", channels_last=0, strides=[2, 2]),
    *each(MS, "Pad", "2x3 =0,1,0,2"),
    *each(MS, "Trilu", "2x3x3"),
    *each(MS, "Inverse", "2x3x3"),
    *each(MS, "GatherND", "2x3x4 i1x2"),
    *each(MS, "CDist", "4x3 5x3", metric="euclidean"),
    *each(MS, "ConvTransposeWithDynamicPads", "2x4x5x5 4x6x3x3 =1,1,1,1", strides=[2, 2]),
    *each(MS, "GridSample", "2x3x5x5 2x4x6x2"),
    *each(MS, "GatherBlockQuantized", "u9x16 =1,2,3 9x1", gather_axis=0, quantize_axis=1, block_size=32, bits=4),
    *each(MS, "SampleOp", "2x3"),
    *each(MS, "MaxpoolWithMask", "2x3x9x9 j2x1x9x9", kernel_shape=[3, 3]),
    *each(MS, "TransposeMatMul", "2x3x5x4 2x3x4x6"),
    *each(MS, "UnfoldTensor", "2x9x3", dim=1, size=3, step=2),
    *each(MS, "QuickGelu", "3"),
    *each(MS, "ScaledSiLU", "3"),
    *each(NCHWC, "ReorderInput", "2x32x5x5"),
    *each(NCHWC, "ReorderInput", "2x5x5x32", channels_last=1),
    *each(NCHWC, "ReorderOutput", "2x32x5x5", channels=28),  # right for blocks of 8 and of 16
    *each(NCHWC, "Conv", "2x32x5x5 16x32x3x3", strides=[2, 2]),
    *each(NCHWC, "Conv", "2x3x5x5 16x3x3x3", activation="Relu"),
    *each(NCHWC, "MaxPool", "2x16x5x5", kernel_shape=[2, 2]),
    *each(NCHWC, "GlobalAveragePool", "2x16x5x5"),
    *each(NCHWC, "Upsample", "2x16x5x5", scales=[1, 1, 2, 2]),
    *each(MS, "MoE", "3x8 3x2 2x8x16 - 2x16x8", k=1),
)

GROUPED = f"{MS}.GroupQueryAttention q k v p p n t > y a b num_heads=4 kv_num_heads=2"
QUERIES = {"q": [2, 3, 32], "k": [2, 3, 16], "v": [2, 3, 16]}
TOKEN = {"q": [2, 1, 32], "k": [2, 1, 16], "v": [2, 1, 16]}
S, Z, Z8 = np.array(0.1, np.float32), np.array(3, np.uint8), np.array(0, np.int8)


def of_past(length: int, total: int) -> dict[str, Any]:
    lengths = np.full(2, total - 1, np.int32)
    return {"p": floats(2, 2, length, 8), "n": lengths, "t": np.array(total, np.int32)}


PROGRAMS: dict[str, tuple[Any, ...]] = {
    "no past": (GROUPED, QUERIES, "", of_past(0, 3)),
    "a past": (GROUPED, TOKEN, "", of_past(5, 6)),
    "a buffer": (GROUPED, TOKEN, "", of_past(9, 6)),
    "packed": (
        f"{MS}.GroupQueryAttention q - - p p n t > y a b num_heads=4 kv_num_heads=2",
        {"q": [2, 3, 64]},
        "",
        of_past(0, 3),
    ),
    "one token": (
        f"{MS}.DecoderMaskedMultiHeadAttention x x x - - p p n > y a b num_heads=2 past_present_share_buffer=1",
        {"x": [2, 1, 8]},
        "",
        {"p": floats(2, 2, 16, 4), "n": np.array([5], np.int32)},
    ),
    "sums": (
        f"{MS}.SkipLayerNormalization x x g g g > y - - s; {MS}.SkipSimplifiedLayerNormalization s y g > z - - a",
        {"x": [2, 3, 8]},
        "",
        {"g": floats(8)},
    ),
    "an old norm": ("LayerNormalization x g g > y m", {"x": [2, 3, 8]}, "", {"g": floats(8)}, 13),
    "rotary": (
        f"{MS}.RotaryEmbedding x p c c > y num_heads=2; {MS}.RotaryEmbedding h p c c > z",
        {"x": [2, 3, 8], "h": [2, 2, 3, 4]},
        "",
        {"p": [0], "c": floats(16, 2)},
    ),
    "quantised attention": (
        f"{MS}.QAttention x w b s s - z n > y num_heads=2; {MS}.QAttention x w b s s - z n p > a c num_heads=2",
        {"uint8:x": [2, 3, 8], "int8:w": [8, 24], "b": [24]},
        "",
        {"s": S, "z": Z, "n": Z8, "p": floats(2, 2, 2, 5, 4)},
    ),
    "quantised softmax": (
        f"{MS}.QLinearSoftmax x s z t u > y opset=13 axis=-1",
        {"uint8:x": [2, 4]},
        "",
        {"s": S, "z": Z, "t": np.array(1 / 256, np.float32), "u": np.array(0, np.uint8)},
    ),
    "quantised recurrence": (
        f"{MS}.DynamicQuantizeLSTM x w r b - - - - s n s n > y h c hidden_size=4",
        {"x": [5, 2, 3]},
        "",
        {
            "w": G.integers(-4, 4, (1, 3, 16)).astype(np.int8),
            "r": G.integers(-4, 4, (1, 4, 16)).astype(np.int8),
            "b": floats(1, 32),
            "s": np.full(1, 0.1, np.float32),
            "n": np.zeros(1, np.int8),
        },
    ),
    "signed bytes": (f"{MS}.QuantizeLinear x s n > y", {"x": [2, 3]}, "", {"s": S, "n": Z8}),
    "new axes": (
        f"{MS}.ExpandDims x a > y; {MS}.ExpandDims x b > z",
        {"x": [2, 3]},
        "",
        {"a": np.array(-1, np.int32), "b": np.array(1, np.int32)},
    ),
    "range": (
        f"{MS}.Range a b c > r; Add x r > y",
        {"x": [1, 3]},
        "",
        {"a": np.array(1.0, np.float32), "b": np.array(7.0, np.float32), "c": np.array(2.0, np.float32)},
    ),
    "regions": (
        f"{MS}.CropAndResize x r b s > y",
        {"x": [2, 3, 9, 9], "r": [4, 4]},
        "",
        {"b": np.array([0, 1, 0, 1], np.int32), "s": np.array([4, 5], np.int32)},
    ),
}
"""What `Case` does not say: several nodes, omitted outputs, int32 constants."""


def check(model: onnx.ModelProto, execute: Any, sample: Any) -> None:
    for entry in model.graph.output:
        entry.ClearField("type")
    values = trace(model)
    for entry, result in zip(model.graph.output, execute(model, sample(model, np.random.default_rng(0))), strict=True):
        dtype = helper.np_dtype_to_tensor_dtype(result.dtype)
        assert (values[entry.name].dtype, values[entry.name].shape) == (dtype, result.shape), entry.name


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.op} {case.operands}")
def test_shapes_are_those_of_onnx_runtime(case: Case, execute: Any, sample: Any) -> None:
    model = case.model()
    model.ir_version = 8
    check(model, execute, sample)


@pytest.mark.parametrize("name", PROGRAMS)
def test_shapes_of_programs_are_those_of_onnx_runtime(
    name: str, make: Callable[..., onnx.ModelProto], execute: Any, sample: Any
) -> None:
    program, inputs, _, constants, *version = PROGRAMS[name]
    written = [word for line in program.split("; ") for word in line.split(" > ")[1].split() if "=" not in word]
    ends = " ".join(word for word in written if word != "-")
    check(make(program, inputs, ends, constants, *version), execute, sample)


WITHOUT_KERNEL: dict[str, tuple[Case, tuple[int, ...]]] = {
    f"{case.op} {case.operands}": (case, shape)
    for case, shape in (
        (Case("BiasSplitGelu", "2x4x16 16", {}, MS), (2, 4, 8)),
        (Case("NhwcFusedConv", "2x9x9x4 6x4x3x3", {"activation": "Relu"}, MS), (2, 7, 7, 6)),
        (Case("BiasSoftmax", "2x3x4 2x1x4", {"axis": 2, "is_inner_broadcast": 1}, MS), (2, 3, 4)),
        (Case("RelativePositionBias", "32x4 =5 =6", {"max_distance": 10}, MS), (1, 4, 5, 6)),
        (Case("BiasDropout", "2x3x4 4", {}, MS), (2, 3, 4)),
        (Case("TorchEmbedding", "9x3 i1x2", {}, MS), (1, 2, 3)),
        (Case("GatedRelativePositionBias", "2x3x8 8 1x2x3x3 4x8 8 1x2x1x1", {"num_heads": 2}, MS), (2, 2, 3, 3)),
        (Case("GatedRelativePositionBias", "5x8 8 1x2x3x3 4x8 8 1x2x1x1 j4x3", {"num_heads": 2}, MS), (4, 2, 3, 3)),
        (Case("Rfft", "2x8", {"signal_ndim": 1}, MS), (2, 5, 2)),
        (Case("Irfft", "2x5x2", {"signal_ndim": 1}, MS), (2, 8)),
        (Case("QLinearReduceMean", "u2x3x4 %0.1 u %0.1 u", {"axes": [1], "keepdims": 0}, MS), (2, 4)),
        (Case("ReduceSumInteger", "u2x3x4", {"axes": [1], "keepdims": 1}, MS), (2, 1, 4)),
        (Case("SwiGLU", "2x8", {}, MS), (2, 4)),
        (Case("GroupNorm", "2x5x5x4 4 4", {"groups": 2, "activation": 1}, MS), (2, 5, 5, 4)),
        (Case("GemmFastGelu", "2x3x4 4x6", {}, MS), (2, 3, 6)),
        (Case("PackedAttention", "5x8 8x24 24 j2x3 j3", {"num_heads": 2}, MS), (5, 8)),
        (Case("PackedMultiHeadAttention", "5x2x3x4 - - - j2x3 j3", {"num_heads": 2}, MS), (5, 8)),
        (Case("PackedMultiHeadAttention", "5x8 5x8 5x12 - j2x3 j3", {"num_heads": 2}, MS), (5, 12)),
        (Case("PackedMultiHeadAttention", "5x8 5x8 - - j2x3 j3", {"num_heads": 2}, MS), (5, 8)),
        (Case("DecoderAttention", "3x2x8 5x2x8 8x8 8x16 24", {"num_heads": 2}, MS), (3, 2, 8)),
        (Case("RestorePadding", "5x8 j2x3", {}, MS), (2, 3, 8)),
        (Case("LinearAttention", "2x3x8 2x3x8 2x3x4", {"q_num_heads": 4, "kv_num_heads": 2}, MS), (2, 3, 8)),
        (Case("GemmaRotaryEmbedding", "2x3x8 2x4x3x8 2x4x3x8 2x1x3x8 2x1x3x8", {}, MS, 2), (2, 4, 3, 8)),
        (Case("MulInteger", "u2x1 u u1x3 u", {}, MS), (2, 1)),
    )
}


@pytest.mark.parametrize("name", WITHOUT_KERNEL)
def test_operators_that_only_other_devices_have(name: str) -> None:
    case, shape = WITHOUT_KERNEL[name]
    assert trace(case.model())["output_0"].shape == shape


def test_caches_that_only_other_devices_have() -> None:
    """Keys and values of 2 heads of 4 elements: of 5 tokens, or of 5 behind 6; a state is a matrix of key and value."""
    decoder = "3x2x8 5x2x8 8x8 8x16 24"
    for past, n_keys in (("", 5), (" - 2x2x6x4 2x2x6x4", 11)):
        values = trace(Case("DecoderAttention", f"{decoder}{past}", {"num_heads": 2}, MS, 3).model())
        assert [values[f"output_{i}"].shape for i in range(3)] == [(3, 2, 8), *[(2, 2, n_keys, 4)] * 2]
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    for window, state in ((0, (2, 2, 4, 2)), (5, (5, 2, 2, 4, 2))):
        case = Case("LinearAttention", "2x3x8 2x3x8 2x3x4", {**heads, "state_window": window}, MS, 2)
        assert trace(case.model())["output_1"].shape == state


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case("FusedMatMul", "2x3 4x5", {}, MS), "3 is not 4 in"),
        (Case("MatMulNBits", "2x3 u6x1x16 6", {"K": 32, "N": 6}, MS), "3 is not 32 in"),
        (Case("Attention", "2x3x8 8x24 24", {}, MS), "attribute 'num_heads' is missing"),
        (Case("Attention", "2x8 8x24 24", {"num_heads": 2}, MS), "must have 3 axes, its shape is"),
        (Case("GatherBlockQuantized", "u9x16 =1 9x1", {"gather_axis": 3}, MS), "must be an axis of"),
        (Case("ExpandDims", "2x3 =9", {}, MS), "axis 9 does not fit"),
        (Case("FusedConv", "2x3x2x2 4x3x5x5", {}, MS), r"has windows of \[5, 5\] and reads \[2, 2\]"),
        (Case("UnfoldTensor", "2x2", {"dim": 1, "size": 3}, MS), r"would make \[2, 0, 3\] of \[2, 2\]"),
        (Case("Pad", "2x3 =-3,0,0,0", {}, MS), "the output would be"),
    ],
)
def test_operands_that_do_not_fit_are_refused_in_one_line(case: Case, message: str) -> None:
    with pytest.raises(UnreadableModel, match=message) as caught:
        trace(case.model())
    assert "\n" not in str(caught.value)


LENGTHS = st.lists(st.sampled_from([0, 1, 2, 3, 4, 8]), max_size=5).map(tuple)
COUNTS = "num_heads kv_num_heads K N bits axis dim size step channels hidden_size group order_B to gather_axis targets"
FLAGS = "channels_last transA transB transBatchA onesided unidirectional past_present_share_buffer do_rotary"
LISTS = "kernel_shape strides pads axes scales qkv_hidden_sizes classlabels_int64s"


@st.composite
def operands(draw: st.DrawFn) -> Value | None:
    shape = draw(LENGTHS)
    data = np.full(shape, draw(st.integers(-2, 5)), np.int64) if draw(st.booleans()) else None
    dtype = draw(st.sampled_from([TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8]))
    return draw(st.sampled_from([None, *[Value(dtype, shape, data, False)] * 7]))


@st.composite
def attributes(draw: st.DrawFn) -> dict[str, Any]:
    numbers = {name: draw(st.integers(-2, 4)) for name in COUNTS.split() if draw(st.booleans())}
    flags = {name: draw(st.integers(0, 1)) for name in FLAGS.split() if draw(st.booleans())}
    lists = {name: draw(st.lists(st.integers(0, 3), min_size=1, max_size=4)) for name in LISTS.split()}
    return numbers | flags | {name: numbers for name, numbers in lists.items() if draw(st.booleans())}


@settings(deadline=None, derandomize=True, max_examples=n_examples(40))
@given(read=st.lists(operands(), max_size=9), given_attributes=attributes())
def test_any_rule_gives_shapes_or_refuses(read: list[Value | None], given_attributes: dict[str, Any]) -> None:
    for (domain, op), rule in SHAPE_RULES.items():
        node = helper.make_node(op, ["x"] * len(read), ["y"], domain=domain, **given_attributes)
        try:
            outputs = rule(node, read)
        except (ValueError, IndexError):
            continue
        assert all(length >= 0 for _, shape in outputs for length in shape or ())


@pytest.mark.parametrize(("weight", "expected"), [((32, 24, 3, 3), 24), ((32, 32, 3, 3), 32), ((32, 1, 3, 3), 32)])
def test_blocks_are_as_long_as_the_file_has_them(
    weight: Any, expected: int, make: Callable[..., onnx.ModelProto]
) -> None:
    """Of 8 channels on a processor with AVX2, of 16 on one with AVX-512."""
    model = make(f"{NCHWC}.ReorderInput x > b; {NCHWC}.Conv b w > y", {"x": [1, 24, 9, 9]}, "y", {"w": floats(*weight)})
    if weight[1] == 1:
        model.graph.node[1].attribute.append(helper.make_attribute("group", 32))
    values = trace(model)
    assert (values["b"].shape, values["y"].shape) == ((1, expected, 9, 9), (1, 32, 7, 7))
