"""Run the pipeline of this folder: python run_pipeline.py INPUTS.npz OUTPUTS.npz. It needs onnxruntime, or the
runtimes that pipeline.json names, for fp16 on a GPU also onnx, and nothing else.

INPUTS holds the model's inputs by name, with the samples of one or more micro-batches along their batch axes. Every
device of every stage of every replica has a session and a thread of its own.
"""

import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

FOLDER = Path(__file__).parent
Tensors = dict[str, Any]
Session = Callable[[list[str], Tensors], list[Any]]


def onnx_runtime(stage: dict[str, Any], device: str) -> Session:
    """A function that computes outputs, given by name, with ONNX Runtime."""
    import onnxruntime

    if stage.get("precision", "fp32") != "fp32":
        raise ValueError(f"ONNX Runtime computes in the formats of the file, got {stage['precision']}")
    session = onnxruntime.InferenceSession(FOLDER / stage["file"], settings(stage), providers=stage["providers"])
    compute: Session = session.run
    return compute


def cuda(stage: dict[str, Any], device: str) -> Session:
    """A function that computes outputs with ONNX Runtime, wholly on a GPU, in the format that was measured."""
    import onnxruntime

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise ValueError("stages for GPUs need onnxruntime-gpu[cuda,cudnn], with no onnxruntime installed over it")
    onnxruntime.preload_dlls()
    options, chosen = settings(stage), stage.get("options", {})
    number = int(device.removeprefix("cuda:"))
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    provider = {
        "device_id": number,
        "cudnn_conv_algo_search": "EXHAUSTIVE",
        "use_tf32": int(stage["precision"] == "tf32"),
        "enable_cuda_graph": int(chosen.get("cuda_graph", False)),
        "prefer_nhwc": int(chosen.get("channels_last", False)),
    }
    model: Path | bytes = FOLDER / stage["file"]
    if stage["precision"] == "fp16":
        model = in_fp16(FOLDER / stage["file"])
    session = onnxruntime.InferenceSession(model, options, providers=[("CUDAExecutionProvider", provider)])
    binding, values = session.io_binding(), {}
    # A CUDA graph reads and writes the same memory in every run, so every tensor is bound once.
    for end in ("input", "output"):
        for port in stage[f"{end}s"]:
            kind = np.dtype(port["dtype"]).type
            value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(port["shape"], kind, "cuda", number)
            values[port["name"]] = value
            getattr(binding, f"bind_ortvalue_{end}")(port["name"], value)

    def compute(names: list[str], inputs: Tensors) -> list[Any]:
        for name, array in inputs.items():
            values[name].update_inplace(np.asarray(array, order="C"))
        session.run_with_iobinding(binding)
        return [values[name].numpy() for name in names]

    return compute


def in_fp16(file: Path) -> bytes:
    """A stage with weights and activations in fp16; its inputs and outputs keep their formats. It needs onnx, too."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    content: bytes = convert_float_to_float16(onnx.load(file), keep_io_types=True).SerializeToString()
    return content


def settings(stage: dict[str, Any]) -> Any:
    """The options of a session of ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = stage["intra_op_threads"]
    chosen = stage.get("options", {})
    levels = {"all": "ENABLE_ALL", "extended": "ENABLE_EXTENDED", "basic": "ENABLE_BASIC", "off": "DISABLE_ALL"}
    level = levels[chosen.get("graph_optimization", "all")]
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.__members__[f"ORT_{level}"]
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(chosen.get("spinning", True))))
    return options


def openvino(stage: dict[str, Any], device: str) -> Session:
    """A function that computes outputs with OpenVINO, in the format that was measured or not at all."""
    import openvino

    hint = {"fp32": openvino.Type.f32, "bf16": openvino.Type.bf16, "fp16": openvino.Type.f16}[stage["precision"]]
    n = stage.get("options", {}).get("streams", 1)  # the file takes one of so many parts of a micro-batch
    options = {"INFERENCE_PRECISION_HINT": hint, "NUM_STREAMS": n, "INFERENCE_NUM_THREADS": stage["intra_op_threads"]}
    model = openvino.Core().compile_model(FOLDER / stage["file"], "CPU", options)
    if model.get_property("INFERENCE_PRECISION_HINT") != hint:
        raise ValueError(f"OpenVINO must compute in {stage['precision']}, this CPU does not")
    if model.get_property("NUM_STREAMS") != n:
        raise ValueError(f"OpenVINO must have {n} streams, it has {model.get_property('NUM_STREAMS')}")
    requests = [model.create_infer_request() for _ in range(n)]

    def compute(names: list[str], inputs: Tensors) -> list[Any]:
        # Every stream gets its part of the samples; all start before the first is waited for, so that they overlap.
        for part, request in enumerate(requests):
            for index, array in enumerate(inputs.values()):  # in the order of the file
                shape, own = tuple(model.inputs[index].shape), array
                if array.shape != shape:
                    own = array[part * shape[0] : (part + 1) * shape[0]]
                request.set_input_tensor(index, openvino.Tensor(np.asarray(own, order="C")))  # a scalar stays one
            request.start_async()
        for request in requests:
            request.wait()
        outputs = []
        for index in range(len(names)):
            parts = [request.get_output_tensor(index).data.copy() for request in requests]
            outputs.append(parts[0] if n == 1 else np.concatenate(parts))
        return outputs

    return compute


