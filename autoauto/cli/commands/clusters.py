"""List the built-in clusters and this machine, or print one as IPUClusterInfo of Graphcore's auto_pipeline."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from autoauto.cli.output.json_output import add_json, print_json

EXAMPLE = "clusters --upstream seed-2-ipu > cluster.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the choice between JSON, a table, and one cluster in the form of [auto-pipeline]."""
    parser.add_argument(
        "--upstream",
        metavar="NAME|FILE",
        help="print this cluster as IPUClusterInfo of Graphcore's auto_pipeline, for `plan --cluster-info`",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print devices and links of every built-in cluster and of this machine, or one cluster for [auto-pipeline]."""
    if args.upstream is not None:
        from autoauto.evaluate.load import read_cluster
        from autoauto.exporters.graphcore.auto_pipeline import cluster_to_auto_pipeline

        print_json(cluster_to_auto_pipeline(read_cluster(args.upstream)))
        return 0
    from autoauto.targets.clusters import builtin_clusters, load_cluster
    from autoauto.targets.host.machine.detect import host_cluster

    clusters = [load_cluster(name) for name in builtin_clusters()]
    detected = [host_cluster()] if sys.platform == "linux" else []
    if args.json:
        print_json({"clusters": list(map(asdict, clusters)), "detected": list(map(asdict, detected))})
    else:
        from autoauto.report.tables.listings import clusters_table
        from autoauto.report.tables.terminal import show

        show(clusters_table(clusters))
        if detected:
            show(clusters_table(detected, "This machine: its cores and memory as detected, links measured"))
    return 0
