"""List the built-in clusters and this machine, or write one as the seed's IPUClusterInfo."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from autoauto.cli.options.model import add_json
from autoauto.cli.output.results import print_json

EXAMPLE = "clusters --upstream seed-2-ipu > cluster.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the choice between JSON, a table, and one cluster in the seed's form."""
    parser.add_argument(
        "--upstream",
        metavar="NAME|FILE",
        help="print this cluster as the seed's IPUClusterInfo, for `plan --cluster-info`",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print devices and links of every built-in cluster and of this machine, or one cluster in the seed's form."""
    if args.upstream is not None:
        from autoauto.evaluate.load import read_cluster
        from autoauto.profile.importers.auto_pipeline import cluster_to_upstream

        print_json(cluster_to_upstream(read_cluster(args.upstream)))
        return 0
    from autoauto.targets.clusters import builtin_clusters, load_cluster
    from autoauto.targets.host.machine.detect import host_cluster

    found = [load_cluster(name) for name in builtin_clusters()]
    detected = [host_cluster()] if sys.platform == "linux" else []
    if args.json:
        print_json({"clusters": list(map(asdict, found)), "detected": list(map(asdict, detected))})
    else:
        from rich.console import Console

        from autoauto.report.text.listings import clusters_table

        Console().print(clusters_table(found))
        if detected:
            Console().print(clusters_table(detected, "This machine: its cores and memory as detected, links measured"))
    return 0
