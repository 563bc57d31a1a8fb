"""Options for a model on a cluster and its configuration: `add_configuration`, read by `requested_knobs`.

Those for a profile that another tool recorded, and for the devices that it is of: `add_profile`.

Options for the target and its devices, and the flow that they open: `add_target`, `open_flow`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from autoauto.cli.options.values import (
    at_most,
    choices_of,
    integers,
    not_negative,
    positive_number,
    proportions,
    share,
    switches,
    switches_or,
)
from autoauto.cli.output.lines import add_json, print_line
from autoauto.profile.importers.registry import IMPORTERS
from autoauto.records.costs.correction import Estimator
from autoauto.records.errors import BadInput
from autoauto.records.hardware import MAX_DEVICES, Period
from autoauto.records.installation import DEFAULT_MODEL
from autoauto.records.knob import Knob
from autoauto.records.plans.plan import CutAt
from autoauto.records.units import MAX_MIB, Precision
from autoauto.space.knobs import MAX_SAMPLES, Knobs
from autoauto.space.modes.mode import MAX_VALUES
from autoauto.space.space import SearchSpace, of_global_batch
from autoauto.space.table import KNOBS, PIPELINE_KNOBS, SHORT_NAMES, TABLE
from autoauto.targets.host.runtimes.registry import runtime_for
from autoauto.targets.host.runtimes.session import PRECISION
from autoauto.targets.registry import DEFAULT_TARGET, TARGETS

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.space.requests.problem import Problem
    from autoauto.targets.target import NamedTarget


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add a target, a cluster, and how both are used."""
    default = TARGETS[DEFAULT_TARGET]
    summaries, clusters, precisions = [], "", ""
    for entry in TARGETS.values():
        summaries.append(f"{entry.name}: {entry.summary}")
        if entry is not default:
            clusters += f", or {entry.default_cluster} for --target {entry.name}"
            precisions += f", or {entry.default_precision} for --target {entry.name}"
    parser.add_argument(
        "--target",
        choices=sorted([*TARGETS, "cpu"]),
        help=f"{'; '.join(summaries)}; cpu is host; default: the one that the cluster is for, else {DEFAULT_TARGET}",
    )
    parser.add_argument(
        "--cluster",
        metavar="NAME|FILE",
        help="a built-in cluster (see `autoauto clusters`), a TOML file, or Graphcore's IPUClusterInfo as JSON; "
        f"default {default.default_cluster}{clusters}",
    )
    parser.add_argument(
        "--gpus",
        type=at_most(MAX_DEVICES),
        metavar="N",
        help="so many GPUs of the system that --cluster names, by default h100_sxm: --cluster h200_sxm --gpus 16 is "
        "--cluster h200_sxm-16",
    )
    parser.add_argument(
        "--precision",
        type=choices_of(tuple(dict.fromkeys((*Precision, *TABLE["precision"].domain.words)))),
        metavar="|".join(default.precisions),
        help=f"format of weights and activations; default {default.default_precision}{precisions}, where it is the "
        f"format in which the runtime computes: {' or '.join(PRECISION.domain.words)}, in a search several "
        "with commas",
    )
    parser.add_argument(
        "--headroom",
        type=share,
        default=0.0,
        metavar="SHARE",
        help="share of every device's memory that stays free; default %(default)g",
    )
    parser.add_argument(
        "--device-memory-gib",
        type=positive_number,
        metavar="GIB",
        help="memory of a device in GiB: with --target host of a core besides the runtime, by default an equal part of "
        "this machine's, and what measures layers alone may take that of all; with --profile of each of --devices",
    )
    for entry in TARGETS.values():
        _add_options(parser.add_argument_group(f"for --target {entry.name}"), entry)


_OPTION_READERS: dict[type, Callable[[str], Any]] = {int: at_most(MAX_MIB), float: not_negative, str: str}


def _add_options(group: argparse._ArgumentGroup, entry: NamedTarget) -> None:
    for option in entry.options:
        if not option.help:  # another option sets it
            continue
        if option.kind is bool:
            group.add_argument(option.flag, action="store_true", help=option.help)
            continue
        group.add_argument(
            option.flag,
            type=_OPTION_READERS[option.kind],
            default=option.default,
            choices=[str(choice) for choice in option.choices] or None,
            metavar=option.metavar,
            help=option.help,
        )


def problem_of(args: argparse.Namespace) -> Problem:
    """The names, files and options that make a flow; raises BadInput if they do not go together."""
    from autoauto.space.requests.problem import Problem

    return Problem.of(vars(args))


