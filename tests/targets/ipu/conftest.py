"""Small models written layer by layer, and a device to compile them for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from autoauto.records.costs.options import CompileOptions
from autoauto.records.hardware import Device
from autoauto.records.layers import AttributeValue, Layer, LayerGraph, Tensor
from autoauto.records.units import Precision
from autoauto.targets.ipu.operator_cost import OperatorContext
from autoauto.targets.ipu.session import IpuSession

Shape = tuple[int, ...]
Graph = Callable[["Sequence[Node]"], LayerGraph]
Example = tuple[list[str | Shape], Shape, dict[str, AttributeValue]]

IMAGE, OTHER, LAST = "x:1x32x28x28", "x:1x1x28x28", "x:1x28x28x32"
TOKENS, KERNEL, ONE = "x:1x128x768", (64, 32, 3, 3), (1,)
EXAMPLES: dict[str, Example] = {
    "Attention": (["x:1x12x128x64", "x:1x12x128x64", "x:1x12x128x64"], (1, 12, 128, 64), {}),
    "Conv": ([IMAGE, (64, 32, 3, 3), (64,)], (1, 64, 28, 28), {}),
    "ConvInteger": ([IMAGE, (64, 32, 3, 3)], (1, 64, 28, 28), {}),
    "QLinearConv": ([IMAGE, (1,), (1,), (64, 32, 3, 3), (1,), (1,), (1,), (1,), (64,)], (1, 64, 28, 28), {}),
    "DeformConv": ([IMAGE, (64, 32, 3, 3), "x:1x18x28x28"], (1, 64, 28, 28), {}),
    "ConvTranspose": ([IMAGE, (32, 16, 2, 2)], (1, 16, 56, 56), {"strides": (2, 2)}),
    "Einsum": (["x:1x8x16", (16, 8)], (1, 8, 8), {"equation": "bij,jk->bik"}),
    "Gemm": (["x:1x64", (64, 32), (32,)], (1, 32), {}),
    "MatMul": (["x:1x8x64", (64, 32)], (1, 8, 32), {}),
    "MatMulInteger": (["x:1x8x64", (64, 32)], (1, 8, 32), {}),
    "QLinearMatMul": (["x:1x8x64", (1,), (1,), (64, 32), (1,), (1,), (1,), (1,)], (1, 8, 32), {}),
    "LSTM": (["x:10x1x64", (1, 128, 64), (1, 128, 32)], (10, 1, 1, 32), {}),
    "GRU": (["x:10x1x64", (1, 96, 64), (1, 96, 32)], (10, 1, 1, 32), {}),
    "RNN": (["x:10x1x64", (1, 32, 64), (1, 32, 32)], (10, 1, 1, 32), {}),
    "CausalConvWithState": (["x:1x64x128", (64, 1, 4)], (1, 64, 128), {}),
    "LinearAttention": ([TOKENS, TOKENS, TOKENS], (1, 128, 768), {"q_num_heads": 12}),
    "NonMaxSuppression": (["x:1x1000x4", "x:1x80x1000"], (100, 3), {}),
    "NegativeLogLikelihoodLoss": (["x:1x64x1000", "x:1x1000"], (1, 1000), {}),
    "SoftmaxCrossEntropyLoss": (["x:1x64x1000", "x:1x1000"], (1, 1000), {}),
    "DFT": (["x:1x4x512x1"], (1, 4, 512, 2), {}),
    "Irfft": (["x:1x4x257x2"], (1, 4, 512), {}),
    "Rfft": (["x:1x4x512"], (1, 4, 257, 2), {}),
    "STFT": (["x:1x8000x1", (), (400,)], (1, 100, 201, 2), {}),
    "SimplifiedLayerNormalization": ([TOKENS, (768,)], (1, 128, 768), {}),
    "FusedConv": ([IMAGE, KERNEL, (64,), "x:1x64x28x28"], (1, 64, 28, 28), {"activation": "Relu"}),
    "NhwcConv": ([LAST, KERNEL], (1, 28, 28, 64), {}),
    "NhwcFusedConv": ([LAST, KERNEL, (64,)], (1, 28, 28, 64), {"activation": "Clip"}),
    "NhwcMaxPool": ([LAST], (1, 14, 14, 32), {"kernel_shape": (2, 2)}),
    "com.microsoft.nchwc.Conv": ([IMAGE, KERNEL, (64,)], (1, 64, 28, 28), {"activation": "Sigmoid"}),
    "com.microsoft.QLinearConv": (
        [LAST, ONE, ONE, KERNEL, ONE, ONE, ONE, ONE, (64,)],
        (1, 28, 28, 64),
        {"channels_last": 1},
    ),
    "com.microsoft.CausalConvWithState": (["x:1x64x128", (64, 1, 4)], (1, 64, 128), {}),
    "com.microsoft.LinearAttention": ([TOKENS, TOKENS, TOKENS], (1, 128, 768), {"q_num_heads": 12}),
    "com.microsoft.GatherND": ([TOKENS, "x:1x8x1"], (1, 8, 64), {"batch_dims": 1}),
    "ConvTransposeWithDynamicPads": ([IMAGE, (32, 16, 2, 2), (4,)], (1, 16, 56, 56), {"strides": (2, 2)}),
    "FusedMatMul": ([TOKENS, (384, 768)], (1, 128, 384), {"transB": 1}),
    "FusedMatMulActivation": ([TOKENS, (768, 384)], (1, 128, 384), {"activation": "Tanh"}),
    "TransposeMatMul": (["x:1x768x128", "x:1x768x384"], (1, 128, 384), {"transA": 1}),
    "GemmFastGelu": ([TOKENS, (768, 384)], (1, 128, 384), {}),
    "FusedGemm": (["x:1x64", (64, 32), (32,)], (1, 32), {"activation": "Relu"}),
    "QGemm": (["x:1x64", ONE, ONE, (64, 32), ONE, ONE, (32,), ONE, ONE], (1, 32), {}),
    "MatMulNBits": ([TOKENS, (32, 2, 16), (768,)], (1, 128, 384), {"K": 768, "N": 384}),
    "MatMulBnb4": ([TOKENS, (1024,), (32,)], (1, 128, 384), {"K": 768, "N": 384}),
    "MatMulInteger16": ([TOKENS, (768, 384)], (1, 128, 384), {}),
    "MatMulIntegerToFloat": ([TOKENS, (768, 384), ONE, ONE], (1, 128, 384), {}),
    "DynamicQuantizeMatMul": ([TOKENS, (768, 384), ONE], (1, 128, 384), {}),
    "DynamicQuantizeLSTM": (["x:10x1x64", (1, 64, 128), (1, 32, 128)], (10, 1, 1, 32), {}),
    "GatherBlockQuantized": ([(1000, 384), "x:1x128", (1000, 1)], (1, 128, 768), {}),
    "SkipLayerNormalization": ([TOKENS, TOKENS, (768,), (768,), (768,)], (1, 128, 768), {}),
    "SkipSimplifiedLayerNormalization": ([TOKENS, TOKENS, (768,)], (1, 128, 768), {}),
    "com.microsoft.Attention": ([TOKENS, (768, 2304), (2304,)], (1, 128, 768), {"num_heads": 12}),
    "DecoderMaskedSelfAttention": (
        ["x:1x1x768", (768, 2304), (2304,), "", "x:2x1x12x256x64"],
        (1, 1, 768),
        {"num_heads": 12},
    ),
    "QAttention": ([TOKENS, (768, 2304), (2304,), ONE, ONE], (1, 128, 768), {"num_heads": 12}),
    "PackedAttention": (["x:128x768", (768, 2304), (2304,), "x:1x128"], (128, 768), {"num_heads": 12}),
    "MultiHeadAttention": ([TOKENS, TOKENS, TOKENS, (2304,)], (1, 128, 768), {"num_heads": 12}),
    "DecoderMaskedMultiHeadAttention": (
        [TOKENS, TOKENS, TOKENS, "", "", "x:1x12x256x64"],
        (1, 128, 768),
        {"num_heads": 12},
    ),
    "GroupQueryAttention": (
        [TOKENS, "x:1x128x256", "x:1x128x256", "x:1x4x256x64"],
        (1, 128, 768),
        {"num_heads": 12, "kv_num_heads": 4, "do_rotary": 1},
    ),
    "SparseAttention": (
        [TOKENS, "x:1x128x256", "x:1x128x256", "x:1x4x256x64"],
        (1, 128, 768),
        {"num_heads": 12, "kv_num_heads": 4},
    ),
    "EmbedLayerNormalization": (
        ["x:1x128", "x:1x128", (1000, 768), (128, 768), (2, 768), (768,), (768,)],
        (1, 128, 768),
        {},
    ),
    "QEmbedLayerNormalization": (
        ["x:1x128", "x:1x128", (1000, 768), (128, 768), (2, 768), (768,), (768,)],
        (1, 128, 768),
        {},
    ),
    "MoE": ([TOKENS, "x:128x8", (8, 1024, 768), "", (8, 768, 1024)], (1, 128, 768), {"k": 2}),
    "QMoE": ([TOKENS, "x:128x8", (8, 1024, 384), "", "", (8, 768, 512)], (1, 128, 768), {"k": 2}),
    "CDist": (["x:1x64", (500, 64)], (1, 500), {}),
    "GatedRelativePositionBias": (
        [TOKENS, (768,), (1, 12, 128, 128), (64, 8), (8,), (1, 12, 1, 1)],
        (1, 12, 128, 128),
        {"num_heads": 12},
    ),
    "Inverse": (["x:1x64x64"], (1, 64, 64), {}),
    "Det": (["x:1x64x64"], (1,), {}),
    "LinearClassifier": (["x:1x64"], (1, 10), {}),
    "LinearRegressor": (["x:1x64"], (1, 10), {}),
    "SVMClassifier": (["x:1x64"], (1, 10), {"support_vectors": (0.5,) * 640}),
    "SVMRegressor": (["x:1x64"], (1, 1), {"support_vectors": (0.5,) * 640}),
    "TreeEnsemble": (["x:1x64"], (1, 10), {"tree_roots": tuple(range(1000)), "nodes_featureids": (0,) * 15000}),
    "TreeEnsembleClassifier": (
        ["x:1x64"],
        (1, 10),
        {"nodes_treeids": tuple(range(1000)), "nodes_featureids": (0,) * 15000},
    ),
    "TreeEnsembleRegressor": (
        ["x:1x64"],
        (1, 1),
        {"nodes_treeids": tuple(range(1000)), "nodes_featureids": (0,) * 15000},
    ),
}


class Node:
    """One layer: operands are names of earlier nodes, shapes of weights, or "x" + a shape for inputs of the model."""

    def __init__(
        self, op: str, operands: Sequence[str | Shape], shape: Shape, name: str = "", **attributes: AttributeValue
    ) -> None:
        self.op, self.operands, self.shape, self.name = op, operands, shape, name or op
        self.attributes = tuple(sorted(attributes.items()))


def make_graph(nodes: Sequence[Node]) -> LayerGraph:
    """A model of `nodes` in order; the last one's output leaves it."""
    tensors: list[Tensor] = []
    layers: list[Layer] = []
    tensor_of: dict[str, int] = {}

    def add(name: str, shape: Shape, batch_axis: int | None, producer: int) -> int:
        tensors.append(Tensor(name, shape, batch_axis, "float", producer, producer))
        return len(tensors) - 1

    for i, node in enumerate(nodes):
        operands = []
        for operand in node.operands:
            if isinstance(operand, tuple):
                operands.append(add("w", operand, None, -1))
            elif operand == "":
                operands.append(-1)
            else:
                if operand.startswith("x:") and operand not in tensor_of:
                    shape = tuple(int(n) for n in operand[2:].split("x"))
                    tensor_of[operand] = add(operand, shape, 0, -1)
                operands.append(tensor_of[operand])
                tensors[operands[-1]] = tensors[operands[-1]]._replace(last_use=i)
        out = add(node.name, node.shape, 0, i)
        inputs = tuple(t for t in dict.fromkeys(operands) if t >= 0 and tensors[t].batch_axis is not None)
        weights = tuple(t for t in dict.fromkeys(operands) if t >= 0 and tensors[t].batch_axis is None)
        tensor_of[node.name] = out
        kind = repr((node.op, node.attributes, [tensors[t].shape for t in operands]))
        layers.append(Layer(node.name, node.op, node.attributes, inputs, (out,), weights, tuple(operands), kind, None))
    tensors[layers[-1].outputs[0]] = tensors[layers[-1].outputs[0]]._replace(last_use=len(layers))
    return LayerGraph("small", tuple(layers), tuple(tensors), None, "small")


