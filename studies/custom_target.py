"""A target of one's own, and a search on it: `python studies/custom_target.py`.

The device is NumPy in this process: ONNX's reference implementation really runs every range of layers, and is timed.
For another device, put what compiles and times a model there where `compile` runs it here.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import autoauto
from autoauto.graph.cut.source import onnx_source
from autoauto.records.hardware import Cluster, Device, Link
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.profile import PARAMETER, CompiledRange, CompileOptions, ProgramStep


class NumpyTarget:
    """Devices that run layers with NumPy; a cycle is a period of the clock that the cluster tells."""

    version = f"numpy {np.__version__}, onnx {onnx.__version__}"  # part of every key of what is kept

    def __init__(self, model: str) -> None:
        self._source = onnx_source(model)  # cuts ranges of layers out of the file

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        """Layers are timed at powers of two; what lies between is interpolated."""
        above = 1 << (batch_size - 1).bit_length()
        return (above,) if above == batch_size else (above // 2, above)

    def depends_on(self, device: Device, options: CompileOptions) -> object:
        """A range that was compiled is used again unless one of these differs."""
        return device.clock_hz, options.batch_size

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        """Run a range of layers five times; the quickest counts."""
        part = self._source.cut(graph, layers, options.batch_size)
        model = ReferenceEvaluator(onnx.load_model_from_string(part.content))
        inputs = {port.name: np.ones(port.shape, port.dtype) for port in part.inputs}
        seconds = []
        for _ in range(5):
            begun = perf_counter()
            model.run(None, inputs)
            seconds.append(perf_counter() - begun)
        weights = {weight for layer in graph.layers[slice(*layers)] for weight in layer.weights}
        weight_bytes = sum(graph.tensors[weight].n_bytes(1, options.precision) for weight in weights)
        alive_bytes = sum(port.n_bytes for port in (*part.inputs, *part.outputs))
        step = ProgramStep("run", round(min(seconds) * device.clock_hz), alive_bytes)
        return CompiledRange((step,), backward_cycles=0, shared={}, exclusive={PARAMETER: weight_bytes})


def cluster() -> Cluster:
    """Two devices of 16 MiB, a cycle a nanosecond, with links of 1 GB/s."""
    device, link = Device("numpy", 1e9, 16 * 2**20, 1, 16 * 2**20), Link(1e9, 1000)
    return Cluster("two", "numpy", (device, device), (link, link), (link, link))


def model_of(n_layers: int, width: int) -> onnx.ModelProto:
    """Products with square matrices of random weights, one after the other."""
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=(width, width)).astype(np.float32) for _ in range(n_layers)]
    graph = helper.make_graph(
        [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"], f"layer{i}") for i in range(n_layers)],
        "products",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["batch", width])],
        [helper.make_tensor_value_info(f"x{n_layers}", TensorProto.FLOAT, ["batch", width])],
        [onnx.numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(weights)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def tell(trial: autoauto.FinishedTrial) -> None:
    """Print a finished trial."""
    print(f"{trial.state} n_ipu {trial.knobs.n_ipu} batch_size {trial.knobs.batch_size} {trial.reason}".rstrip())


def main() -> None:
    """Search, and print every finished trial and the best."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "products.onnx"
        onnx.save(model_of(n_layers=6, width=512), path)
        space = autoauto.SearchSpace(n_ipu=(1, 2), memory_proportion=(1.0,), batch_size=(1, 4, 16, 64))
        best = autoauto.search(
            path,
            cluster(),
            space,
            target=NumpyTarget(str(path)),
            precision="fp32",
            noise=0.02,  # values that differ by less are ties: these times are real
            callback=lambda trial: print(
                f"{trial.state} n_ipu {trial.knobs.n_ipu} batch_size {trial.knobs.batch_size}"
            ),
        )
        print(f"best: n_ipu {best.knobs.n_ipu} batch_size {best.knobs.batch_size}")
        assert best.measured is not None
        print(f"stages begin at {best.measured.partition}, {best.samples_per_s:,.0f} samples/s, measured")


if __name__ == "__main__":
    main()
