"""Run the pipeline of this folder: python run_pipeline.py INPUTS.npz OUTPUTS.npz. It needs onnxruntime alone.

INPUTS holds the model's inputs by name, with the samples of one or more micro-batches along their batch axes. Every
stage of every replica has a session and a thread of its own.
"""

import json
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

FOLDER = Path(__file__).parent
PIPELINE = json.loads((FOLDER / "pipeline.json").read_text(encoding="utf-8"))
Tensors = dict[str, Any]


class Worker:
    """The thread and the session of a stage."""

    def __init__(self, stage: dict[str, Any]) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = stage["intra_op_threads"]
        self.session = onnxruntime.InferenceSession(FOLDER / stage["file"], options, providers=stage["providers"])
        self.inputs, self.outputs = ([port["name"] for port in stage[end]] for end in ("inputs", "outputs"))
        self.sends, self.thread = stage["sends"], ThreadPoolExecutor(1)

    def compute(self, received: "Future[Tensors]") -> Tensors:
        """What later stages read, or the outputs of the model."""
        tensors = received.result()
        computed = self.session.run(self.outputs, {name: tensors[name] for name in self.inputs})
        tensors = {**tensors, **dict(zip(self.outputs, computed, strict=True))}
        return {name: tensors[name] for name in self.sends}


def run(inputs: Tensors) -> Tensors:
    """The outputs of the model by name; micro-batches go to the replicas in turn."""
    replicas = [[*map(Worker, p["stages"])] for p in PIPELINE["pipelines"] for _ in range(p["n_replicas"])]
    axes = {p["name"]: p["batch_axis"] for p in PIPELINE["inputs"] + PIPELINE["outputs"]}
    sizes = {p["name"]: p["shape"] for p in PIPELINE["inputs"]}
    n = max((inputs[k].shape[axes[k]] // sizes[k][axes[k]] for k in sizes if axes[k] is not None), default=1)
    parts = {k: [inputs[k]] * n if axes[k] is None else np.split(inputs[k], n, axes[k]) for k in sizes}
    results = []
    for i in range(n):
        future: Future[Tensors] = Future()
        future.set_result({k: part[i] for k, part in parts.items()})
        for worker in replicas[i % len(replicas)]:
            future = worker.thread.submit(worker.compute, future)
        results.append(future)
    done = [future.result() for future in results]
    ends = [p["name"] for p in PIPELINE["outputs"]]
    return {k: done[0][k] if axes[k] is None else np.concatenate([d[k] for d in done], axes[k]) for k in ends}


if __name__ == "__main__":
    np.savez(sys.argv[2], **run(dict(np.load(sys.argv[1]))))