def open_flow(args: argparse.Namespace) -> Flow:
    """The model on the cluster of the arguments.

    Raises:
        BadInput: no such model or cluster, one that cannot be read, or an option of another target.
    """
    from autoauto.evaluate.open import open_problem

    return open_problem(problem_of(args), getattr(args, "storage", None))


def say_defaults(args: argparse.Namespace) -> None:
    """Print which model and devices are meant where none are named."""
    if all(vars(args).get(name) is None for name in ("model", "cluster", "target", "profile", "gpus")):
        print_line(
            f"no model and no devices are named: {DEFAULT_MODEL} on {TARGETS[DEFAULT_TARGET].default_cluster}, IPUs; "
            "`autoauto models` and `autoauto clusters` list others"
        )


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Add a model, a target, one configuration, and the choice between JSON and tables."""
    add_model(parser)
    add_knobs(parser)
    add_json(parser)


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add a model, the target that it runs on, and how its costs are estimated."""
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help=f"a built-in model (see `autoauto models`) or an ONNX file; default {DEFAULT_MODEL}",
    )
    add_inputs(parser)
    add_target(parser)
    _add_estimate(parser)
    parser.add_argument(
        "--period",
        choices=[str(period) for period in Period],
        help="what devices do at the same time. barrier: all compute, then all transfer; overlap: they transfer while "
        "they compute; serial: one thing at a time; duplex: they receive, compute and send at once; default: what the "
        "target's devices do (barrier on ipu, serial on host)",
    )
    parser.add_argument("--overlap", action="store_true", help="the same as --period overlap")
    parser.add_argument(
        "--cut-at",
        choices=[str(cut_at) for cut_at in CutAt],
        default=str(CutAt.LAYERS),
        help="where stages may begin: at any layer, or at the model's blocks, the repeated modules that the names in "
        "its file show; default %(default)s",
    )


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add what a file does not say of the inputs of a model."""
    parser.add_argument(
        "--shape",
        action="append",
        metavar="NAME=N[xN...]",
        help="length of an axis that the file leaves open, by its name (height=320), or all lengths of an input but "
        "that of its batch axis (images=3x320x320); may be given again, or several with commas",
    )
    parser.add_argument(
        "--batch-axis",
        action="append",
        metavar="INPUT=AXIS",
        help="the axis of an input along which samples lie, or none; by default it is looked for",
    )
    parser.add_argument(
        "--state",
        action="append",
        metavar="INPUT=OUTPUT",
        help="an input that an output feeds in the next call, so that it stays on the device; by default those that "
        "names and shapes show (past_... and present_...)",
    )


def _add_estimate(parser: argparse.ArgumentParser) -> None:
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


def add_knobs(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Add one configuration of a pipeline, without some of its knobs, which have their defaults."""
    _add_mode(parser)
    for knob in PIPELINE_KNOBS:
        if knob.name not in (*_OF_TARGETS, *without):
            _add_knob(parser, knob, _METAVARS[knob.domain.kind], f"{knob.help}; default {knob.default_help[0]}")


def add_space(parser: argparse.ArgumentParser) -> None:
    """Add the values that every knob may have in a search."""
    _add_mode(parser)
    for knob in KNOBS:
        if knob.name not in _OF_TARGETS:
            several = f"{knob.help}; several with commas; default {knob.default_help[1]}"
            _add_knob(parser, knob, knob.metavar, several)


def add_knob(parser: argparse.ArgumentParser, name: str, what: str = "") -> None:
    """Add an option for one value of a knob, which `one_value` reads; `what` replaces the help text of the knob."""
    knob = TABLE[name]
    _add_knob(parser, knob, _METAVARS[knob.domain.kind], f"{what or knob.help}; default {knob.default_help[0]}")


