"""What several commands take: a model on a cluster, one configuration, a study."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from autoauto.cli.options.numbers import integers
from autoauto.cli.options.targets import add_target
from autoauto.records.correction import Estimator
from autoauto.records.errors import BadInput
from autoauto.records.knobs import TRAINING_ORDERS, Aim, Knobs, SearchSpace, aim_of
from autoauto.records.schedule import Order

if TYPE_CHECKING:
    from optuna.study import Study

    from autoauto.evaluate.flow import Flow

Choice = TypeVar("Choice", bound=StrEnum)

DEFAULT_MODEL = "resnet50"
DEFAULT_STORAGE = "sqlite:///studies/autoauto.db"
DEFAULT_MEMORY_PROPORTION = 0.6
DEFAULT_MICRO_BATCHES = 16  # of a step of training; PopART needs 2 n_ipu - 1


def add_model(parser: argparse.ArgumentParser) -> None:
    """Take a model and where it runs."""
    parser.add_argument(
        "model",
        nargs="?",
        default=DEFAULT_MODEL,
        metavar="MODEL",
        help="a built-in model (see `autoauto models`) or an ONNX file; default %(default)s",
    )
    add_target(parser)
    add_estimate(parser)
    parser.add_argument(
        "--overlap",
        action="store_true",
        help="devices transfer while they compute: a period is the larger of max compute and max transfer",
    )


def add_estimate(parser: argparse.ArgumentParser) -> None:
    """Take how ranges of layers are estimated, and the share of memory that a plan may use."""
    parser.add_argument(
        "--estimator",
        choices=[str(e) for e in Estimator],
        default=str(Estimator.REGRESSION),
        help="sum layers as the seed does, or correct the sums by a few ranges compiled whole; default %(default)s",
    )
    parser.add_argument(
        "--planning-proportion",
        type=float,
        metavar="P",
        help="share of a device's memory that a planned stage may fill; default: all of it, held against the upper "
        "edge of what the stage may need, and 0.85 for plain sums",
    )


def add_knobs(parser: argparse.ArgumentParser) -> None:
    """Take one configuration."""
    parser.add_argument("--n-ipu", type=int, default=1, metavar="N", help="devices in the pipeline; default 1")
    add_micro_batch(parser)
    add_training(parser)


def add_micro_batch(parser: argparse.ArgumentParser) -> None:
    """Take what one micro-batch is compiled for."""
    parser.add_argument(
        "--memory-proportion",
        type=float,
        metavar="P",
        help="bound on the temporary memory of a matmul or convolution, as a share of a tile; on the host part of a "
        f"device's memory; default {DEFAULT_MEMORY_PROPORTION}, or 1.0 on the host",
    )
    parser.add_argument("--batch-size", type=int, default=1, metavar="B", help="samples in a micro-batch; default 1")


def add_training(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """Take whether to train and how; with `several`, the values that a search tries."""
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
        help=f"keep the inputs of stages only, and run forward again for the backward; default off{more}",
    )
    parser.add_argument(
        "--n-micro-batches",
        type=integers,
        metavar="M",
        help=f"micro-batches of a step of training; default {DEFAULT_MICRO_BATCHES}{more}",
    )


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Take a model, where it runs, one configuration, and the choice between JSON and tables."""
    add_model(parser)
    add_knobs(parser)
    parser.add_argument("--replicas", type=int, default=1, metavar="N", help="pipelines side by side; default 1")
    add_json(parser)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Take the choice between JSON and tables."""
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")


def read_knobs(args: argparse.Namespace, flow: Flow, replicas: int = 1) -> Knobs:
    """The one configuration that the arguments name.

    Raises:
        BadInput: outside what the model and the cluster allow.
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
    """The schedules, recompute switches and counts of micro-batches that the arguments name.

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


def choices_of(known: Sequence[Choice]) -> Callable[[str], tuple[Choice, ...]]:
    """A reader of one or more of the words `known`, with commas.

    >>> choices_of(TRAINING_ORDERS)("gpipe,1f1b")
    (<Order.GPIPE: 'gpipe'>, <Order.ONE_F_ONE_B: '1f1b'>)
    """

    def read(text: str) -> tuple[Choice, ...]:
        words = text.split(",")
        if not set(words) <= set(known):
            raise argparse.ArgumentTypeError(f"one or more of {', '.join(known)}, got {text!r}")
        return tuple(choice for word in words for choice in known if choice == word)

    return read


def aim(text: str) -> Aim:
    """Read one objective, or several with commas.

    >>> aim("latency")
    <Objective.LATENCY: 'latency'>
    """
    try:
        return aim_of(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def switches(text: str) -> tuple[bool, ...]:
    """Read "off,on" as switches.

    >>> switches("off,on")
    (False, True)
    """
    names = text.split(",")
    if not set(names) <= {"off", "on"}:
        raise argparse.ArgumentTypeError(f"a switch is on, off or off,on, got {text!r}")
    return tuple(name == "on" for name in names)


def add_storage(parser: argparse.ArgumentParser) -> None:
    """Take where trials are kept."""
    parser.add_argument(
        "--storage", default=DEFAULT_STORAGE, metavar="URL", help="database of the trials; default %(default)s"
    )


def add_study(parser: argparse.ArgumentParser) -> None:
    """Take a study that exists."""
    parser.add_argument("study", metavar="STUDY", help="name of the study, as `autoauto search` printed it")
    add_storage(parser)


def load(args: argparse.Namespace) -> Study:
    """The study that the arguments name.

    Raises:
        BadInput: no such study or database.
    """
    from autoauto.study.store.study import load_study

    study = load_study(args.storage, args.study)
    if "target" not in study.user_attrs:
        raise BadInput(f"study {args.study!r} does not say what measured it; search anew with another --study-name")
    return study
