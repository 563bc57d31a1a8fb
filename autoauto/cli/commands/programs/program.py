"""Run a program of the source documents on a small input.

batch-serialisation: the loops of a model in phases [popxl-phased]; phased-training: a network learns in a process with
less memory than its weights [popxl-mnist]; sharded-engine: a line of processes multiplies matrices [sharding-book].
PopART's pipeline is shown by `autoauto schedule --schedule popart --program`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from autoauto.cli.options.values import at_most
from autoauto.cli.output.lines import print_line, warn
from autoauto.programs.batch_serialisation.program import LoopStep
from autoauto.records.errors import BadInput, OutOfMemory
from autoauto.records.plans.phased import IoMode, PhasedOptions
from autoauto.records.units import format_bytes
from autoauto.space.knobs import Knobs
from autoauto.space.modes.phased import Phased

EXAMPLE = "program phased-training data/samples/digits.csv.gz"
N_HIDDEN = 512
"""Width of the layers of both networks."""
BUDGET_BYTES = 6 * 2**20
"""What phased training may allocate: less than the 6.5 MiB of the weights and of Adam's averages for 64 inputs."""
BATCH_SIZE = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the program, its input, and how long it runs."""
    parser.add_argument("name", choices=tuple(PROGRAMS), metavar="NAME", help=f"one of {', '.join(PROGRAMS)}")
    parser.add_argument(
        "input",
        metavar="INPUT",
        help="batch-serialisation: a built-in model or an ONNX file; others: a CSV file of samples, a row of numbers "
        "and a label each",
    )
    parser.add_argument(
        "--steps", type=at_most(1000), default=4, metavar="N", help="micro-batches of a loop; default %(default)s"
    )
    parser.add_argument(
        "--devices", type=at_most(8), default=4, metavar="N", help="of the sharded engine; default %(default)s"
    )
    parser.add_argument(
        "--updates", type=at_most(1000), default=20, metavar="N", help="steps of phased training; default %(default)s"
    )


def run(args: argparse.Namespace) -> int:
    """Run the program, and print what it shows."""
    for line in PROGRAMS[args.name](args):
        print_line(line)
    return 0


def _batch_serialisation(args: argparse.Namespace) -> Iterator[str]:
    """The calls of all loops, and which tensors each moves from and to which entries of buffers."""
    from autoauto.evaluate.open import load_flow
    from autoauto.programs.batch_serialisation.loops import phased_program

    knobs = Knobs(1, BATCH_SIZE, mode=Phased(args.steps))
    plan = load_flow(args.input).phases.plan(knobs, PhasedOptions(args.steps, IoMode.IO_OVERLAPPED))
    if plan.warning:
        warn(f"warning: {plan.warning}")
    program = phased_program(plan)
    yield f"calls: {' '.join(map(str, program.calls))}"
    for call in program.calls:
        yield str(call)
        for group in program.loops[call.loop].call(call.row):
            yield "  " + " | ".join(_step_text(step) for step in group)


def _step_text(step: LoopStep) -> str:
    """A step of a loop and the entries of buffers that it moves, such as "load 1: x[1]"."""
    moved = []
    for move in step.moves:
        entry = "" if move.entry is None else f"[{move.entry}]"
        moved.append(f"{move.location}{entry}")
    return f"{step.op}: {', '.join(moved)}" if moved else str(step.op)


def _phased_training(args: argparse.Namespace) -> Iterator[str]:
    """The network trained whole and in phases under the same budget, and the loss of its first and last update."""
    from autoauto.programs.phased_training.network import Network, read_samples
    from autoauto.programs.phased_training.training import UpdateLoop, train_phased, train_whole

    samples = read_samples(Path(args.input))
    n_inputs, n_classes = samples.inputs.shape[1], int(samples.labels.max()) + 1
    network = Network(N_HIDDEN, args.steps, n_inputs=n_inputs, n_classes=n_classes)
    yield f"weights and optimizer: {format_bytes(network.trained_bytes)}, budget: {format_bytes(BUDGET_BYTES)}"
    try:
        train_whole(network, samples, args.updates, BUDGET_BYTES)
        yield "whole network: fits the budget"
    except OutOfMemory:
        yield "whole network: does not fit the budget"
    yield f"phases: {' '.join(map(str, network.calls))}"
    trained = train_phased(network, samples, args.updates, UpdateLoop(), BUDGET_BYTES).result
    loss = trained.losses.mean(axis=1)
    yield f"loss: {loss[0]:.2f} in the first, {loss[-1]:.2f} in the last of {args.updates} updates, measured"
    loaded, stored = format_bytes(trained.loads.n_bytes), format_bytes(trained.stores.n_bytes)
    yield f"streaming memory: {loaded} loaded, {stored} stored"


def _sharded_engine(args: argparse.Namespace) -> Iterator[str]:
    """Lines on what every device sent, received and computed, and whether outputs equal those of one device."""
    import numpy as np

    from autoauto.programs.phased_training.network import read_samples
    from autoauto.programs.sharded_engine.matrix_pipeline import PipeliningInferenceOnly, SingleDevice, random_weights
    from autoauto.programs.sharded_engine.run import run_sharded

    samples = read_samples(Path(args.input))
    n_inputs = samples.inputs.shape[1]
    n_batches = min(args.steps, len(samples.inputs) // BATCH_SIZE)
    if not n_batches:
        raise BadInput(f"{args.input}: a batch has {BATCH_SIZE} samples, got {len(samples.inputs)} in all")
    batches = np.split(samples.inputs[: n_batches * BATCH_SIZE], n_batches)
    weights = random_weights(n_inputs, N_HIDDEN, args.devices)
    run = run_sharded(PipeliningInferenceOnly, args.devices, weights, batches, n_inputs, N_HIDDEN)
    yield from run.rows()
    one_device = SingleDevice(n_inputs, N_HIDDEN, args.devices)
    one_device.load_checkpoint(weights)
    is_same = all(np.array_equal(one_device.forward(x), y) for x, y in zip(batches, run.outputs, strict=True))
    yield f"outputs of {n_batches} batches are those of one device: {'yes' if is_same else 'no'}"


PROGRAMS: Mapping[str, Callable[[argparse.Namespace], Iterator[str]]] = {
    "batch-serialisation": _batch_serialisation,
    "phased-training": _phased_training,
    "sharded-engine": _sharded_engine,
}
"""The lines that each program prints, by its name."""
