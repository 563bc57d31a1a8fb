"""Write a plan as files that put it into force elsewhere.

Each format is what another runtime reads.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from autoauto.cli.commands.studies.commands_to_copy import problem_of_study
from autoauto.cli.commands.studies.study_on_server import export_on_server
from autoauto.cli.options.model import add_configuration, open_flow, problem_of, requested_knobs
from autoauto.cli.options.server import add_server, is_on_server
from autoauto.cli.options.study import add_storage, requested_study
from autoauto.cli.output.lines import print_assumed, print_json, print_line, warn
from autoauto.exporters.registry import FORMATS
from autoauto.records.errors import BadInput, Infeasible, UnreadableModel
from autoauto.records.installation import DEFAULT_MODEL
from autoauto.report.text import progress_bar

if TYPE_CHECKING:
    from optuna import Study

    from autoauto.exporters.exporter import Deployment

MANY_SAMPLES = 8
"""Samples of a micro-batch above which a check may take so long that its steps are printed without a terminal, too."""
EXAMPLE = "export resnet50 --n-ipu 2 --batch-size 8 --to onnx --output artifact --check"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a study or a model with one configuration, a format, and a folder."""
    add_configuration(parser)
    add_storage(parser)
    add_server(parser, "a search of")
    parser.add_argument("--to", required=True, choices=FORMATS.names, help="the format")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="a new or empty folder for the files")
    parser.add_argument("--check", action="store_true", help="put the files into force and read them back")


def run(args: argparse.Namespace) -> int:
    """Write the files, and say what was checked.

    Returns:
        0, or 2 when a check failed.
    """
    if args.model is not None and is_on_server(args) and not _is_model(args):
        return export_on_server(args)
    from autoauto.exporters.exporter import DecoderModel
    from autoauto.exporters.registry import write_artifact

    plan = _deployment(args)
    runs_files = args.check and not isinstance(plan.source, DecoderModel)  # which serving engines run
    is_long = runs_files and plan.knobs.batch_size > MANY_SAMPLES
    with progress_bar("export", "steps") as bar:

        def progress(done: int, total: int, now: str) -> None:
            bar(done, total, now)
            if is_long and not sys.stderr.isatty():
                warn(f"step {done + 1}: {now}")

        checks = write_artifact(plan, args.to, args.output, check=args.check, progress=progress)
    files = sorted(str(path.relative_to(args.output)) for path in args.output.rglob("*") if path.is_file())
    if args.json:
        print_json({"to": args.to, "output": str(args.output), "files": files, "checks": [c._asdict() for c in checks]})
    else:
        print_line(f"{args.output}: {', '.join(files)}")
        print_assumed(plan.graph.notes)
        for check in checks:
            print_line(f"{_VERDICTS[check.passed]}: {check.what}: {check.detail}")
    return 2 if any(check.passed is False for check in checks) else 0


_VERDICTS = {True: "passed", False: "FAILED", None: "not checked here"}


def _deployment(args: argparse.Namespace) -> Deployment:
    """The winner of a study, or the best plan of a model by the estimate; a name that both have is the model's."""
    from autoauto.evaluate.export import deployment

    args.model = args.model or DEFAULT_MODEL
    try:
        _find_model(args)
    except UnreadableModel as error:
        args.study = args.model
        try:
            study = requested_study(args)
        except BadInput as other:
            raise BadInput(f"{error}; and {other}") from other
        _check_no_configuration(args, study)
        return deployment_of_study(study, args.storage)
    flow = open_flow(args)
    trial = flow.expect(requested_knobs(args, flow))
    if not trial.runs:
        raise Infeasible(trial.reason, trial.excess_bytes)
    return deployment(flow, args.model, trial)


def _is_model(args: argparse.Namespace) -> bool:
    """True if a model on this machine has the name; no server is asked then."""
    try:
        _find_model(args)
    except BadInput:  # also the name of a study that begins with that of a decoder
        return False
    return True


def _find_model(args: argparse.Namespace) -> None:
    from autoauto.graph.decoders.gguf import is_gguf, read_gguf
    from autoauto.graph.decoders.huggingface import decoder_of
    from autoauto.graph.load import find_model
    from autoauto.targets.registry import TARGETS

    if is_gguf(args.model):
        read_gguf(Path(args.model))
    elif TARGETS[problem_of(args).target].serves_decoders:
        decoder_of(args.model)
    else:
        find_model(args.model)


def deployment_of_study(study: Study, storage: str) -> Deployment:
    """The winner of a study, with the cuts that it was measured with.

    Raises:
        BadInput: its model has changed since, it is of a profile, or its winner is no pipeline.
        Infeasible: nothing fits.
    """
    from autoauto.evaluate.export import deployment
    from autoauto.evaluate.open import open_problem, with_uploads
    from autoauto.study.analysis.best import summarise_study

    summary = summarise_study(study, storage)
    if summary.winner is None:
        raise Infeasible(f"none of the {len(summary.trials)} configurations that were tried fits", 0)
    if summary.winner.knobs.is_phased:
        raise BadInput(
            f"an artifact holds the stages of a pipeline, the winner of study {study.study_name!r} runs in phases; "
            "try to search with --strategy pipeline"
        )
    stated = problem_of_study(summary.attributes)
    if stated.profile is not None:
        raise BadInput(
            f"an artifact needs the model that was searched, study {study.study_name!r} is of a profile; "
            "try `autoauto search MODEL`"
        )
    try:
        flow = open_problem(stated)
    except UnreadableModel as error:  # a search in Python may know no more than the name of its model
        raise BadInput(
            f"the model of study {study.study_name!r} is not there: {error}, or `autoauto.export`"
        ) from error
    model = with_uploads(stated).model or DEFAULT_MODEL
    if summary.attributes.get("model_content", flow.graph.content) != flow.graph.content:
        raise BadInput(f"{model} has changed since study {summary.study_name!r}; search it again")
    return deployment(flow, model, summary.winner)


def _check_no_configuration(args: argparse.Namespace, study: Study) -> None:
    parser = argparse.ArgumentParser()
    add_configuration(parser)
    defaults = vars(parser.parse_args([]))
    given = [name for name, value in defaults.items() if getattr(args, name) != value]
    given = [name for name in given if name not in ("model", "json")]  # which also a study has
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise BadInput(f"study {study.study_name!r} has a configuration of its own, got {options} too; leave that out")
