"""Modelled cycles of every operator over what it takes at least: `python studies/operator_table.py [MODEL ...]`.

Without MODEL: all cases of `operator_cases.py` and `contrib_cases.py`. With MODEL, files or built-in names: what share
of the cycles each operator of a model takes, and its layer that is most above its bound. Bounds and classes:
`operator_bounds.py`.
`--above N` leaves out what takes less than N times its bound. The exit status is 1 when a layer is above its class.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoauto.graph.load import load_graph
from autoauto.records.costs.options import CompileOptions
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph
from autoauto.records.units import Precision
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.entry import IPU
from autoauto.targets.ipu.operator_cost import OperatorContext
from autoauto.targets.ipu.operators.registry import default_notes, forward_cost
from studies import contrib_cases
from studies.operator_bounds import CLASSES, Bound, bound_of, class_of, step_cycles
from studies.operator_cases import CASES, Case

EXPLAINED = 30  # times the bound, above which a ratio has a reason


class Row(NamedTuple):
    """One layer: operator and class, its cycles without relayouts, its bound, and cycles of the steps it may take."""

    op: str
    name: str
    class_name: str
    cycles: int
    bound: Bound
    step_cycles: int

    @property
    def ratio(self) -> float:
        """How many times the bound."""
        return self.cycles / self.bound.cycles

    @property
    def allowed(self) -> float:
        """The most cycles by its class."""
        return CLASSES[self.class_name].ratio * self.bound.cycles + self.step_cycles

    @property
    def why(self) -> str:
        """Why the ratio is above 30: steps, which take as long for small tensors, or what `CLASSES` says."""
        if self.ratio <= EXPLAINED:
            return ""
        return "steps" if self.cycles - self.step_cycles <= EXPLAINED * self.bound.cycles else "class"


def rows_of(graph: LayerGraph, device: Device, options: CompileOptions, name: str = "") -> Iterator[Row]:
    """A row for every layer of a model."""
    for layer in graph.layers:
        context = OperatorContext(graph, layer, device, options)
        cost = forward_cost(context)
        class_name = class_of(context, cost)
        steps = step_cycles(context, CLASSES[class_name])
        yield Row(layer.op, name or layer.name, class_name, cost.cycles, bound_of(context, cost), steps)


def rows_of_case(case: Case, device: Device, precision: Precision) -> list[Row]:
    """The rows of a case; none for a view, which costs nothing."""
    model = case.model()
    try:
        graph = load_graph(model)
    except BadInput as error:
        if "computes something" in str(error):
            return []
        raise
    fixed = {entry.name: entry.type.tensor_type.shape.dim for entry in model.graph.input}
    batches = {
        fixed[tensor.name][tensor.batch_axis].dim_value // tensor.shape[tensor.batch_axis]
        for tensor in graph.tensors
        if tensor.batch_axis is not None and tensor.name in fixed
    }
    options = CompileOptions(max(batches, default=1), precision)
    return list(rows_of(graph, device, options, case.operands))


def print_cases(rows: Sequence[Row]) -> None:
    """A line a row."""
    columns = f"{'cycles':>11}{'bytes':>9}{'compute':>9}{'ratio':>9}{'of limit':>9}"
    print(f"{'operator':34}{'operands':44}{'class':12}{columns}  why")
    for row in rows:
        share = 100 * row.cycles / row.allowed
        cells = f"{row.cycles:11,}{row.bound.bytes_cycles:9,.0f}{row.bound.arithmetic_cycles:9,.0f}{row.ratio:9.1f}"
        print(f"{row.op:34}{row.name[:42]:44}{row.class_name:12}{cells}{share:7.0f} %  {row.why}".rstrip())


def print_classes(rows: Sequence[Row]) -> None:
    """What every class may take and why, the row nearest to its limit, and how many rows need a reason."""
    for name, limit in CLASSES.items():
        if alike := [row for row in rows if row.class_name == name]:
            nearest = max(alike, key=lambda row: row.cycles / row.allowed)
            share = f"{100 * nearest.cycles / nearest.allowed:.0f} % by {nearest.op}"
            print(f"{name:12}{limit.ratio:3g} x bound + {limit.n_steps:2} steps, reached {share}")
            if limit.reason:
                print(f"{'':12}{limit.reason}")
    whys = [row.why for row in rows]
    above = f"{whys.count('steps')} by steps, {whys.count('class')} as their class says"
    print(f"{len(rows)} cases of {len({row.op for row in rows})} operators; above 30 times the bound: {above}")


def print_model(graph: LayerGraph, rows: Sequence[Row]) -> None:
    """A line an operator: its layers, its share of the cycles, its layer nearest to the limit of its class."""
    total = sum(row.cycles for row in rows)
    by_operator: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_operator[row.op].append(row)
    print(f"{graph.name}: {len(graph):,} layers, {total:,} cycles")
    for note in default_notes(graph):
        print(note)
    print(f"{'operator':22}{'layers':>7}{'cycles':>9}{'ratio':>9}{'of limit':>9}")
    for op, alike in sorted(by_operator.items(), key=lambda entry: -sum(row.cycles for row in entry[1])):
        worst = max(alike, key=lambda row: row.cycles / row.allowed)
        share = 100 * sum(row.cycles for row in alike) / total
        print(f"{op:22}{len(alike):7}{share:7.1f} %{worst.ratio:9.1f}{100 * worst.cycles / worst.allowed:7.0f} %")
    print()


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of all cases, or the shares of models."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--above", type=float, default=0.0, metavar="N", help="only what takes N times its bound")
    parser.add_argument("--batch-size", type=int, default=1, metavar="N", help="samples of a MODEL; default 1")
    parser.add_argument("--precision", choices=list(map(str, IPU.precisions)), default="fp16")
    args = parser.parse_args(argv)
    device, precision = load_cluster("c600").devices[0], Precision(args.precision)
    if not args.models:
        rows = [row for case in (*CASES, *contrib_cases.CASES) for row in rows_of_case(case, device, precision)]
        print_cases([row for row in rows if row.ratio >= args.above])
        print()
        print_classes(rows)
    else:
        rows = []
        for model in args.models:
            graph = load_graph(model)
            rows_of_model = list(rows_of(graph, device, CompileOptions(args.batch_size, precision)))
            print_model(graph, rows_of_model)
            rows += rows_of_model
    excess = [row for row in rows if row.cycles > row.allowed]
    for row in excess:
        print(f"above its class: {row.op} {row.name}: {row.cycles:,} cycles, allowed {row.allowed:,.0f}")
    return 1 if excess else 0


if __name__ == "__main__":
    sys.exit(main())
