"""Show what a model file needs, and what can run it.

Inputs, open axes, operators, assumptions, a command to start.
"""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from autoauto.cli.options.model import add_inputs
from autoauto.cli.output.lines import add_json, print_assumed, print_json, print_line, show, show_command
from autoauto.records.errors import BadInput
from autoauto.records.installation import install_command
from autoauto.records.layers import AS_IN_FILE, ModelInputs
from autoauto.records.model_inputs import read_model_inputs
from autoauto.report.wording import decoder_lines

EXAMPLE = "inspect resnet50"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a model, what is said of its inputs, and whether runtimes of this machine are asked."""
    parser.add_argument(
        "model", metavar="MODEL", help="a built-in model (see `autoauto models`), an ONNX file, or a GGUF file"
    )
    add_inputs(parser)
    parser.add_argument("--no-run", action="store_true", help="ask no runtime of this machine to run it")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print what the file says, what was assumed, and the command to start with."""
    from autoauto.evaluate.inspections.inspection import command_to_start, inspect_model
    from autoauto.graph.decoders.gguf import is_gguf
    from autoauto.report.tables.listings import ends_table, operators_table

    given = read_model_inputs(args.shape, args.batch_axis, args.state)
    if is_gguf(args.model):
        return _run_of_decoder(args, given)
    inspection = inspect_model(args.model, given, runs=not args.no_run)
    command = shlex.join(command_to_start(args.model, inspection))
    if args.json:
        print_json(_describe(inspection) | {"command": command})
        return 0
    graph = inspection.graph
    print_line(f"{graph.name}: {len(graph)} layers, batch size {'1 only' if graph.fixed_batch else 'open'}")
    if graph.fixed_batch:
        print_line(f"batch size 1 only: {graph.fixed_batch}")
    show("", ends_table(inspection.inputs, inspection.outputs), operators_table(inspection.operators))
    for answer in inspection.runtimes:
        print_line(f"{answer.name}: {answer.reason or 'runs it'}")
    if not inspection.runtimes and not args.no_run:
        print_line(f"host: no runtime is installed; try {install_command('host')}")
    if inspection.offered:
        lengths = "; ".join([", ".join(inspection.offered), *inspection.counts])
        print_line(f"lengths that nobody gave, sensible ones instead: {lengths}")
    print_assumed(inspection.notes)
    show_command("start with", command)
    return 0


def _run_of_decoder(args: argparse.Namespace, given: ModelInputs) -> int:
    from autoauto.evaluate.inspections.inspection import inspect_decoder

    if given != AS_IN_FILE:
        raise BadInput("the inputs of a GGUF file are tokens, got --shape, --batch-axis or --state; leave them out")
    inspection = inspect_decoder(args.model, runs=not args.no_run)
    command = shlex.join(inspection.command)
    if args.json:
        print_json(inspection.to_json() | {"command": command})
        return 0
    for line in decoder_lines(inspection.file):
        print_line(line)
    if inspection.answer is not None:
        print_line(f"llamacpp: {inspection.answer or 'serves it'}")
    show_command("start with", command)
    return 0


def _describe(inspection: Any) -> dict[str, Any]:
    return {
        "model": inspection.graph.name,
        "n_layers": len(inspection.graph),
        "fixed_batch": inspection.graph.fixed_batch,
        "inputs": [end._asdict() for end in inspection.inputs],
        "outputs": [end._asdict() for end in inspection.outputs],
        "operators": [use._asdict() for use in inspection.operators],
        "offered": list(inspection.offered),
        "counts": list(inspection.counts),
        "assumed": list(inspection.notes),
        "runtimes": [answer._asdict() for answer in inspection.runtimes],
    }
