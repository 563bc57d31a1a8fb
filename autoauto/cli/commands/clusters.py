"""List clusters and this machine, or print one as a file.

As TOML, or as IPUClusterInfo [auto-pipeline].
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from autoauto.cli.output.lines import add_json, print_json, show
from autoauto.records.errors import BadInput
from autoauto.targets.gpu.entry import GPU
from autoauto.targets.host.entry import HOST
from autoauto.targets.registry import TARGETS

EXAMPLE = "clusters --detect > machine.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the choice between JSON, a table, this machine as TOML, and one cluster in the form of [auto-pipeline]."""
    single = parser.add_mutually_exclusive_group()
    single.add_argument(
        "--upstream",
        metavar="NAME|FILE",
        help="print this cluster as IPUClusterInfo of Graphcore's auto_pipeline, for `plan --cluster-info`",
    )
    single.add_argument(
        "--detect",
        action="store_true",
        help="print this machine as TOML, for --target host --cluster FILE: its cores, with their memory and measured "
        "links, and its GPUs in comments",
    )
    parser.add_argument(
        "--device",
        metavar="cuda:0,cuda:1|cpu:4,cuda:0",
        help="with --detect: these devices in place of all cores, for --device and --cluster FILE",
    )
    parser.add_argument(
        "--target",
        choices=sorted(TARGETS),
        help="clusters of this target alone; of gpu the systems whose kernels were measured, by which engines",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print devices and links of every built-in cluster and of this machine, or one cluster as a file."""
    if args.device is not None and not args.detect:
        raise BadInput("--device is for --detect here; give both")
    if args.upstream is not None:
        from autoauto.evaluate.open import read_cluster
        from autoauto.exporters.graphcore.auto_pipeline import cluster_to_auto_pipeline

        print_json(cluster_to_auto_pipeline(read_cluster(args.upstream)))
    elif args.detect:
        _print_machine(args)
    elif args.target == GPU.name:
        _print_systems(args)
    else:
        _print_clusters(args)
    return 0


def _print_systems(args: argparse.Namespace) -> None:
    """Print the GPUs that have measured kernels, each with the name of a cluster of one node."""
    from autoauto.targets.gpu.systems import system_named, system_names

    systems = [asdict(system_named(name)) for name in system_names()]
    if args.json:
        print_json({"systems": systems})
        return
    from autoauto.report.tables.listings import systems_table

    show(systems_table(systems))


def _print_machine(args: argparse.Namespace) -> None:
    from autoauto.targets.clusters import cluster_toml
    from autoauto.targets.host.detect import machine_comments, machine_source
    from autoauto.targets.host.devices import CORES
    from autoauto.targets.host.gpu.gpus import GPU_PREFIX

    if args.json:
        raise BadInput("--detect prints TOML, got --json; leave one of them out")
    if sys.platform != "linux":
        raise BadInput(f"--detect describes a machine with Linux, this one has {sys.platform}")
    cluster = HOST.devices(None, HOST.read_options({} if args.device is None else {"device": args.device}))
    words = args.device or CORES
    source = machine_source(has_cores=CORES in words, has_gpus=GPU_PREFIX in words)
    print(cluster_toml(cluster, source, machine_comments()), end="")


def _print_clusters(args: argparse.Namespace) -> None:
    from autoauto.targets.clusters import builtin_clusters, load_cluster
    from autoauto.targets.host.detect import host_cluster

    clusters = [load_cluster(name) for name in builtin_clusters() if args.target != HOST.name]
    detected = [host_cluster()] if sys.platform == "linux" and args.target in (None, HOST.name) else []
    if args.json:
        print_json({"clusters": list(map(asdict, clusters)), "detected": list(map(asdict, detected))})
        return
    from autoauto.report.tables.listings import clusters_table

    if clusters:
        show(clusters_table(clusters))
    if args.target is None:
        show("GPUs: `autoauto clusters --target gpu`", "")
    if detected:
        show(clusters_table(detected, "This machine: its cores and memory as detected, links measured"))
