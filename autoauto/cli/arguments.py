"""What several commands take: a model on a cluster, one configuration, JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from autoauto.records.errors import BadInput
from autoauto.records.phased import PhasedPlan
from autoauto.records.schedule import Order
from autoauto.records.trial import DEFAULT_PLANNING_PROPORTION, TRAINING_ORDERS, Knobs, SearchSpace
from autoauto.records.units import Precision

if TYPE_CHECKING:
    from optuna.study import Study

    from autoauto.flow import Flow
    from autoauto.records.hardware import Cluster
    from autoauto.records.plan import Plan

Choice = TypeVar("Choice", bound=StrEnum)

DEFAULT_MODEL = "resnet50"
DEFAULT_CLUSTER = "bow-2000"
DEFAULT_STORAGE = "sqlite:///studies/autoauto.db"
MOST_VALUES = 100_000  # that one knob may take
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
    parser.add_argument("--target", choices=["ipu"], default="ipu", help="kind of device; default %(default)s")
    parser.add_argument(
        "--cluster",
        default=DEFAULT_CLUSTER,
        metavar="NAME|FILE",
        help="a built-in cluster (see `autoauto clusters`), a TOML file, or the seed's JSON; default %(default)s",
    )
    parser.add_argument(
        "--precision",
        choices=[str(p) for p in Precision],
        default=str(Precision.FP16),
        help="format of weights and activations; default %(default)s",
    )
    add_planning_proportion(parser)
    parser.add_argument(
        "--overlap",
        action="store_true",
        help="devices transfer while they compute: a period is the larger of max compute and max transfer",
    )
    host = parser.add_mutually_exclusive_group()
    host.add_argument(
        "--synthetic-data", action="store_true", help="data is made on the device: the host's links cost nothing"
    )
    host.add_argument(
        "--overlap-io",
        action="store_true",
        help="32 tiles of every device exchange with the host while the others compute",
    )
    parser.add_argument(
        "--partials",
        choices=[str(Precision.FP16), str(Precision.FP32)],
        default=str(Precision.FP16),
        help="format of partial sums of fp16 and fp8 products; Poplar's own default is fp32; default %(default)s",
    )
    parser.add_argument(
        "--float-operators",
        default="",
        metavar="OP,OP",
        help="ONNX operators that run in fp32 between casts, for example Gelu,LayerNormalization",
    )


def add_planning_proportion(parser: argparse.ArgumentParser) -> None:
    """Take the share of memory that a plan may use."""
    parser.add_argument(
        "--planning-proportion",
        type=float,
        default=DEFAULT_PLANNING_PROPORTION,
        metavar="P",
        help="share of a device's memory that a planned stage may fill; default %(default)s",
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
        default=0.6,
        metavar="P",
        help="bound on the temporary memory of a matmul or convolution, as a share of a tile; default %(default)s",
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
    add_json(parser)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Take the choice between JSON and tables."""
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")


def open_flow(args: argparse.Namespace) -> Flow:
    """The model on the cluster that the arguments name.

    Raises:
        BadInput: no such model or cluster, or one that cannot be read.
    """
    from autoauto.flow import Flow
    from autoauto.graph import load_graph
    from autoauto.targets.ipu import IpuTarget, Settings

    cluster = read_cluster(args.cluster)
    if cluster.target != args.target:
        raise BadInput(f"the cluster must be for --target {args.target}, {cluster.name} is for {cluster.target!r}")
    return Flow(
        graph=load_graph(args.model),
        cluster=_host_links(cluster, args),
        target=IpuTarget(Settings(Precision(args.partials), frozenset(filter(None, args.float_operators.split(","))))),
        precision=Precision(args.precision),
        planning_proportion=args.planning_proportion,
        overlap=args.overlap,
    )


def _host_links(cluster: Cluster, args: argparse.Namespace) -> Cluster:
    from autoauto.targets.ipu.io import overlap_io

    if args.synthetic_data:
        return cluster.with_synthetic_data()
    return overlap_io(cluster) if args.overlap_io else cluster


def read_cluster(name: str) -> Cluster:
    """A built-in cluster, a TOML file, or the seed's IPUClusterInfo in a file that ends in .json.

    Raises:
        BadInput: no such cluster, or one that cannot be read.
    """
    if name.endswith(".json"):
        from autoauto.profile.store import read_json
        from autoauto.profile.upstream import cluster_from_upstream

        return cluster_from_upstream(read_json(Path(name)))
    from autoauto.targets.clusters import load_cluster

    return load_cluster(name)


