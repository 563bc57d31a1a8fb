"""Make measured rows of files of benchmarks, or of a study.

Of the files of `bench serve --save-result`, AIPerf, guidellm and inference-perf, or of a study; `--measured` of a
search reads the rows.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from autoauto.cli.options.study import add_storage, requested_study
from autoauto.cli.options.values import at_most
from autoauto.cli.output.lines import warn
from autoauto.engines.registry import engine_named
from autoauto.records.costs.decoder import WeightFormat
from autoauto.records.errors import BadInput

EXAMPLE = "measured FILE.json --engine ENGINE --system h100_sxm --tensor-parallel 2 > rows.csv"
_GIVEN = (
    *("system", "precision", "kv_cache_precision", "tensor_parallel", "expert_parallel"),
    *("attention_data_parallel", "n_ipu", "replicas"),
)
"""The columns that have the value of an option."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the files, and what they do not say."""
    count = at_most(1_000_000)
    parser.add_argument("results", nargs="*", type=Path, metavar="FILE.json", help="files of one configuration")
    parser.add_argument("--study", metavar="STUDY", help="a study that measured engines, in place of files")
    add_storage(parser)
    parser.add_argument("--engine", help="the serving engine that was measured; a study says it")
    parser.add_argument("--system", metavar="GPUS", help="the GPUs, for example h100_sxm; a study says it")
    parser.add_argument("--model", metavar="MODEL", help="its name here; default: its name in the file")
    formats = tuple(map(str, WeightFormat))
    parser.add_argument(
        "--precision", choices=formats, default="", help="the format of matrices; default: that of the checkpoint"
    )
    parser.add_argument(
        "--kv-cache-precision", choices=formats, default="", help="that of the KV cache; default: the checkpoint's"
    )
    for option, what in (
        ("--tensor-parallel", "GPUs that split the attention of a sequence"),
        ("--expert-parallel", "GPUs among which experts are dealt"),
        ("--attention-data-parallel", "parts of a group that attend to sequences of their own"),
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
    """Print a line of column names and a row for every load."""
    rows = _of_files(args) if args.study is None else _of_study(args)
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return 0


def _of_study(args: argparse.Namespace) -> list[dict[str, object]]:
    from autoauto.evaluate.serving.rows import rows_of_study
    from autoauto.study.analysis.best import summarise_study
    from autoauto.study.search import flow_of_study
    from autoauto.targets.gpu.target import GpuTarget

    if args.results:
        raise BadInput(f"rows are of files or of a study, got {args.results[0]} and --study; leave one out")
    study = requested_study(args)
    measured = summarise_study(study, args.storage).engine_measurements
    if measured is None or not measured.n_measured:
        raise BadInput(f"study {study.study_name!r} must have measured engines, got none; try search --measure 3")
    flow = flow_of_study(study, args.storage)
    if isinstance(flow.target, GpuTarget) and (flow.target.speculation.draft_tokens or flow.target.cached_share):
        raise BadInput(
            f"rows have neither drafts nor cached prompts, study {study.study_name!r} has; measure without "
            "--draft-tokens and --cached-share"
        )
    systems = sorted({device.name for device in flow.cluster.devices})
    if len(systems) > 1:
        raise BadInput(f"measured rows are of one kind of GPUs, the study has {' and '.join(systems)}")
    return rows_of_study(measured, flow.setting.graph.name, systems[0])


def _of_files(args: argparse.Namespace) -> list[dict[str, object]]:
    from autoauto.load.results.files import measured_row, read_results, with_lengths

    given = {"FILE.json": args.results, "--engine": args.engine, "--system": args.system}
    if missing := [name for name, value in given.items() if not value]:
        raise BadInput(f"rows need {', '.join(missing)}, or --study STUDY")
    given = {"engine": engine_named(args.engine).name} | {name: getattr(args, name) for name in _GIVEN}
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
    return rows
