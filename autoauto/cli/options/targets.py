"""Where a model runs: the options that name devices, and the flow that they open."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from autoauto.cli.options.constraints import constraints_of
from autoauto.cli.options.numbers import positive, share
from autoauto.records.errors import BadInput
from autoauto.records.units import MIB, Precision

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.records.constraint import Constraint
    from autoauto.records.hardware import Cluster

IPU_ONLY: dict[str, Any] = {
    "overlap": False,
    "synthetic_data": False,
    "overlap_io": False,
    "partials": None,
    "float_operators": "",
}
HOST_ONLY: dict[str, Any] = {"cores_per_device": None, "device_memory_mib": None}
"""Options of one target, and what they are when they are not given."""


def add_target(parser: argparse.ArgumentParser) -> None:
    """Take a target, a cluster and how both are used."""
    parser.add_argument(
        "--target",
        choices=["host", "ipu"],
        default="ipu",
        help="ipu: a cost model of Graphcore's devices; host: processes of this machine; default %(default)s",
    )
    parser.add_argument(
        "--cluster",
        metavar="NAME|FILE",
        help="a built-in cluster (see `autoauto clusters`), a TOML file, or the seed's JSON; "
        "default bow-2000, or this machine for --target host",
    )
    parser.add_argument(
        "--precision",
        choices=[str(p) for p in Precision],
        help="format of weights and activations; default fp16, or the file's own (fp32) for --target host",
    )
    parser.add_argument(
        "--headroom",
        type=share,
        default=0.0,
        metavar="SHARE",
        help="share of every device's memory that is kept free; default %(default)g",
    )
    ipu = parser.add_argument_group("for --target ipu")
    links = ipu.add_mutually_exclusive_group()
    links.add_argument(
        "--synthetic-data", action="store_true", help="data is made on the device: the host's links cost nothing"
    )
    links.add_argument(
        "--overlap-io",
        action="store_true",
        help="32 tiles of every device exchange with the host while the others compute",
    )
    ipu.add_argument(
        "--partials",
        choices=[str(Precision.FP16), str(Precision.FP32)],
        help="format of partial sums of fp16 and fp8 products; Poplar's own default is fp32; default fp16",
    )
    ipu.add_argument(
        "--float-operators",
        default="",
        metavar="OP,OP",
        help="ONNX operators that run in fp32 between casts, for example Gelu,LayerNormalization",
    )
    host = parser.add_argument_group("for --target host")
    host.add_argument(
        "--cores-per-device", type=positive, metavar="N", help="cores, hence threads, of a device; default 1"
    )
    host.add_argument(
        "--device-memory-mib",
        type=positive,
        metavar="N",
        help="what a device may hold besides the runtime; default: an equal part of this machine's memory",
    )


def open_flow(args: argparse.Namespace) -> Flow:
    """The model on the cluster that the arguments name.

    Raises:
        BadInput: no such model or cluster, one that cannot be read, or an option of another target.
    """
    other = HOST_ONLY if args.target == "ipu" else IPU_ONLY
    given = [f"--{name.replace('_', '-')}" for name, default in other.items() if getattr(args, name) != default]
    if given:
        raise BadInput(f"--target {args.target} has no {', '.join(given)}; leave them out, or try another --target")
    return _ipu_flow(args) if args.target == "ipu" else _host_flow(args)


def tell_spread(flow: Flow) -> None:
    """Say on stderr how far repeats of a measurement on this machine lie apart; nothing where none was made."""
    from autoauto.targets.host.measure.worker import spread_line
    from autoauto.targets.host.target import HostTarget

    if isinstance(flow.target, HostTarget) and flow.target.readings:
        sys.stderr.write(f"autoauto: {spread_line(flow.target.readings)}\n")


def _ipu_flow(args: argparse.Namespace) -> Flow:
    from onnx.defs import has as has_operator

    from autoauto.evaluate.load import load_flow
    from autoauto.targets.ipu.operator_cost import Settings
    from autoauto.targets.ipu.target import IpuTarget

    partials, floats = Precision(args.partials or Precision.FP16), args.float_operators.split(",")
    flow = load_flow(
        args.model,
        _host_links(_cluster(args), args),
        IpuTarget(Settings(partials, frozenset(filter(None, floats)))),
        args.precision,
        args.planning_proportion,
        args.overlap,
        args.estimator,
        getattr(args, "storage", None),
        _over_results(args),
    )
    known = {layer.op for layer in flow.graph.layers}
    if unknown := [name for name in floats if name and name not in known and not has_operator(name)]:
        raise BadInput(f"--float-operators takes ONNX operators, got {unknown[0]!r}; try Gelu,LayerNormalization")
    return flow


def _host_flow(args: argparse.Namespace) -> Flow:
    from autoauto.evaluate.load import load_flow
    from autoauto.graph.cut.source import onnx_source
    from autoauto.targets.host.target import HostTarget

    if args.precision not in (None, Precision.FP32):
        raise BadInput(f"on the host a model runs in the formats of its file, got --precision {args.precision}")
    return load_flow(
        args.model,
        _cluster(args),
        HostTarget(onnx_source(args.model), _cores(args)),
        planning_proportion=args.planning_proportion,
        estimator=args.estimator,
        storage=getattr(args, "storage", None),
        constraints=_over_results(args),
    )


def _over_results(args: argparse.Namespace) -> tuple[Constraint, ...]:
    return tuple(constraint for constraint in constraints_of(args) if not constraint.over_knobs)


def _cluster(args: argparse.Namespace) -> Cluster:
    """The devices that the arguments name, with the memory that plans may fill."""
    return _whole_cluster(args).with_headroom(args.headroom)


def _whole_cluster(args: argparse.Namespace) -> Cluster:
    from autoauto.evaluate.load import DEFAULT_CLUSTERS, check_cluster, read_cluster

    name = DEFAULT_CLUSTERS[args.target] if args.cluster is None else args.cluster
    if name == "host" and args.target == "host":
        from autoauto.targets.host.machine.detect import host_cluster

        memory_mib = args.device_memory_mib
        return host_cluster(_cores(args), None if memory_mib is None else memory_mib * MIB)
    cluster = read_cluster(name)
    check_cluster(cluster, args.target, _cores(args))
    if args.device_memory_mib is not None:
        raise BadInput("--device-memory-mib is for the detected machine; write memory_bytes into the cluster file")
    return cluster


def _cores(args: argparse.Namespace) -> int:
    cores: int | None = args.cores_per_device
    return cores or 1


def _host_links(cluster: Cluster, args: argparse.Namespace) -> Cluster:
    from autoauto.targets.ipu.target import overlap_io

    if args.synthetic_data:
        return cluster.with_synthetic_data()
    return overlap_io(cluster) if args.overlap_io else cluster
