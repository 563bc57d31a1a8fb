"""Splits by hand of Graphcore's engineers beside the planner's: `python studies/handtuned.py`.

Reads `data/measurements/handtuned.json`. Both splits of a row are for the same devices (an M2000), micro-batch and
memory proportion, and cost what the same model says; "fits" is what their stages compiled whole say. Rows of training
are compared by their forward pass alone; where even that is not modelled, the line says so.

Graphcore's GPT-2 runs embedding and head, which share their weights, on the first IPU: a ring 0 1 2 3 0. A line costs
the same when the head comes first and reads an input of its own, what the last IPU sent for the micro-batch before.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from onnx import TensorProto, helper, save

from autoauto.flow import Flow
from autoauto.graph import load_graph
from autoauto.plan import evaluate
from autoauto.records.errors import Infeasible, OutOfMemory
from autoauto.records.layers import LayerGraph
from autoauto.records.places import data_dir
from autoauto.records.plan import Plan
from autoauto.records.trial import Knobs
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu import IpuTarget

VOCABULARY = 50257  # of GPT-2


class Split(NamedTuple):
    """One way to cut a model: where, at what cost, and whether its stages compiled whole fit."""

    partition: tuple[int, ...]
    cost_cycles: int
    fits: bool


class Comparison(NamedTuple):
    """Graphcore's split and ours; None when the planner says that none fits."""

    theirs: Split
    ours: Split | None


def rows() -> list[dict[str, Any]]:
    """The published configurations."""
    found: list[dict[str, Any]] = json.loads((data_dir() / "measurements" / "handtuned.json").read_text())["rows"]
    return found


def compare(row: dict[str, Any]) -> Comparison:
    """Cost both splits of a row that has a model; all of a device's memory may be filled."""
    knobs = Knobs(row["n_ipu"], row["memory_proportion"], row["batch_size"])
    flow = Flow(graph_of(row["model"]), load_cluster("m2000"), IpuTarget(), planning_proportion=1.0)
    starts = (first_layer(flow.graph, start) for start in row["starts"])
    theirs = evaluate(flow.table(knobs), (0, *starts, len(flow.graph)))
    try:
        return Comparison(split(flow, knobs, theirs), split(flow, knobs, flow.predict(knobs)))
    except Infeasible:
        return Comparison(split(flow, knobs, theirs), None)


def split(flow: Flow, knobs: Knobs, plan: Plan) -> Split:
    """Compile the stages of a plan whole."""
    try:
        flow.measure(knobs, plan)
    except OutOfMemory:
        return Split(plan.partition, plan.cost_cycles, fits=False)
    return Split(plan.partition, plan.cost_cycles, fits=True)


def first_layer(graph: LayerGraph, start: str) -> int:
    """The first layer whose name begins with `start`."""
    return next(index for index, layer in enumerate(graph.layers) if layer.name.startswith(start))


