"""Options for a model on a cluster and its configuration: `add_configuration`, read by `requested_knobs`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from autoauto.cli.options.targets import add_target
from autoauto.cli.options.values import choices_of, integers, switches
from autoauto.cli.output.json_output import add_json
from autoauto.records.correction import Estimator
from autoauto.records.errors import BadInput
from autoauto.records.knobs import TRAINING_ORDERS, Knobs, SearchSpace
from autoauto.records.schedule import Order

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow

DEFAULT_MODEL = "resnet50"
DEFAULT_MEMORY_PROPORTION = 0.6
DEFAULT_MICRO_BATCHES = 16  # of a step of training; PopART needs 2 n_ipu - 1


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Add a model, a target, one configuration, and the choice between JSON and tables."""
    add_model(parser)
    add_knobs(parser)
    parser.add_argument("--replicas", type=int, default=1, metavar="N", help="pipelines side by side; default 1")
    add_json(parser)


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add a model, the target that it runs on, and how its costs are estimated."""
    parser.add_argument(
        "model",
        nargs="?",
        default=DEFAULT_MODEL,
        metavar="MODEL",
        help="a built-in model (see `autoauto models`) or an ONNX file; default %(default)s",
    )
    add_target(parser)
    _add_estimate(parser)
    parser.add_argument(
        "--overlap",
        action="store_true",
        help="devices transfer while they compute: a period is the larger of max compute and max transfer",
    )


def _add_estimate(parser: argparse.ArgumentParser) -> None:
    """Add how the costs of several layers are estimated, and the share of memory that a plan may use."""
    parser.add_argument(
        "--estimator",
        choices=[str(e) for e in Estimator],
        default=str(Estimator.REGRESSION),
        help="sum: the sum of the layers' costs, as in Graphcore's auto_pipeline; regression: the sum, corrected by a "
        "few ranges of layers compiled whole; default %(default)s",
    )
    parser.add_argument(
        "--planning-proportion",
        type=float,
        metavar="P",
        help="share of a device's memory that a planned stage may fill; default: all of it, compared with the upper "
        "bound of the stage's estimated memory, and 0.85 for plain sums",
    )


def add_knobs(parser: argparse.ArgumentParser) -> None:
    """Add one configuration."""
    parser.add_argument("--n-ipu", type=int, default=1, metavar="N", help="devices in the pipeline; default 1")
    add_micro_batch(parser)
    add_training(parser)


def add_micro_batch(parser: argparse.ArgumentParser) -> None:
    """Add the size of a micro-batch, and the bound on temporary memory."""
    parser.add_argument(
        "--memory-proportion",
        type=float,
        metavar="P",
        help="bound on the temporary memory of a matmul or convolution, as a share of a tile; on the host part of a "
        f"device's memory; default {DEFAULT_MEMORY_PROPORTION}, or 1.0 on the host",
    )
    parser.add_argument("--batch-size", type=int, default=1, metavar="B", help="samples in a micro-batch; default 1")


def add_training(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """Add whether to train and how; with `several`, the values that a search tries."""
    names, more = ", ".join(TRAINING_ORDERS), "; several with commas" if several else ""
    parser.add_argument("--mode", choices=["inference", "training"], default="inference", help="default %(default)s")
    parser.add_argument(
        "--schedule",
        type=choices_of(TRAINING_ORDERS),
        metavar="NAME",
        help=f"the order to train in: {names}; default {TRAINING_ORDERS[0]}{more}",
    )
    parser.add_argument(
        "--recompute",
        type=switches,
        nargs="?",
        const=(True,),
        metavar="on|off",
        help=f"stash only the inputs of stages, and run forward again for the backward; default off{more}",
    )
    parser.add_argument(
        "--n-micro-batches",
        type=integers,
        metavar="M",
        help=f"micro-batches of a step of training; default {DEFAULT_MICRO_BATCHES}{more}",
    )


def requested_knobs(args: argparse.Namespace, flow: Flow, replicas: int = 1) -> Knobs:
    """The configuration of the arguments.

    Raises:
        BadInput: several configurations, or one that the model or the cluster does not allow.
    """
    default = DEFAULT_MEMORY_PROPORTION if flow.runner is None else 1.0
    proportion = default if args.memory_proportion is None else args.memory_proportion
    knobs = ((args.n_ipu,), (proportion,), (args.batch_size,))
    space = SearchSpace(*knobs, *training_values(args), replicas=(replicas,))
    if space.n_configurations > 1:
        raise BadInput("one configuration has one schedule, recompute and n_micro_batches, got several; try search")
    flow.check(space)
    return space.cells[0][0]


def training_values(args: argparse.Namespace) -> tuple[tuple[Order, ...], tuple[bool, ...], tuple[int, ...]]:
    """The schedules, recompute switches and counts of micro-batches of the arguments.

    Raises:
        BadInput: they are given without --mode training.
    """
    given = [name for name in ("schedule", "recompute", "n_micro_batches") if getattr(args, name) is not None]
    if args.mode == "training":
        return (
            args.schedule or (TRAINING_ORDERS[0],),
            args.recompute or (False,),
            args.n_micro_batches or (DEFAULT_MICRO_BATCHES,),
        )
    if given:
        raise BadInput(f"only training has {', '.join(given)}, got --mode inference; try --mode training")
    return (Order.INFERENCE,), (False,), (1,)