@pytest.fixture(scope="session")
def node() -> type[Node]:
    """The class that describes one layer."""
    return Node


@pytest.fixture(scope="session")
def graph_of() -> Graph:
    """Make a model of nodes."""
    return make_graph


@pytest.fixture(scope="session")
def example() -> Callable[[str], Example]:
    """Operands, output shape and attributes of a layer of any operator."""
    return lambda op: EXAMPLES.get(op, ([IMAGE, OTHER, IMAGE], (1, 32, 28, 28), {}))


@pytest.fixture(scope="session")
def device() -> Device:
    """A C600."""
    return Device("c600", 1.5e9, 900 * 1024**2, 1472, 638976)


@pytest.fixture(scope="session")
def options() -> Callable[..., CompileOptions]:
    """Make options; the default is inference in fp16 at batch size 1 and proportion 0.6."""

    def make(
        batch_size: int = 1, proportion: float = 0.6, precision: Precision = Precision.FP16, training: bool = False
    ) -> CompileOptions:
        return CompileOptions(batch_size, precision, training, IpuSession(proportion))

    return make


@pytest.fixture(scope="session")
def context_of(graph_of: Graph, device: Device) -> Callable[..., OperatorContext]:
    """Put one node alone on the device."""

    def make(
        alone: Node, batch_size: int = 1, proportion: float = 0.6, precision: Precision = Precision.FP16
    ) -> OperatorContext:
        graph = graph_of([alone])
        options = CompileOptions(batch_size, precision, session=IpuSession(proportion))
        return OperatorContext(graph, graph.layers[0], device, options)

    return make
