"""List the built-in models."""

from __future__ import annotations

import argparse

from autoauto.cli.output.lines import add_json, print_json
from autoauto.records.units import Precision

EXAMPLE = "models --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the choice between JSON and a table."""
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print name, layers, kinds and weight bytes of every built-in model."""
    from autoauto.graph.load import builtin_models, load_graph

    rows = [
        {
            "name": graph.name,
            "n_layers": len(graph),
            "n_kinds": len({layer.kind for layer in graph.layers}),
            "weight_bytes": graph.n_weight_bytes(Precision.FP16),
        }
        for graph in map(load_graph, builtin_models())
    ]
    if args.json:
        print_json({"models": rows})
    else:
        from autoauto.report.tables.listings import models_table
        from autoauto.report.tables.table import show

        show(models_table(rows))
    return 0
