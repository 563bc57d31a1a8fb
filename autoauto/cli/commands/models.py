"""List the built-in models.

With --target gpu the decoders whose configs come with extra gpu.
"""

from __future__ import annotations

import argparse
from typing import Any

from autoauto.cli.output.lines import add_json, print_json, show
from autoauto.records.errors import BadInput
from autoauto.records.installation import builtin_sizes
from autoauto.targets.registry import TARGETS, target_named

EXAMPLE = "models --target gpu"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the target, and the choice between JSON and a table."""
    parser.add_argument("--target", choices=sorted(TARGETS.names), help="models of this target; default: ONNX files")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print name and size of every model that needs no file."""
    serves_decoders = args.target is not None and target_named(args.target).serves_decoders
    rows = _decoders() if serves_decoders else [size._asdict() for size in builtin_sizes()]
    if args.json:
        print_json({"models": rows})
        return 0
    from autoauto.report.tables.listings import decoders_table, models_table

    if serves_decoders:
        show(decoders_table(rows))
    else:
        show(models_table(rows), "decoders on GPUs: `autoauto models --target gpu`")
    return 0


def _decoders() -> list[dict[str, Any]]:
    """The size of every decoder that is read, and why the others are not."""
    from autoauto.graph.decoders.huggingface import bundled_names, decoder_of
    from autoauto.targets.gpu.tables import check_installed

    check_installed()
    rows: list[dict[str, Any]] = []
    for name in bundled_names():
        try:
            decoder = decoder_of(name)
        except BadInput as error:
            rows.append({"name": name, "n_weights": None, "weights": None, "reason": str(error)})
            continue
        weights = str(decoder.checkpoint.weights)
        rows.append({"name": name, "n_weights": decoder.n_weights, "weights": weights, "reason": ""})
    return rows
