"""Hand-tuned splits of models beside the planner's: `python studies/handtuned.py [--rows ID ...]`.

Reads `data/measurements/handtuned.json`, with configurations of [graphcore-examples] and [optimum-graphcore]. Both
splits of a row are for the same devices (an M2000), micro-batch, memory proportion and mode, and the same cost model
gives their costs: a row of training runs forward and backward in PopART's order, and recomputes where the published
configuration does. The memory of a stage is that of the stage compiled whole.

In these configurations GPT-2 and BERT run embedding and head, which share their weights, on the first IPU: a ring
0 1 2 3 0. A line costs the same when the head comes first and reads an input of its own, the output of the last IPU for
the previous micro-batch. Both ends of that line are links between devices, so transfers of token ids by the host are
left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from onnx import TensorProto, helper, save

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.setting import Setting
from autoauto.graph.load import load_graph
from autoauto.plan.pipeline.problem import evaluate
from autoauto.records.costs.memory import compiled_bytes
from autoauto.records.costs.profile import CompiledRange
from autoauto.records.errors import Infeasible
from autoauto.records.hardware import Cluster
from autoauto.records.installation import data_dir
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.schedule import Order
from autoauto.records.units import format_bytes
from autoauto.schedule.stash import in_flight
from autoauto.space.knobs import Knobs
from autoauto.space.modes.training import Training
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.session import IpuSession
from autoauto.targets.ipu.target import IpuTarget

Row = dict[str, Any]


class Split(NamedTuple):
    """One way to cut a model: its cuts, its cost, the bytes of its stages compiled whole, and the bytes of a device."""

    partition: tuple[int, ...]
    cost_cycles: int
    stage_bytes: tuple[int, ...]
    limit_bytes: int

    @property
    def fits(self) -> bool:
        """Whether every stage fits its device."""
        return max(self.stage_bytes) <= self.limit_bytes


class Comparison(NamedTuple):
    """Graphcore's split and ours; None when the planner finds no split that fits."""

    theirs: Split
    ours: Split | None


def rows() -> list[Row]:
    """The published configurations."""
    configurations: list[Row] = json.loads((data_dir() / "measurements" / "handtuned.json").read_text())["rows"]
    return configurations


def compare(row: Row) -> Comparison:
    """Cost both splits of a row; all of a device's memory may be filled."""
    knobs, flow = knobs_of(row), Flow(Setting(graph_of(row), cluster_of(row), IpuTarget(), planning_proportion=1.0))
    starts = (first_layer(flow.graph, start) for start in row["starts"])
    theirs = evaluate(flow.table(knobs), (0, *starts, len(flow.graph)))
    try:
        return Comparison(split(flow, row, theirs), split(flow, row, flow.predict(knobs)))
    except Infeasible:
        return Comparison(split(flow, row, theirs), None)


def knobs_of(row: Row) -> Knobs:
    """The configuration of a row; where IPUs differ in memory proportion, all get the most frequent one."""
    session = IpuSession(row["memory_proportion"])
    if row["mode"] == "infer":
        return Knobs(row["n_ipu"], row["batch_size"], session=session)
    mode = Training(Order.POPART, recompute=row["recompute"], n_micro_batches=row["n_micro_batches"])
    return Knobs(row["n_ipu"], row["batch_size"], mode=mode, session=session)


def cluster_of(row: Row) -> Cluster:
    """An M2000; closed to a ring for models whose head comes first."""
    cluster = load_cluster("m2000")
    if isinstance(row["model"], str) or row["model"]["family"] == "mt5":
        return cluster
    link = cluster.receive_links[1]
    return replace(cluster, receive_links=(link,) * len(cluster), send_links=(link,) * len(cluster))


def split(flow: Flow, row: Row, plan: Plan) -> Split:
    """A plan with the bytes of its stages."""
    n_bytes = tuple(stage_bytes(flow, row, stage) for stage in plan.stages)
    return Split(plan.partition, plan.cost_cycles, n_bytes, int(flow.cluster.devices[0].memory_bytes))