RUNTIMES = {"onnxruntime": onnx_runtime, "openvino": openvino, "cuda": cuda}


class Worker:
    """The thread and the session of a device."""

    def __init__(self, stage: dict[str, Any], device: str) -> None:
        self.session = RUNTIMES[stage.get("runtime", "onnxruntime")](stage, device)
        self.inputs = [port["name"] for port in stage["inputs"]]
        self.outputs = [port["name"] for port in stage["outputs"]]
        self.sends = stage["sends"]
        self.thread = ThreadPoolExecutor(1)

    def compute(self, received: "Future[Tensors]") -> Tensors:
        """The tensors that later stages read, and outputs of the model, of one micro-batch."""
        tensors = received.result()
        computed = self.session(self.outputs, {name: tensors[name] for name in self.inputs})
        # What was received is sent on, too, where a later stage reads it.
        tensors = tensors | dict(zip(self.outputs, computed, strict=True))
        return {name: tensors[name] for name in self.sends}


def micro_batches(inputs: Tensors, ports: list[dict[str, Any]]) -> list[Tensors]:
    """The inputs of every micro-batch."""
    names = [port["name"] for port in ports]
    if sorted(inputs) != sorted(names):
        raise ValueError(f"the inputs must be {names}, got {list(inputs)}")
    # The input with the most micro-batches counts; the check of shapes refuses others with fewer.
    n = max([inputs[port["name"]].size // prod(port["shape"]) for port in ports] + [1])
    batches: list[Tensors] = [{} for _ in range(n)]
    for port in ports:
        name, axis, array = port["name"], port["batch_axis"], inputs[port["name"]]
        shape, times = list(port["shape"]), ""
        if axis is not None:
            shape[axis] *= n
            times = f", times the number of micro-batches along axis {axis}"
        if array.dtype != port["dtype"] or list(array.shape) != shape:
            wanted = f"{port['dtype']} of shape {port['shape']}{times}"
            raise ValueError(f"input {name!r} must be {wanted}, got {array.dtype} of shape {list(array.shape)}")
        parts = [array] * n if axis is None else np.split(array, n, axis)
        for batch, part in zip(batches, parts, strict=True):
            batch[name] = part
    return batches


def open_replica(pipeline: dict[str, Any], replica: int, names: list[str]) -> list[list[Worker]]:
    """The workers of all stages; `names` are those of the machine's devices, if they are unlike cores or GPUs."""
    n = sum(stage["n_replicas"] for stage in pipeline["stages"])
    devices = ["cpu"] * n
    if names and pipeline["placement"]:
        devices = [names[number] for _, number in pipeline["placement"][replica]]
    elif names:
        devices = names[replica * n : (replica + 1) * n]
    rest = iter(devices)  # in the order of the stages
    return [[Worker(stage, next(rest)) for _ in range(stage["n_replicas"])] for stage in pipeline["stages"]]


def run(inputs: Tensors) -> Tensors:
    """The outputs of the model by name; replicas, and in these the devices of a stage, take micro-batches in turn."""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # so that CUDA counts GPUs as pipeline.json does
    pipeline = json.loads((FOLDER / "pipeline.json").read_text(encoding="utf-8"))
    parts, names = micro_batches(inputs, pipeline["inputs"]), pipeline.get("devices", [])
    bounded = [port["name"] for port in pipeline["outputs"] if port.get("data_dependent")]
    if bounded and len(parts) > 1:
        raise ValueError(f"output {bounded[0]!r} has lengths of its own, so give one micro-batch, got {len(parts)}")
    replicas: list[list[list[Worker]]] = []
    for files in pipeline["pipelines"]:
        replicas += [open_replica(files, replica, names) for replica in range(files["n_replicas"])]
    results = []
    for i, part in enumerate(parts):
        # A worker waits for the future of the stage before. Its thread takes micro-batches in the order of `submit`, so
        # every stage computes one of them while the next stage computes the one before.
        future: Future[Tensors] = Future()
        future.set_result(part)
        for workers in replicas[i % len(replicas)]:
            worker = workers[i // len(replicas) % len(workers)]
            future = worker.thread.submit(worker.compute, future)
        results.append(future)
    done = [future.result() for future in results]
    outputs = {}
    for port in pipeline["outputs"]:
        name, axis = port["name"], port["batch_axis"]
        outputs[name] = done[0][name]
        if axis is not None:
            outputs[name] = np.concatenate([tensors[name] for tensors in done], axis)
    return outputs


def save(path: str, arrays: Tensors) -> None:
    """Write arrays as `np.savez` does, which takes no array called "file"."""
    with ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python run_pipeline.py INPUTS.npz OUTPUTS.npz")
    try:
        save(sys.argv[2], run(dict(np.load(sys.argv[1]))))
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"run_pipeline.py: {error}")
