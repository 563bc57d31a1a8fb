"""Shapes in files that ONNX Runtime's optimisers and quantisers write, of every tensor, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from autoauto.graph.batch.rebatch import resolve_batch
from autoauto.graph.load import load_graph
from autoauto.graph.shapes.values import operator_name
from autoauto.records.costs.options import CompileOptions
from autoauto.records.layers import LayerRange
from autoauto.records.units import Precision
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.operators.registry import default_notes
from autoauto.targets.ipu.target import IpuTarget

runtime = pytest.importorskip("onnxruntime", reason="its optimiser makes the files")

G = np.random.default_rng(3)
TOKENS = {"x": ["n", 6, 16]}


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return (0.2 * G.standard_normal(shape)).astype(np.float32)


def scalar(value: float) -> np.ndarray[Any, Any]:
    return np.array(value, np.float32)


def projected(source: str, *names: str) -> str:
    """Products with weights and biases, cut into heads."""
    parts = (
        f"MatMul {source} w{n} > {n}1; Add {n}1 b{n} > {n}2; Reshape {n}2 split > {n}3; "
        f"Transpose {n}3 > {n} perm=0,2,{'3,1' if n == 'k' else '1,3'}"
        for n in names
    )
    return "; ".join(parts)


def normalised(source: str, name: str, gain: str) -> str:
    """RMS norm as PyTorch exports it."""
    return (
        f"Pow {source} two > {name}1; ReduceMean {name}1 > {name}2 axes=-1, keepdims=1; Add {name}2 eps > {name}3; "
        f"Sqrt {name}3 > {name}4; Div {source} {name}4 > {name}5; Mul {name}5 {gain} > {name}"
    )


def turned(name: str) -> str:
    """A rotary embedding of half of the channels against the other half."""
    return (
        f"Slice {name} z0 z4 ax > {name}a; Slice {name} z4 z8 ax > {name}b; Neg {name}b > {name}n; "
        f"Concat {name}n {name}a > {name}h axis=-1; Mul {name} cos > {name}c; Mul {name}h sin > {name}s; "
        f"Add {name}c {name}s > {name}r"
    )


ENCODER = (
    f"LayerNormalization x g b > e; {projected('e', 'q', 'k', 'v')}; MatMul q k > s0; Div s0 root > s1; "
    "Softmax s1 > p axis=-1; MatMul p v > c0; Transpose c0 > c1 perm=0,2,1,3; Reshape c1 join > c; MatMul c wo > o1; "
    "Add o1 bo > o2; Add o2 e > r1; LayerNormalization r1 g b > h; MatMul h w1 > i1; Add i1 b1 > i2; Div i2 sq > e0; "
    "Erf e0 > e1; Add e1 one > e2; Mul i2 e2 > e3; Mul e3 half > act; MatMul act w2 > f1; Add f1 b2 > f2; "
    "Add f2 h > r2; LayerNormalization r2 g b > y"
)
HEADS = {f"w{name}": floats(16, 16) for name in "qkvo"} | {f"b{name}": floats(16) for name in "qkvo"}
GELU = {"sq": scalar(2**0.5), "one": scalar(1), "half": scalar(0.5)}
MLP = {"w1": floats(16, 32), "b1": floats(32), "w2": floats(32, 16), "b2": floats(16)}
DECODER = "; ".join(
    (
        normalised("x", "h", "g"),
        projected("h", "q", "v", "u"),
        turned("q"),
        turned("u"),
        "Transpose ur > ux perm=0,1,3,2; MatMul qr ux > s0; Mul s0 root > s1; Add s1 mask > s2; Softmax s2 > p axis=-1",
        "MatMul p v > c0; Transpose c0 > c1 perm=0,2,1,3; Reshape c1 join > c; MatMul c wo > o; Add x o > r1",
        normalised("r1", "m", "g"),
        "MatMul m wg > t; Sigmoid t > sg; Mul t sg > si; MatMul m wu2 > up; Mul si up > ff; MatMul ff wd > dn",
        "Add r1 dn > y",
    )
)
DECODER_WEIGHTS = HEADS | {
    "wu": floats(16, 16), "bu": floats(16), "g": floats(16), "two": scalar(2), "eps": scalar(1e-5),
    "root": scalar(0.35), "mask": floats(1, 1, 6, 6), "cos": floats(1, 1, 6, 8), "sin": floats(1, 1, 6, 8),
    "wg": floats(16, 32), "wu2": floats(16, 32), "wd": floats(32, 16), "split": [0, 0, 2, 8], "join": [0, 0, 16],
    "z0": [0], "z4": [4], "z8": [8], "ax": [3],
}  # fmt: skip
MODELS: dict[str, tuple[Any, ...]] = {
    "encoder": (
        ENCODER,
        TOKENS,
        "y",
        HEADS
        | GELU
        | MLP
        | {"split": [0, 0, 4, 4], "join": [0, 0, 16], "root": scalar(2), "g": floats(16), "b": floats(16)},
    ),
    "decoder": (DECODER, TOKENS, "y", DECODER_WEIGHTS),
    "old norm": (
        "ReduceMean x > m axes=-1,; Sub x m > d; Pow d two > p; ReduceMean p > v axes=-1,; Add v eps > w; Sqrt w > s; "
        "Div d s > n; Mul n g > q; Add q b > h; MatMul h wq > y",
        TOKENS,
        "y",
        {"two": scalar(2), "eps": scalar(1e-5), "g": floats(16), "b": floats(16), "wq": floats(16, 16)},
        13,
    ),
    "images": (
        "Conv x w1 b1 > a pads=1,1,1,1; Relu a > r; Conv r w2 > b pads=1,1,1,1; Add b r > s; Relu s > t; "
        "MaxPool t > m kernel_shape=2,2 strides=2,2; Conv m w3 > d group=16; Clip d lo hi > e; "
        "GlobalAveragePool e > p; Flatten p > q; Gemm q w4 b4 > g; Relu g > y",
        {"x": ["n", 3, 12, 12]},
        "y",
        {
            "w1": floats(16, 3, 3, 3),
            "b1": floats(16),
            "w2": floats(16, 16, 3, 3),
            "w3": floats(16, 1, 3, 3),
            "lo": scalar(0),
            "hi": scalar(6),
            "w4": floats(16, 5),
            "b4": floats(5),
        },
        13,
    ),
    "recurrent": (
        "Transpose x > t perm=1,0,2; LSTM t w r b > o h c hidden_size=8; Squeeze o a > q; Transpose q > u perm=1,0,2; "
        "MatMul u m > v; Add v d > e; Softmax e > y axis=-1",
        {"x": ["n", 6, 4]},
        "y",
        {"w": floats(1, 32, 4), "r": floats(1, 32, 8), "b": floats(1, 64), "a": [1], "m": floats(8, 3), "d": floats(3)},
    ),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest, make: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    return make(*MODELS[request.param])


def optimised(model: onnx.ModelProto, level: str, path: Path) -> onnx.ModelProto:
    """What ONNX Runtime makes of a model."""
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath = str(path / "optimised.onnx")
    runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(path / "optimised.onnx")


def operators(model: onnx.ModelProto) -> set[str]:
    return {operator_name(node) for node in model.graph.node}


def run_exposed(model: onnx.ModelProto, batch_size: int) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """Name, type and shape of every tensor that a node writes, when ONNX Runtime runs the model as it is."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    names = [name for node in model.graph.node for name in node.output if name]
    del exposed.graph.output[:]
    exposed.graph.output.extend(map(helper.make_empty_tensor_value_info, names))
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(exposed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    shape = [dim.dim_value or batch_size for dim in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = {model.graph.input[0].name: G.standard_normal(shape).astype(np.float32)}
    for name, result in zip(names, session.run(None, feeds), strict=True):
        yield name, helper.np_dtype_to_tensor_dtype(result.dtype), result.shape


def check(model: onnx.ModelProto) -> None:
    """Compare every shape at the batch sizes 1 and 3, and price the model without a default."""
    plain = resolve_batch(model)
    for batch_size in (1, 3):
        values = plain.at(batch_size).values
        for name, dtype, shape in run_exposed(model, batch_size):
            if name in values:
                assert (values[name].dtype, values[name].shape) == (dtype, shape), f"{name} at {batch_size}"
    graph = load_graph(model)
    assert default_notes(graph) == ()
    device = load_cluster("c600").devices[0]
    IpuTarget().compile(graph, LayerRange(0, len(graph)), device, CompileOptions(4, Precision.FP16))


@pytest.mark.parametrize("level", ["EXTENDED", "ALL"])
def test_optimised_files(model: onnx.ModelProto, level: str, tmp_path: Path) -> None:
    check(optimised(model, level, tmp_path))


def test_the_optimiser_writes_operators_of_its_own(make: Callable[..., onnx.ModelProto], tmp_path: Path) -> None:
    written = {name: operators(optimised(make(*MODELS[name]), "EXTENDED", tmp_path)) for name in MODELS}
    fused = ("BiasGelu", "FusedMatMul", "SkipLayerNormalization")
    assert {f"com.microsoft.{op}" for op in fused} <= written["encoder"]
    assert {"SimplifiedLayerNormalization", "com.microsoft.QuickGelu"} <= written["decoder"]
    assert "LayerNormalization" in written["old norm"]
    assert {"com.microsoft.FusedConv", "com.microsoft.FusedGemm"} <= written["images"]


def dynamic(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """Weights in bytes, and activations by the extremes of each run."""
    quantization = pytest.importorskip("onnxruntime.quantization", reason="it makes the files")
    onnx.save(model, path / "model.onnx")
    quantization.quantize_dynamic(path / "model.onnx", path / "q.onnx", weight_type=quantization.QuantType.QUInt8)
    return onnx.load(path / "q.onnx")


def static(model: onnx.ModelProto, path: Path, form: str) -> onnx.ModelProto:
    """Activations in bytes by the extremes of one run."""
    quantization = pytest.importorskip("onnxruntime.quantization", reason="it makes the files")
    (entry,) = model.graph.input
    shape = [dim.dim_value or 1 for dim in entry.type.tensor_type.shape.dim]
    samples = iter([{entry.name: G.standard_normal(shape).astype(np.float32)}])

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def get_next(self) -> Any:
            return next(samples, None)

    onnx.save(model, path / "model.onnx")
    how = getattr(quantization.QuantFormat, form)
    quantization.quantize_static(path / "model.onnx", path / "q.onnx", Reader(), quant_format=how)
    return onnx.load(path / "q.onnx")


def test_files_with_dynamic_bytes(model: onnx.ModelProto, tmp_path: Path) -> None:
    quantised = dynamic(model, tmp_path)
    assert "DynamicQuantizeLinear" in operators(quantised)
    check(quantised)
    check(optimised(quantised, "EXTENDED", tmp_path))


@pytest.mark.parametrize("form", ["QOperator", "QDQ"])
def test_files_in_bytes(model: onnx.ModelProto, form: str, tmp_path: Path) -> None:
    quantised = static(model, tmp_path, form)
    assert {"QuantizeLinear", "DequantizeLinear"} <= operators(quantised)
    check(quantised)
    check(optimised(quantised, "ALL", tmp_path))


def test_files_of_the_optimiser_of_transformers(make: Callable[..., onnx.ModelProto], tmp_path: Path) -> None:
    optimizer = pytest.importorskip("onnxruntime.transformers.optimizer", reason="it makes the files")
    pytest.importorskip("sympy", reason="the optimiser of transformers infers shapes with it")
    onnx.save(make(*MODELS["encoder"]), tmp_path / "model.onnx")
    fused = optimizer.optimize_model(str(tmp_path / "model.onnx"), "bert", num_heads=4, hidden_size=16, opt_level=0)
    fused.save_model_to_file(str(tmp_path / "fused.onnx"))
    saved = onnx.load(tmp_path / "fused.onnx")
    assert "com.microsoft.Attention" in operators(saved)
    check(saved)


def test_weights_of_four_bits(make: Callable[..., onnx.ModelProto]) -> None:
    module = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer", reason="it makes the files")
    model = make("MatMul x w > h; Relu h > y", {"x": ["n", 6, 64]}, "y", {"w": floats(64, 32)})
    packer = module.MatMulNBitsQuantizer(model, block_size=32, is_symmetric=True)
    packer.process()
    assert "com.microsoft.MatMulNBits" in operators(packer.model.model)
    check(packer.model.model)
