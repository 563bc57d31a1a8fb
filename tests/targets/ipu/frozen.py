"""The numbers of the cost model of the IPU as they are: `python -m tests.targets.ipu.frozen` writes them anew.

Two tables lie beside this file. `frozen_operators.json` has the costs of every operator alone,
`frozen_configurations.json` the programs of whole models and of parts of them. Tests compare each entry, so a change of
the model must be meant: then the command writes both files, and the difference shows what it changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import onnx

from autoauto.evaluate.open import load_flow
from autoauto.graph.load import load_graph
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import CompiledRange, Optimizer, OptimizerState, WeightUpdate
from autoauto.records.errors import AutoautoError
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange
from autoauto.records.schedule import Order
from autoauto.records.units import Precision
from autoauto.space.knobs import Knobs
from autoauto.targets.ipu.operator_cost import OperatorContext, OperatorCost
from autoauto.targets.ipu.operators import quantised
from autoauto.targets.ipu.operators.backward import weight_update_cycles
from autoauto.targets.ipu.operators.registry import COST_RULES, forward_cost
from autoauto.targets.ipu.session import IpuSession
from autoauto.targets.ipu.target import IpuTarget
from tests.targets.ipu.conftest import EXAMPLES, IMAGE, OTHER, Example, Node, make_graph

OPERATORS = Path(__file__).with_name("frozen_operators.json")
CONFIGURATIONS = Path(__file__).with_name("frozen_configurations.json")
DEVICE = Device("c600", 1.5e9, 900 * 1024**2, 1472, 638976)
MORE_EXAMPLES: dict[str, tuple[str, Example]] = {
    "Concat of weights": ("Concat", (["x:1x8x16", (4, 16)], (1, 12, 16), {"axis": 1})),
    "Conv 1x1": ("Conv", (["x:1x64x28x28", (128, 64, 1, 1)], (1, 128, 28, 28), {})),
    "Conv of groups": ("Conv", (["x:1x64x28x28", (64, 4, 3, 3)], (1, 64, 28, 28), {"group": 16})),
    "Conv with strides": ("Conv", (["x:1x3x224x224", (64, 3, 7, 7)], (1, 64, 112, 112), {"strides": (2, 2)})),
    "Gather of channels": ("Gather", (["x:1x64x100", (5,)], (1, 64, 5), {"axis": 2})),
    "Gather of words": ("Gather", ([(1000, 768), "x:1x128"], (1, 128, 768), {"axis": 0})),
    "GatherElements of columns": ("GatherElements", (["x:1x64x100", "x:1x64x10"], (1, 64, 10), {"axis": 2})),
    "LSTM both ways": (
        "LSTM",
        (["x:7x1x40", (2, 128, 40), (2, 128, 32)], (7, 2, 1, 32), {"direction": "bidirectional"}),
    ),
    "LayerNormalization of tokens": ("LayerNormalization", (["x:1x128x768", (768,), (768,)], (1, 128, 768), {})),
    "MatMul of activations": ("MatMul", (["x:1x12x197x64", "x:1x12x64x197"], (1, 12, 197, 197), {})),
    "MaxPool 3x3": ("MaxPool", (["x:1x64x112x112"], (1, 64, 56, 56), {"kernel_shape": (3, 3), "strides": (2, 2)})),
    "MaxPool of all": ("MaxPool", ([IMAGE], (1, 32, 1, 1), {"kernel_shape": (28, 28)})),
    "ReduceSum of rows": ("ReduceSum", (["x:1x128x768"], (1, 128, 1), {"axes": (2,)})),
    "Scatter": ("ScatterND", (["x:1x64x100", "x:1x8x1", "x:1x8x64x100"], (1, 64, 100), {})),
    "Slice of a column": ("Slice", (["x:1x64x100"], (1, 64, 10), {})),
    "Softmax of rows": ("Softmax", (["x:1x12x197x197"], (1, 12, 197, 197), {"axis": -1})),
    "TopK of 1000": ("TopK", (["x:1x1000", (1,)], (1, 10), {"axis": -1})),
    "Transpose of heads": ("Transpose", (["x:1x128x12x64"], (1, 12, 128, 64), {"perm": (0, 2, 1, 3)})),
    "no rule": ("NoSuchOperator", ([IMAGE, OTHER], (1, 32, 28, 28), {})),
}
CONTROL_FLOW = {
    "If": """<ir_version: 8, opset_import: ["": 17]> m (float[N, 400] x, bool[1] c) => (float[N, 400] y) {
        y = If (c) <then_branch = t () => (float[N, 400] a) { a = Mul(x, x) },
                    else_branch = e () => (float[N, 400] b) { s = Sigmoid(x) q = Sqrt(s) b = Add(q, x) }> }""",
    "If of copies": """<ir_version: 8, opset_import: ["": 17]> m (float[N, 400] x, bool[1] c) => (float[N, 400] y) {
        y = If (c) <then_branch = t () => (float[N, 400] a) { a = Identity(x) },
                    else_branch = e () => (float[N, 400] b) { b = Identity(x) }> }""",
    "Loop": """<ir_version: 8, opset_import: ["": 17]> m (float[N, 400] x) => (float[N, 400] y, float[5, N, 400] all) {
        n = Constant <value = int64 {5}> () go = Constant <value = bool {1}> ()
        y, all = Loop (n, go, x) <body = b (int64 i, bool g, float[N, 400] s)
            => (bool h, float[N, 400] next, float[N, 400] added) {
            h = Identity(g) next = Add(s, x) added = Exp(next) }> }""",
    "Scan": """<ir_version: 8, opset_import: ["": 17]> m (float[7, N, 400] x, float[N, 400] z)
        => (float[N, 400] y, float[7, N, 400] all) {
        y, all = Scan <num_scan_inputs = 1, body = b (float[N, 400] s, float[N, 400] e)
            => (float[N, 400] next, float[N, 400] out) { next = Add(s, e) out = Relu(next) }> (z, x) }""",
}


class Configuration(NamedTuple):
    """A model on a cluster, and the settings; `is_slow` where it takes long."""

    model: str
    cluster: str
    precision: str
    settings: dict[str, object]
    is_slow: bool = False

    @property
    def name(self) -> str:
        """It and all settings."""
        return " ".join((self.model, self.cluster, self.precision, *(f"{k}={v}" for k, v in self.settings.items())))


def _configurations() -> Iterator[Configuration]:
    """More than a hundred: models, devices, batch sizes and modes."""
    for model, batch_size in product(("resnet50", "vit-b16", "gpt2-small", "bert-base-128"), (1, 2, 3, 16)):
        for cluster, precision in (("c600", "fp16"), ("m2000", "fp32"), ("c600", "fp8")):
            yield Configuration(model, cluster, precision, {"batch_size": batch_size}, model == "vit-b16")
    for model, n_ipu, batch_size in product(("resnet50", "bert-base-128", "bert-large-128"), (2, 4), (1, 8)):
        cuts = {"n_ipu": n_ipu, "batch_size": batch_size}
        for more in ({}, {"memory_proportion": 0.05}, {"io_tiles": 64}):
            yield Configuration(model, "bow-pod16", "fp16", {**cuts, **more}, model != "resnet50")
    for model, (order, recompute) in product(("resnet50-train", "bert-base-128-mlm", "vit-b16-train"), _ORDERS):
        pipeline = {"n_ipu": 2, "batch_size": 2, "n_micro_batches": 8, "schedule": order, "recompute": recompute}
        for optimizer in _OPTIMIZERS if order is Order.POPART else _OPTIMIZERS[:1]:
            is_slow = model != "resnet50-train" or order is not Order.POPART
            yield Configuration(model, "bow-pod16", "fp16", {**pipeline, **optimizer}, is_slow)


_ORDERS = ((Order.POPART, False), (Order.POPART, True), (Order.GPIPE, True), (Order.ONE_F_ONE_B, False))
_OPTIMIZERS: tuple[dict[str, object], ...] = (
    {"optimizer": Optimizer.MOMENTUM},
    {"optimizer": Optimizer.ADAM, "replicas": 4, "shard_optimizer": True, "optimizer_state": OptimizerState.ON_CHIP},
    {"optimizer": Optimizer.LAMB, "replicas": 4, "optimizer_state": OptimizerState.STREAMING_SHARDED},
)
ALL_CONFIGURATIONS = tuple(_configurations())


_FORWARD = ((3, Precision.FP16, 0.6), (3, Precision.FP32, 0.6), (3, Precision.FP8, 0.6), (64, Precision.FP16, 0.02))


def operator_lines() -> Iterator[tuple[str, list[object]]]:
    """Every operator and its numbers."""
    alike = {op: (op, EXAMPLES.get(op, ([IMAGE, OTHER, IMAGE], (1, 32, 28, 28), {}))) for op in COST_RULES}
    for name, (op, example) in {**alike, **MORE_EXAMPLES}.items():
        operands, shape, attributes = example
        node = Node(op, operands, shape, op, **attributes)
        yield name, _of_graph(make_graph([node]), make_graph(_with_parameters(node)))
    for name, text in CONTROL_FLOW.items():
        graph = load_graph(onnx.parser.parse_model(text))
        yield name, _of_graph(graph, graph)


def _with_parameters(node: Node) -> list[Node]:
    """The layer behind others that add a weight to each of its inputs, which so has a gradient."""
    inputs = dict.fromkeys(name for name in node.operands if isinstance(name, str) and name.startswith("x:"))
    shapes = {name: tuple(map(int, name[2:].split("x"))) for name in inputs}
    before = [Node("Add", [name, shape[1:] or (2,)], shape, f"plus {name}") for name, shape in shapes.items()]
    operands = [f"plus {name}" if name in shapes else name for name in node.operands]
    return [*before, Node(node.op, operands, node.shape, node.name, **dict(node.attributes))]


def configuration_line(configuration: Configuration) -> list[object]:
    """The numbers of one configuration: of the plan by the estimate, and of that plan compiled."""
    knobs = Knobs(**{"n_ipu": 1, **configuration.settings})  # type: ignore[arg-type]
    flow = load_flow(load_graph(configuration.model), configuration.cluster, precision=configuration.precision)
    try:
        plan = flow.predict(knobs)
        measured = flow.measure(knobs, plan).plan
    except AutoautoError as error:
        return [type(error).__name__]
    numbers = [
        (each.cost_cycles, each.transfer_cycles, each.peak_memory_bytes, round(flow.samples_per_s(knobs, each), 3))
        for each in (plan, measured)
    ]
    return [list(plan.partition), *map(list, numbers)]


def _of_graph(graph: LayerGraph, trained: LayerGraph) -> list[object]:
    """The costs of the last layer in every format and with little memory, and of layers compiled for training.

    Operators on integers have no gradients. And the cycles in which each optimizer updates the weights.
    """
    numbers: list[object] = []
    for n, precision, proportion in _FORWARD:
        options = CompileOptions(n, precision, session=IpuSession(proportion))
        numbers.append(_of_cost(forward_cost(OperatorContext(graph, graph.layers[-1], DEVICE, options))))
    is_trained = graph.layers[-1].op not in quantised.COST_RULES
    options = CompileOptions(3, Precision.FP16, is_trained, IpuSession(0.2))
    numbers.append(_of_program(IpuTarget().compile(trained, LayerRange(0, len(trained)), DEVICE, options)))
    updates = [WeightUpdate(optimizer, master_weights=True, n_shards=2) for optimizer in Optimizer]
    return [*numbers, [sum(weight_update_cycles(trained, DEVICE, options, update)) for update in updates]]


def _of_cost(cost: OperatorCost) -> list[int]:
    relayout_cycles = sum(relayout.cycles for relayout in cost.relayouts)
    tiles = cost.n_tiles, cost.n_sources, cost.working_bytes, len(cost.codelets)
    return [cost.exchange_cycles, cost.compute_cycles, relayout_cycles, *tiles]


def _of_program(program: CompiledRange) -> list[int]:
    shared_bytes, exclusive_bytes = (sum(part.values()) for part in (program.shared, program.exclusive))
    return [
        sum(step.cycles for step in program.steps),
        program.backward_cycles,
        program.weight_cycles,
        program.last_segment_cycles,
        shared_bytes,
        exclusive_bytes,
        program.activation_bytes,
        program.backward_temporary_bytes,
        program.checkpoint_bytes,
        program.recompute_temporary_bytes,
        max(step.temporary_bytes for step in program.steps),
    ]


def _write(path: Path, lines: Iterator[tuple[str, list[object]]]) -> None:
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(numbers, separators=(',', ':'))}" for name, numbers in lines)
    path.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    _write(OPERATORS, operator_lines())
    _write(CONFIGURATIONS, ((each.name, configuration_line(each)) for each in ALL_CONFIGURATIONS))