def read_knobs(args: argparse.Namespace, flow: Flow) -> Knobs:
    """The one configuration that the arguments name.

    Raises:
        BadInput: outside what the model and the cluster allow.
    """
    space = SearchSpace((args.n_ipu,), (args.memory_proportion,), (args.batch_size,), *training_values(args))
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


def describe(flow: Flow, knobs: Knobs, plan: Plan) -> dict[str, Any]:
    """A plan of one configuration as plain values, named as the fields are."""
    timeline = flow.timeline(knobs, plan) if knobs.training else None
    return {
        **describe_flow(flow, knobs),
        "samples_per_s": flow.samples_per_s(knobs, plan, timeline),
        "makespan_cycles": timeline and timeline.makespan_cycles,
        **describe_plan(plan),
    }


def describe_flow(flow: Flow, knobs: Knobs) -> dict[str, Any]:
    """One configuration of a model on a cluster as plain values."""
    names = {"model": flow.graph.name, "cluster": flow.cluster.name, "precision": str(flow.precision)}
    return names | asdict(knobs)


def describe_plan(plan: Plan | PhasedPlan) -> dict[str, Any]:
    """A plan as plain values."""
    if isinstance(plan, PhasedPlan):
        return describe_phases(plan)
    return {
        "fits": True,
        "overlap": plan.overlap,
        "partition": list(plan.partition),
        "compute_cycles": plan.compute_cycles,
        "transfer_cycles": plan.transfer_cycles,
        "host_cycles": plan.host_cycles,
        "cost_cycles": plan.cost_cycles,
        "stages": [asdict(stage) | {"total_bytes": stage.total_bytes} for stage in plan.stages],
    }


def describe_phases(plan: PhasedPlan) -> dict[str, Any]:
    """Phases and their buffers as plain values."""
    return {
        "fits": True,
        "io_mode": str(plan.io_mode),
        "steps": plan.steps,
        "n_replicas": plan.n_replicas,
        "partition": list(plan.partition),
        "cost_cycles": plan.cost_cycles,
        "naive_cycles": plan.naive_cycles,
        "phases": [
            asdict(phase) | {"total_bytes": phase.total_bytes, "cycles": cycles}
            for phase, cycles in zip(plan.phases, plan.phase_cycles, strict=True)
        ],
        "buffers": [
            asdict(buffer) | {"n_entries": buffer.n_entries, "n_bytes": buffer.n_bytes} for buffer in plan.buffers
        ],
    }


def print_json(record: dict[str, Any]) -> None:
    """Print one JSON object on stdout."""
    print(json.dumps(record, indent=1))


def integers(text: str) -> tuple[int, ...]:
    """Read "1,2,4" or "1:128" (both ends are values of the knob) as integers.

    >>> integers("1,2,4"), integers("3:5")
    ((1, 2, 4), (3, 4, 5))
    """
    first, colon, last = text.partition(":")
    try:
        values = range(int(first), int(last) + 1) if colon else [int(item) for item in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"integers are written 1,2,4 or 1:128, got {text!r}") from None
    if not 0 < len(values) <= MOST_VALUES:
        raise argparse.ArgumentTypeError(f"a knob takes 1 to {MOST_VALUES} values, got {len(values)} in {text!r}")
    return tuple(values)


def proportions(text: str) -> tuple[float, ...]:
    """Read "0.3,0.6,1.0" as numbers.

    >>> proportions("0.3,1")
    (0.3, 1.0)
    """
    try:
        return tuple(float(item) for item in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"proportions are written 0.3,0.6,1.0, got {text!r}") from None


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


def switches(text: str) -> tuple[bool, ...]:
    """Read "off,on" as switches.

    >>> switches("off,on")
    (False, True)
    """
    names = text.split(",")
    if not set(names) <= {"off", "on"}:
        raise argparse.ArgumentTypeError(f"a switch is on, off or off,on, got {text!r}")
    return tuple(name == "on" for name in names)


def positive(text: str) -> int:
    """Read an integer from 1.

    >>> positive("3")
    3
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, got {text!r}")
    return int(text)


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
    from autoauto.search import load_study

    return load_study(args.storage, args.study)