def stage_bytes(flow: Flow, row: Row, stage: Stage) -> int:
    """Bytes of a stage compiled whole.

    Every row of training recomputes: a stage runs forward again from its inputs, or from one checkpoint to the next
    where the row has checkpoints. It stashes the inputs and checkpoints of all micro-batches in flight, and the
    activations of one piece. Weights are updated when nothing is in flight; at that time the largest weight needs its
    optimizer state on the device, which is off chip otherwise.
    """
    knobs, device = knobs_of(row), flow.cluster.devices[stage.device]

    def compiled(layers: LayerRange) -> CompiledRange:
        return flow.setting.compiler.compile(flow.graph, layers, device, flow.options(knobs))

    whole = compiled(stage.layers)
    always_bytes = sum(compiled_bytes(whole).values()) - whole.temporary_bytes
    if not knobs.mode.recompute:
        return always_bytes + whole.temporary_bytes
    n_waiting = in_flight(knobs.mode.order, knobs.n_ipu, knobs.mode.n_micro_batches)[stage.device] - 1
    pieces = pieces_of(flow.graph, stage.layers, row.get("block"))
    layers = flow.profile(flow.options(knobs)).layers
    before = [0, *accumulate(layers[piece.start].input_bytes for piece in pieces)]
    peak = max(stash + compiled(piece).temporary_bytes for stash, piece in zip(before, pieces, strict=False))
    return always_bytes + max(peak + n_waiting * before[-1], update_bytes(flow.graph, stage.layers, row))


def pieces_of(graph: LayerGraph, layers: LayerRange, block: str | None) -> list[LayerRange]:
    """A stage cut at the first layer of every block, named "<block>0." and so on; one piece where `block` is None."""
    firsts: dict[str, int] = {}
    for index in range(*layers):
        name = graph.layers[index].name
        if block and name.startswith(block):
            firsts.setdefault(name.removeprefix(block).partition(".")[0], index)
    cuts = [index for index in firsts.values() if index > layers.start]
    return [LayerRange(*ends) for ends in pairwise([layers.start, *cuts, layers.stop])]


def update_bytes(graph: LayerGraph, layers: LayerRange, row: Row) -> int:
    """The optimizer's state of the largest weight of a stage."""
    weights = (graph.tensors[index] for layer in graph.layers[slice(*layers)] for index in layer.weights)
    n_bytes: float = row["state_bytes"] * max((weight.n_elements(1) for weight in weights), default=0)
    return round(n_bytes)


def first_layer(graph: LayerGraph, start: str) -> int:
    """The first layer whose name begins with `start`."""
    return next(index for index, layer in enumerate(graph.layers) if layer.name.startswith(start))


