"""List the built-in clusters."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from autoauto.cli.arguments import add_json, print_json

EXAMPLE = "clusters --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the choice between JSON and a table."""
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print devices and links of every built-in cluster."""
    from autoauto.targets.clusters import builtin_clusters, load_cluster

    found = [load_cluster(name) for name in builtin_clusters()]
    if args.json:
        print_json({"clusters": [asdict(cluster) for cluster in found]})
    else:
        from rich.console import Console

        from autoauto.report import clusters_table

        Console().print(clusters_table(found))
    return 0
