"""Make measured rows of what benchmarks of servers wrote.

Of the files of `bench serve --save-result`, AIPerf, guidellm and inference-perf; `--measured` of a search reads
the rows.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from autoauto.cli.options.values import at_most
from autoauto.cli.output.lines import warn
from autoauto.records.costs.decoder import WeightFormat
from autoauto.records.errors import BadInput

EXAMPLE = "measured FILE.json --engine ENGINE --system h100_sxm --tensor-parallel 2 > rows.csv"
_MAX_COUNT = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the files, and what they do not say."""
    count = at_most(_MAX_COUNT)
    parser.add_argument("results", nargs="+", type=Path, metavar="FILE.json", help="files of one configuration")
    parser.add_argument("--engine", required=True, help="the serving engine that was measured")
    parser.add_argument("--system", required=True, metavar="GPUS", help="the GPUs, for example h100_sxm")
    parser.add_argument("--model", metavar="MODEL", help="its name here; default: its name in the file")
    formats = tuple(map(str, WeightFormat))
    parser.add_argument(
        "--precision", choices=formats, default="", help="the format of matrices; default: that of the checkpoint"
    )
    parser.add_argument(
        "--kv-cache-precision", choices=formats, default="", help="that of the KV cache; default: the checkpoint's"
    )
    for option, what in (
        ("--tensor-parallel", "GPUs of a group"),
        ("--expert-parallel", "GPUs among which experts are dealt"),
        ("--n-ipu", "stages of a pipeline"),
        ("--replicas", "pipelines"),
    ):
        parser.add_argument(option, type=count, default=1, metavar="N", help=f"{what}; default %(default)s")
    parser.add_argument(
        "--concurrency",
        type=count,
        metavar="N",
        help="requests in flight; default: what the file says, or requests/s times latency",
    )
    for option, what in (("--input-tokens", "prompt"), ("--output-tokens", "answer")):
        parser.add_argument(option, type=count, metavar="N", help=f"tokens of a {what}; default: the mean in the file")


def run(args: argparse.Namespace) -> int:
    """Print a line of column names and a row for every load.

    Returns:
        0.
    """
    from autoauto.engines.registry import engine_named
    from autoauto.load.results.files import measured_row, read_results, with_lengths

    given = {
        "engine": engine_named(args.engine).name,
        "system": args.system,
        "precision": args.precision,
        "kv_cache_precision": args.kv_cache_precision,
        "tensor_parallel": args.tensor_parallel,
        "expert_parallel": args.expert_parallel,
        "n_ipu": args.n_ipu,
        "replicas": args.replicas,
    }
    rows: list[dict[str, object]] = []
    for path in args.results:
        for figures in read_results(path):
            model = args.model or figures.model
            if model is None:
                raise BadInput(f"{path} must say which model was served, got no name; try --model")
            known = with_lengths(figures, args.input_tokens, args.output_tokens)
            in_flight = args.concurrency or known.concurrency
            row = measured_row(known, in_flight, args.n_ipu * args.replicas)
            rows.append({"model": model, **given, **row, "source": f"{path.name}, {known.program}, {known.statistic}"})
            notes = list(known.notes)
            if in_flight is None:
                notes.append("requests in flight are requests/s times latency")
            about = f"times are the {known.statistic} of the requests of {known.program}"
            warn(f"{path.name}: {'; '.join((about, *notes))}")
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return 0