def graph_of(row: Row) -> LayerGraph:
    """A built-in model by its name, or a model made from its family and sizes."""
    if isinstance(row["model"], str):
        return load_graph(row["model"])
    sizes = {name: size for name, size in row["model"].items() if name != "family"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        save(FAMILIES[row["model"]["family"]](**sizes), path)
        return load_graph(str(path))


class _Nodes:
    """Builder of ONNX nodes; weights are `ConstantOfShape` nodes, so that they take no space in the file."""

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

    def norm(self, name: str, x: str, width: int, parts: Sequence[str] = ("scale", "shift")) -> str:
        return self.add(name, "LayerNormalization", x, *(self.weight(f"{name}.{part}", width) for part in parts))

    def product(self, name: str, x: str, n_in: int, n_out: int) -> str:
        return self.add(f"{name}.MatMul", "MatMul", x, self.weight(f"{name}.weight", n_in, n_out))

    def dense(self, name: str, x: str, n_in: int, n_out: int) -> str:
        return self.add(f"{name}.Add", "Add", self.product(name, x, n_in, n_out), self.weight(f"{name}.bias", n_out))

    def first(self, name: str, x: str, n: int) -> str:
        """The first `n` words."""
        ends = (self.integers(f"{name}.{end}", value) for end, value in (("from", 0), ("to", n), ("axis", 1)))
        return self.add(f"{name}.Slice", "Slice", x, *ends)

    def words(self, name: str, logits: str) -> str:
        """The most likely word and, since training needs it, the logarithm of the probability of every word."""
        return self.add(name, "ArgMax", self.add(f"{name}.LogSoftmax", "LogSoftmax", logits), axis=-1, keepdims=0)

    def attention(self, name: str, three: Sequence[str], n_heads: int, width: int) -> str:
        """Attention of (queries, keys, values) with heads of `width`: split heads, scores, softmax, join heads."""
        shape = self.integers(f"{name}.heads", 0, -1, n_heads, width)
        query, key, value = (
            self.add(
                f"{name}.{part}.Transpose", "Transpose", self.add(f"{name}.{part}.apart", "Reshape", x, shape), perm=p
            )
            for part, x, p in zip("qkv", three, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True)
        )
        scores = self.add(
            f"{name}.mask",
            "Add",
            self.add(f"{name}.scores", "MatMul", query, key),
            self.weight(f"{name}.mask.weight", 1),
        )
        y = self.add(f"{name}.mixed", "MatMul", self.add(f"{name}.Softmax", "Softmax", scores, axis=-1), value)
        y = self.add(f"{name}.Transpose", "Transpose", y, perm=(0, 2, 1, 3))
        return self.add(f"{name}.Reshape", "Reshape", y, self.integers(f"{name}.joined", 0, -1, n_heads * width))

    def self_attention(self, name: str, x: str, width: int, n_heads: int) -> str:
        """Self-attention; one product computes queries, keys and values."""
        y = self.dense(f"{name}.c_attn", x, width, 3 * width)
        three = [f"{name}.{part}" for part in ("query", "key", "value")]
        self.nodes.append(helper.make_node("Split", [y], three, name=f"{name}.Split", axis=-1, num_outputs=3))
        return self.dense(f"{name}.c_proj", self.attention(name, three, n_heads, width // n_heads), width, width)

    def mlp(self, name: str, x: str, width: int) -> str:
        y = self.add(f"{name}.Gelu", "Gelu", self.dense(f"{name}.c_fc", x, width, 4 * width), approximate="tanh")
        return self.dense(f"{name}.mlp_proj", y, 4 * width, width)

    def model(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        graph = helper.make_graph(self.nodes, "line", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def _ids(name: str, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", *shape])


def _floats(name: str, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])


def gpt2(n_layers: int, width: int, n_heads: int, sequence: int, vocabulary: int = 50257) -> Any:
    """GPT-2 as a line: its head first, which reads `previous`, then the embedding and the blocks "h.0.", "h.1.", ..."""
    nodes = _Nodes()
    table = nodes.weight("wte.weight", vocabulary, width)
    across = nodes.add("head.Transpose", "Transpose", table, perm=(1, 0))
    nodes.words("token", nodes.add("head.MatMul", "MatMul", "previous", across))
    x = nodes.add("wte.Gather", "Gather", table, "ids")
    x = nodes.add("wpe.Add", "Add", x, nodes.weight("wpe.weight", sequence, width))
    for name in (f"h.{number}" for number in range(n_layers)):
        y = nodes.self_attention(name, nodes.norm(f"{name}.ln_1", x, width), width, n_heads)
        x = nodes.add(f"{name}.Add", "Add", x, y)
        x = nodes.add(f"{name}.Add_2", "Add", x, nodes.mlp(name, nodes.norm(f"{name}.ln_2", x, width), width))
    x = nodes.norm("ln_f", x, width)
    return nodes.model(
        [_ids("ids", sequence), _floats("previous", sequence, width)],
        [_ids("token", sequence), _floats(x, sequence, width)],
    )


def bert(n_layers: int, width: int, n_heads: int, sequence: int, masked: int, vocabulary: int = 30522) -> Any:
    """BERT in pretraining as a line: both heads first, which read `previous`, then the embedding and the blocks.

    The masked words are the first `masked` ones.
    """
    nodes = _Nodes()
    table = nodes.weight("words.weight", vocabulary, width)
    logits = nodes.dense("head.transform", nodes.first("head", "previous", masked), width, width)
    logits = nodes.norm("head.norm", nodes.add("head.Gelu", "Gelu", logits), width)
    across = nodes.add("head.Transpose", "Transpose", table, perm=(1, 0))
    logits = nodes.add("head.MatMul", "MatMul", logits, across)
    nodes.words("word", nodes.add("head.Add", "Add", logits, nodes.weight("head.bias", vocabulary)))
    pooled = nodes.dense("pooler", nodes.first("pooler", "previous", 1), width, width)
    nodes.words("follows", nodes.dense("next", nodes.add("pooler.Tanh", "Tanh", pooled), width, 2))
    x = nodes.add("words.Gather", "Gather", table, "ids")
    x = nodes.add(
        "types.Add", "Add", x, nodes.add("types.Gather", "Gather", nodes.weight("types.weight", 2, width), "types")
    )
    x = nodes.add("positions.Add", "Add", x, nodes.weight("positions.weight", sequence, width))
    x = nodes.norm("embedding.norm", x, width)
    for name in (f"h.{number}" for number in range(n_layers)):
        x = nodes.add(f"{name}.Add", "Add", x, nodes.self_attention(name, x, width, n_heads))
        x = nodes.norm(f"{name}.ln_1", x, width)
        x = nodes.norm(f"{name}.ln_2", nodes.add(f"{name}.Add_2", "Add", x, nodes.mlp(name, x, width)), width)
    return nodes.model(
        [_ids("ids", sequence), _ids("types", sequence), _floats("previous", sequence, width)],
        [_ids("word", masked), _ids("follows", 1), _floats(x, sequence, width)],
    )


def mt5(n_layers: int, width: int, inner: int, n_heads: int, sequence: int, vocabulary: int = 250112) -> Any:
    """mT5: an embedding that both halves read, "encoder.0.", ..., "decoder.0.", ..., and a separate head.

    Heads have a width of 64. The relative position biases, 192 weights a half, are left out.
    """
    nodes = _Nodes()
    table = nodes.weight("shared.weight", vocabulary, width)
    x, y = (nodes.add(f"shared.{ids}", "Gather", table, ids) for ids in ("ids", "labels"))

    def attend(name: str, target: str, source: str) -> str:
        parts = (("q", target), ("k", source), ("v", source))
        three = [nodes.product(f"{name}.{part}", of, width, 64 * n_heads) for part, of in parts]
        return nodes.product(f"{name}.o", nodes.attention(name, three, n_heads, 64), 64 * n_heads, width)

    def block(name: str, x: str, source: str = "") -> str:
        y = nodes.norm(f"{name}.norm", x, width, ("scale",))
        x = nodes.add(f"{name}.Add", "Add", x, attend(f"{name}.self", y, y))
        if source:
            y = nodes.norm(f"{name}.cross.norm", x, width, ("scale",))
            x = nodes.add(f"{name}.cross.Add", "Add", x, attend(f"{name}.cross", y, source))
        y = nodes.norm(f"{name}.wi.norm", x, width, ("scale",))
        gate = nodes.add(f"{name}.Gelu", "Gelu", nodes.product(f"{name}.wi_0", y, width, inner), approximate="tanh")
        y = nodes.add(f"{name}.Mul", "Mul", gate, nodes.product(f"{name}.wi_1", y, width, inner))
        return nodes.add(f"{name}.Add_2", "Add", x, nodes.product(f"{name}.wo", y, inner, width))

    for number in range(n_layers):
        x = block(f"encoder.{number}", x)
    x = nodes.norm("encoder.norm", x, width, ("scale",))
    for number in range(n_layers):
        y = block(f"decoder.{number}", y, x)
    nodes.words("word", nodes.product("head", nodes.norm("decoder.norm", y, width, ("scale",)), width, vocabulary))
    return nodes.model([_ids("ids", sequence), _ids("labels", sequence)], [_ids("word", sequence)])


FAMILIES: dict[str, Callable[..., Any]] = {"bert": bert, "gpt2": gpt2, "mt5": mt5}


def lines(row: Row) -> Iterator[str]:
    """One line a split."""
    configuration = f"{row['id']:36}{row['mode']:7}{row['n_ipu']:4}{row['batch_size']:6}{row['memory_proportion']:6}"
    theirs, ours = compare(row)
    yield f"{configuration}  Graphcore {_cells(theirs)}; published: {_fits(row['fits'])}"
    saved = "" if ours is None else f"; {100 * (1 - ours.cost_cycles / theirs.cost_cycles):.1f}% less"
    yield f"{'':{len(configuration)}}  ours      {'none fits' if ours is None else _cells(ours)}{saved}"


def _cells(split: Split) -> str:
    sizes = " ".join(str(stop - start) for start, stop in pairwise(split.partition))
    fullest = max(split.stage_bytes)
    memory = f"{format_bytes(fullest)} on IPU {split.stage_bytes.index(fullest)}"
    return f"{sizes:16}{split.cost_cycles:11,}  {_fits(split.fits)}, {memory}"


def _fits(fits: bool) -> str:
    return "fits" if fits else "does not fit"


def main(argv: Sequence[str] | None = None) -> int:
    """Print two lines a published configuration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", metavar="ID", help="compare only these configurations; default: all")
    args = parser.parse_args(argv)
    configurations = rows()
    ids = [row["id"] for row in configurations]
    unknown = sorted(set(args.rows or ()) - set(ids))
    if unknown:
        parser.error(f"--rows must name some of {ids}; got {unknown}")
    print(f"{'configuration':36}{'mode':6}{'IPUs':>5}{'batch':>6}{'p':>6}  {'split':10}{'layers':16}{'cycles':>11}")
    for row in configurations:
        if row["id"] in (args.rows or ids):
            print(*lines(row), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
