"""Every node test that the onnx package ships, read and priced: `python studies/node_tests.py [--list]`.

A test is a model of one operator, or of the function that defines it. Many make an input of what is a constant in every
exported model (axes, pads, shapes): where shapes cannot be known without, such inputs get the values of the test.
`--list` prints a line a test. The exit status is 1 when one ends in anything but a price or a refusal of one line.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from autoauto.graph.load import load_graph
from autoauto.records.costs.options import CompileOptions
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerRange
from autoauto.records.units import Precision
from autoauto.targets.clusters import load_cluster
from autoauto.targets.ipu.operators.registry import default_notes
from autoauto.targets.ipu.target import IpuTarget

SMALL = 1 << 10  # elements of an input that may be a constant


class Outcome(StrEnum):
    """What came of a test."""

    PRICED = "priced"
    DEFAULT = "priced as elementwise"
    FOLDED = "nothing to compute"
    REFUSED = "refused"
    FAILED = "failed"


class Result(NamedTuple):
    """A test, its operator, what came of it, and why."""

    name: str
    op: str
    outcome: Outcome
    reason: str = ""


def node_tests() -> list[Any]:
    """The tests of the onnx package that have a model."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tests compute logarithms of zero, and casts that overflow
        return [test for test in collect_testcases(None) if test.model is not None]


def results(tests: Iterable[Any]) -> Iterator[Result]:
    """Read and price tests."""
    device = load_cluster("c600").devices[0]
    for test in tests:
        yield _result(test, device)


def _result(test: Any, device: Device) -> Result:
    op = _operator(test.name, test.model)
    try:
        outcome, reason = _price(test.model, device)
        if reason.startswith("every shape must be known"):
            outcome, reason = _price(_with_constants(test), device)
    except Exception as error:  # noqa: BLE001 a traceback is what this study looks for
        return Result(test.name, op, Outcome.FAILED, f"{type(error).__name__}: {error}")
    if "\n" in reason:
        return Result(test.name, op, Outcome.FAILED, f"a refusal of several lines: {reason}")
    return Result(test.name, op, outcome, reason)


def _operator(name: str, model: onnx.ModelProto) -> str:
    """The operator of a test; of the body of a function the name of the function."""
    if not name.endswith("_expanded") and len(model.graph.node) == 1:
        return str(model.graph.node[0].op_type)
    return name.removeprefix("test_").removesuffix("_expanded")


def _price(model: onnx.ModelProto, device: Device) -> tuple[Outcome, str]:
    try:
        graph = load_graph(model)
    except BadInput as error:
        folded = "computes something" in str(error)
        return (Outcome.FOLDED, "") if folded else (Outcome.REFUSED, str(error))
    IpuTarget().compile(graph, LayerRange(0, len(graph)), device, CompileOptions(1, Precision.FP16))
    notes = default_notes(graph)
    return (Outcome.DEFAULT, notes[0]) if notes else (Outcome.PRICED, "")


def _with_constants(test: Any) -> onnx.ModelProto:
    """The model of a test with the small inputs behind the first as constants; the first, too, if it is a scalar."""
    model = onnx.ModelProto()
    model.CopyFrom(test.model)
    values = dict(zip((entry.name for entry in model.graph.input), test.data_sets[0][0], strict=False))
    is_scalar = any(np.ndim(value) == 0 for value in list(values.values())[:1])
    for entry in list(model.graph.input)[0 if len(values) == 1 or is_scalar else 1 :]:
        value = values[entry.name]
        if hasattr(value, "dtype") and value.size <= SMALL:
            model.graph.initializer.append(numpy_helper.from_array(value, entry.name))
            model.graph.input.remove(entry)
    return model


def print_results(tested: Sequence[Result]) -> None:
    """How many tests came to what, the operators priced by default, and those of which every test is refused."""
    counts = Counter(result.outcome for result in tested)
    print(", ".join(f"{outcome} {counts[outcome]:,}" for outcome in Outcome), f"of {len(tested):,} tests")
    by_operator: dict[str, set[Outcome]] = defaultdict(set)
    reasons: dict[str, str] = {}
    for result in tested:
        if not result.name.endswith("_expanded"):
            by_operator[result.op].add(result.outcome)
            reasons[result.op] = result.reason
    default = sorted(op for op, outcomes in by_operator.items() if Outcome.DEFAULT in outcomes)
    print(f"priced as elementwise: {', '.join(default)}")
    print("refused, all tests of an operator:")
    for op in sorted(op for op, outcomes in by_operator.items() if outcomes == {Outcome.REFUSED}):
        print(f"  {op}: {reasons[op]}")


def main(argv: Sequence[str] | None = None) -> int:
    """Print what came of all tests."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print a line a test")
    args = parser.parse_args(argv)
    tested = list(results(node_tests()))
    if args.list:
        for result in tested:
            print(f"{result.name:60}{result.outcome:24}{result.reason}".rstrip())
    print_results(tested)
    failed = [result for result in tested if result.outcome is Outcome.FAILED]
    for result in failed:
        print(f"{result.name}: {result.reason}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