def graph_of(model: str | dict[str, int]) -> LayerGraph:
    """A built-in model by its name, or a GPT-2 by its sizes."""
    if isinstance(model, str):
        return load_graph(model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpt2.onnx"
        save(gpt2(**model), path)
        return load_graph(str(path))


class _Nodes:
    """ONNX nodes in the making; weights are nodes too, so that they take no space in the file."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, name: str, op: str, *operands: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, operands, [name], name=name, **attributes))
        return name

    def integers(self, name: str, *values: int) -> str:
        self.constants.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def weight(self, name: str, *shape: int) -> str:
        value = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.01])
        return self.add(name, "ConstantOfShape", self.integers(f"{name}.shape", *shape), value=value)

    def norm(self, name: str, x: str, width: int) -> str:
        scales = (self.weight(f"{name}.{part}", width) for part in ("scale", "shift"))
        return self.add(name, "LayerNormalization", x, *scales)

    def dense(self, name: str, x: str, n_in: int, n_out: int) -> str:
        product = self.add(f"{name}.MatMul", "MatMul", x, self.weight(f"{name}.weight", n_in, n_out))
        return self.add(f"{name}.Add", "Add", product, self.weight(f"{name}.bias", n_out))


def gpt2(n_layers: int, width: int, n_heads: int, sequence: int) -> Any:
    """GPT-2 as a line: its head first, which reads `previous`, then the embedding and the blocks "h.0." and on."""
    nodes = _Nodes()
    table = nodes.weight("wte.weight", VOCABULARY, width)
    head = nodes.add("head.MatMul", "MatMul", "previous", nodes.add("head.Transpose", "Transpose", table, perm=(1, 0)))
    nodes.add("token", "ArgMax", head, axis=-1, keepdims=0)
    x = nodes.add("wte.Gather", "Gather", table, "ids")
    x = nodes.add("wpe.Add", "Add", x, nodes.weight("wpe.weight", sequence, width))
    for number in range(n_layers):
        x = _block(nodes, f"h.{number}", x, width, n_heads, sequence)
    x = nodes.norm("ln_f", x, width)
    shape: list[int | str] = ["batch", sequence, width]
    graph = helper.make_graph(
        nodes.nodes,
        "gpt2",
        [_value("ids", TensorProto.INT64, shape[:2]), _value("previous", TensorProto.FLOAT, shape)],
        [_value("token", TensorProto.INT64, shape[:2]), _value(x, TensorProto.FLOAT, shape)],
        nodes.constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def _value(name: str, kind: int, shape: Sequence[int | str]) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _block(nodes: _Nodes, name: str, x: str, width: int, n_heads: int, sequence: int) -> str:
    y = nodes.dense(f"{name}.c_attn", nodes.norm(f"{name}.ln_1", x, width), width, 3 * width)
    parts = [f"{name}.{part}" for part in ("query", "key", "value")]
    nodes.nodes.append(helper.make_node("Split", [y], parts, name=f"{name}.Split", axis=-1, num_outputs=3))
    shape = nodes.integers(f"{name}.heads", 0, sequence, n_heads, width // n_heads)
    query, key, value = (
        nodes.add(f"{part}.Transpose", "Transpose", nodes.add(f"{part}.Reshape", "Reshape", part, shape), perm=perm)
        for part, perm in zip(parts, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True)
    )
    y = nodes.add(f"{name}.scores", "MatMul", query, key)
    y = nodes.add(f"{name}.mask", "Add", y, nodes.weight(f"{name}.mask.weight", 1))
    y = nodes.add(f"{name}.mixed", "MatMul", nodes.add(f"{name}.Softmax", "Softmax", y, axis=-1), value)
    y = nodes.add(f"{name}.Transpose", "Transpose", y, perm=(0, 2, 1, 3))
    y = nodes.add(f"{name}.Reshape", "Reshape", y, nodes.integers(f"{name}.joined", 0, sequence, width))
    x = nodes.add(f"{name}.Add", "Add", x, nodes.dense(f"{name}.c_proj", y, width, width))
    y = nodes.dense(f"{name}.c_fc", nodes.norm(f"{name}.ln_2", x, width), width, 4 * width)
    y = nodes.add(f"{name}.Gelu", "Gelu", y, approximate="tanh")
    return nodes.add(f"{name}.Add_2", "Add", x, nodes.dense(f"{name}.mlp_proj", y, 4 * width, width))


def lines(row: dict[str, Any]) -> Iterator[str]:
    """One line a split."""
    told = f"{row['id']:36}{row['mode']:7}{row['n_ipu']:4}{row['batch_size']:6}{row['memory_proportion']:6}"
    if row["model"] is None:
        yield f"{told}  training is not modelled; published: {'fits' if row['fits'] else 'does not fit'}"
        return
    theirs, found = compare(row)
    yield f"{told}  Graphcore {_told(theirs)}"
    saved = "" if found is None else f"  {100 * (1 - found.cost_cycles / theirs.cost_cycles):.1f}% less"
    yield f"{'':{len(told)}}  ours      {'none fits' if found is None else _told(found)}{saved}"


def _told(split: Split) -> str:
    sizes = " ".join(str(stop - start) for start, stop in pairwise(split.partition))
    return f"{sizes:20}{split.cost_cycles:12,}  {'fits' if split.fits else 'does not fit'}"


def main() -> None:
    """Print two lines a published configuration."""
    print(f"{'configuration':36}{'mode':6}{'IPUs':>5}{'batch':>6}{'p':>6}  {'split':10}{'layers':20}{'cycles':>12}")
    for row in rows():
        for line in lines(row):
            print(line, flush=True)


if __name__ == "__main__":
    main()
