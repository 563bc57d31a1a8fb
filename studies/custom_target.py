"""A target of your own, `NumpyTarget`, and a search on it: `python studies/custom_target.py`.

The device is NumPy in this process: ONNX's reference implementation runs every range of layers, and is timed.
For another device, let `compile` compile and time the range there.
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
from autoauto.plugin import (
    PARAMETER,
    Cluster,
    CompiledRange,
    CompileOptions,
    Device,
    LayerGraph,
    LayerRange,
    Link,
    ProgramStep,
    onnx_source,
)


class NumpyTarget:
    """Devices that run layers with NumPy; a cycle is one period of the clock of `Device.clock_hz`."""

    version = f"numpy {np.__version__}, onnx {onnx.__version__}"  # part of every key of the profile cache

    def __init__(self, model: str) -> None:
        self._source = onnx_source(model)  # cuts ranges of layers out of the file

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        """Batch sizes at which layers are timed: powers of two; the profile of others is interpolated."""
        above = 1 << (batch_size - 1).bit_length()
        return (above,) if above == batch_size else (above // 2, above)

    def depends_on(self, device: Device, options: CompileOptions) -> object:
        """The rest of the cache key: a compiled range is used again unless one of these values differs."""
        return device.clock_hz, options.batch_size

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        """Run a range of layers five times and return the shortest time."""
        part = self._source.cut(graph, layers, options.batch_size)
        model = ReferenceEvaluator(onnx.load_model_from_string(part.content))
        inputs = {port.name: np.ones(port.shape, port.dtype) for port in part.inputs}
        seconds = []
        for _ in range(5):
            start_s = perf_counter()
            model.run(None, inputs)
            seconds.append(perf_counter() - start_s)
        weights = {weight for layer in graph.layers[slice(*layers)] for weight in layer.weights}
        weight_bytes = sum(graph.tensors[weight].n_bytes(1, options.precision) for weight in weights)
        alive_bytes = sum(port.n_bytes for port in (*part.inputs, *part.outputs))
        step = ProgramStep("run", round(min(seconds) * device.clock_hz), alive_bytes)
        return CompiledRange((step,), backward_cycles=0, shared={}, exclusive={PARAMETER: weight_bytes})


def cluster() -> Cluster:
    """Two devices of 16 MiB at 1 GHz with links of 1 GB/s."""
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


def print_trial(trial: autoauto.Trial) -> None:
    """Print a finished trial."""
    print(f"{trial.status}: n_ipu {trial.knobs.n_ipu} batch_size {trial.knobs.batch_size}")


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
            callback=print_trial,
        )
        print(f"best: n_ipu {best.knobs.n_ipu} batch_size {best.knobs.batch_size}")
        assert best.measured is not None
        print(f"stages begin at {best.measured.partition}, {best.samples_per_s:,.0f} samples/s, measured")


if __name__ == "__main__":
    main()