def _add_mode(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mode", choices=["inference", "training"], default="inference", help="default %(default)s")
    parser.add_argument(
        "--global-batch",
        type=at_most(MAX_VALUES * MAX_SAMPLES),
        metavar="G",
        help="samples of a step of training by all replicas, from which the number of micro-batches follows",
    )


def _add_knob(parser: argparse.ArgumentParser, knob: Knob, metavar: str, text: str) -> None:
    kind, words = knob.domain.kind, knob.domain.words
    read = _READERS.get(kind) or choices_of(words)
    if kind is not str and words:
        read = switches_or(words)
    alone: dict[str, Any] = {"nargs": "?", "const": (True,)} if kind is bool else {}
    short = [f"--{word}" for word, name in SHORT_NAMES.items() if name == knob.name]
    parser.add_argument(knob.option, *short, type=read, metavar=metavar, help=text, **alone)


_OF_TARGETS = ("precision",)
"""The knobs whose options `add_target` adds, since targets that have no such knob have the option."""
_METAVARS = {int: "N", float: "P", bool: "on|off", str: "NAME"}
_READERS: dict[type, Callable[[str], tuple[Any, ...]]] = {int: integers, float: proportions, bool: switches}


def one_value(args: argparse.Namespace, name: str) -> Any:
    """The single value of a knob; its default if none is given; raises BadInput for several."""
    value, *others = getattr(args, name) or (TABLE[name].default,)
    if others:
        raise BadInput(f"one configuration has one {name}, got several; try search")
    return value


def one_switch(args: argparse.Namespace, name: str) -> bool:
    """The value of a knob where nothing chooses it: on or off; raises BadInput for several."""
    value = one_value(args, name)
    if not isinstance(value, bool):
        raise BadInput(f"{name} is on or off here, got {value}, which a plan of stages decides; try one of them")
    return value


def requested_knobs(args: argparse.Namespace, flow: Flow) -> Knobs:
    """The configuration of the arguments.

    Raises BadInput for several, or one that the model or the cluster does not allow.
    """
    from autoauto.evaluate.modes.training_table import default_orders
    from autoauto.space.requests.request import given_knobs

    batch_size = flow.traits.space.get("batch_size", (1,))[:1]
    given = given_knobs(vars(args))
    if args.mode == "training" and "schedule" not in given:
        given["schedule"] = default_orders(flow.setting, *given.get("n_ipu", (1,))[:1])
    defaults: dict[str, tuple[Any, ...]] = {"n_ipu": (1,), "batch_size": batch_size}
    runtimes = flow.traits.space.get("runtime")
    if runtimes and flow.traits.space.get("precision") != (None,):  # of an engine that takes the formats of its file
        precision = given.get("precision", (Precision.FP32,))
        defaults |= {"precision": precision, "runtime": (runtime_for(Precision(precision[0]), runtimes),)}
    else:
        if "runtime" not in given:
            for kind in flow.traits.sessions:
                defaults |= {knob.name: (knob.default,) for knob in kind.knobs if knob.searched}
        # Of the values that a search tries by default, the first is that of a single configuration.
        defaults |= {name: values[:1] for name, values in flow.traits.space.items()}
    if several := [knob.name for knob in KNOBS if len(given.get(knob.name, ())) > 1]:
        raise BadInput(f"one configuration has one {' and one '.join(several)}, got several; try search")
    values: dict[str, Any] = defaults | given
    if args.global_batch is not None:
        replicas, sizes = given.get("replicas", (1,)), values["batch_size"]
        values["n_micro_batches"], *_ = of_global_batch(args.global_batch, replicas, sizes)
    return flow.checked(SearchSpace(**values)).cells[0][0]


PROFILE_OPTIONS = ("profile", "profile_format", "profile_details", "devices", "device_memory_gib", "link_gb_per_s")
"""The arguments of a profile and its devices."""


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Add the files of a profile, and its devices, whose memory `add_target` adds."""
    group = parser.add_argument_group("profiles of other programs")
    group.add_argument(
        "--profile",
        action="append",
        metavar="[[KIND:]B=]FILE",
        help="instead of profiling MODEL use this profile of it, recorded at batch size B; may be given once for every "
        "batch size, and on devices of several kinds once for every KIND, the name of its devices in the cluster file; "
        "MODEL is then only for onnxruntime",
    )
    group.add_argument("--profile-format", choices=IMPORTERS.names, help="what the profile was recorded with")
    group.add_argument(
        "--profile-details",
        action="append",
        metavar="[[KIND:]B=]FILE",
        help="more about the same layers: what trtexec writes with --exportLayerInfo, which tensorrt needs, or ONNX "
        "Runtime with session.collect_node_memory_stats_to_file",
    )
    group.add_argument(
        "--devices",
        type=at_most(MAX_DEVICES),
        metavar="N",
        help="so many equal devices in a line, instead of --cluster",
    )
    group.add_argument(
        "--link-gb-per-s",
        type=positive_number,
        metavar="RATE",
        help="10**9 bytes a second that each of --devices receives from its neighbour or the host, or sends there",
    )
