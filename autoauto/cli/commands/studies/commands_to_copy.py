"""Commands of a study to copy: to measure its winner again, `reproducing_command`, to export it, to search again."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autoauto.cli.commands.studies import search
from autoauto.cli.options.model import PROFILE_OPTIONS, add_model, add_profile
from autoauto.cli.options.study import DEFAULT_STORAGE
from autoauto.records.errors import UnreadableModel
from autoauto.records.installation import DEFAULT_MODEL
from autoauto.records.plans.phased import PhasedPlan
from autoauto.records.plans.plan import Plan
from autoauto.records.target import Origin, studied_origin
from autoauto.records.units import GIB, MIB
from autoauto.space.knobs import Knobs, value_of
from autoauto.space.study_summary import StudySummary
from autoauto.space.table import shown
from autoauto.space.trial import Trial
from autoauto.targets.registry import precisions_of

_STORED_OPTIONS = {
    name: f"--{name.replace('_', '-')}"
    for name in ("cluster", "precision", "estimator", "planning_proportion", "period", "cut_at")
}
"""The options that a study has as attributes."""


def commands_of(summary: StudySummary) -> list[tuple[str, str]]:
    """What each command does, and how it is typed."""
    commands = []
    if summary.winner is not None:
        command = reproducing_command(summary, summary.winner)
        what = "Predict it again" if command.startswith("autoauto predict") else "Measure it again"
        commands.append((what, command))
        if _is_exported(summary, summary.winner):
            commands.append(("Export it", _export_command(summary)))
    if typed := _search_arguments(summary.attributes):
        _, again = _output_options().parse_known_args(typed)
        commands.append(("Search again", shlex.join(["autoauto", "search", *again])))
    return commands


def _output_options() -> argparse.ArgumentParser:
    """The options that say what a search prints, not what it searches."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--log")
    return parser


def _is_exported(summary: StudySummary, winner: Trial) -> bool:
    """Whether `autoauto export STUDY --to onnx` writes the winner; a name that a model has too is the model's."""
    from autoauto.graph.load import find_model

    of_a_profile = "--profile" in _model_arguments(summary.attributes)
    if winner.knobs.training or of_a_profile or not isinstance(winner.plan, Plan):
        return False
    try:
        find_model(summary.study_name)
    except UnreadableModel:
        return True
    return False


def _export_command(summary: StudySummary) -> str:
    name, storage = summary.study_name, summary.storage
    stored = [] if storage == DEFAULT_STORAGE else ["--storage", storage]
    return shlex.join(["autoauto", "export", name, *stored, "--to", "onnx", "--output", f"{name}-onnx"])


def reproducing_command(summary: StudySummary, trial: Trial) -> str:
    """The command that measures a configuration again: model and cluster as in the search, then the knobs.

    On real devices it names the cuts, which also depend on what was measured before. Phases are planned again by
    `autoauto phased`. Model and cluster of a search that was not started from the command line are those of the study's
    attributes.
    """
    plan, knobs = trial.plan, trial.knobs
    mode = ["--mode", "training"] if knobs.training else []
    model = _model_arguments(summary.attributes)
    if isinstance(plan, PhasedPlan):
        batch = [
            "--memory-proportion",
            f"{value_of(knobs, 'memory_proportion')}",
            "--batch-size",
            f"{knobs.batch_size}",
        ]
        phases = ["--steps", f"{plan.steps}", "--io-mode", f"{plan.io_mode}", "--replicas", f"{plan.n_replicas}"]
        recompute = ["--recompute"] if knobs.mode.recompute else []
        return shlex.join(["autoauto", "phased", *model, *batch, *phases, *mode, *recompute])
    command = "predict" if "--profile" in model else "measure"
    return shlex.join(["autoauto", command, *model, *mode, *_knob_arguments(knobs), *_cuts(summary, trial)])


def _cuts(summary: StudySummary, trial: Trial) -> list[str]:
    """The option that names the cuts of a pipeline that really ran."""
    partition, really_ran = trial.plan.partition, studied_origin(summary.attributes) is Origin.MEASURED
    if not really_ran or len(partition) == 2 or trial.knobs.mode.stage_replicas:
        return []
    return ["--partition", ",".join(map(str, partition))]


def _knob_arguments(knobs: Knobs) -> Iterator[str]:
    """The options of the knobs that matter for a pipeline; a switch that is off, as by default, is left out."""
    for knob in shown(knobs):
        value = value_of(knobs, knob.name)
        if value is not False or knob.default is True:
            yield from (knob.option, {True: "on", False: "off"}[value] if isinstance(value, bool) else f"{value}")


def _search_arguments(attributes: Mapping[str, str]) -> list[str]:
    """The arguments of the search as they were typed; none when it was called from Python."""
    first, second, *rest = [*shlex.split(attributes.get("command", "")), "", ""]
    return rest[:-2] if (first, second) == ("autoauto", "search") else []


def _model_arguments(attributes: Mapping[str, str]) -> list[str]:
    """The model, and the options for its target and estimate that differ from their defaults."""
    from autoauto.study.store.study import FLOW

    typed = _search_arguments(attributes)
    stored = _stored_arguments(attributes)
    flow = json.loads(attributes.get(FLOW, "{}"))
    from_python = bool(not typed and flow)
    try:
        words = typed or ([] if from_python else stored)
        return list(_options_of_model(words, flow if "--config" in typed or from_python else {}))
    except (argparse.ArgumentError, SystemExit):  # typed for a version of autoauto with other options
        return stored


def _stored_arguments(attributes: Mapping[str, str]) -> list[str]:
    """The model and its options as arguments, made from the attributes of the study."""
    arguments = [attributes.get("model", "")]
    for name, option in _STORED_OPTIONS.items():
        arguments += [option, attributes[name]] if attributes.get(name, "None") != "None" else []
    arguments += ["--headroom", attributes["headroom"]] if attributes.get("headroom", "0.0") != "0.0" else []
    return arguments


def _options_of_model(words: Sequence[str], from_file: dict[str, Any]) -> Iterator[str]:
    """The arguments among those of a search that `add_model` adds, unless they have their default values.

    Args:
        words: arguments of a search.
        from_file: values that its --config file sets, by the names of arguments.
    """
    of_search, of_model = argparse.ArgumentParser(exit_on_error=False), argparse.ArgumentParser(add_help=False)
    search.add_arguments(of_search)
    add_model(of_model)
    add_profile(of_model)
    values = {**vars(of_search.parse_known_args(words)[0]), **from_file}
    if mib := values["device_memory_mib"]:  # of an earlier command, or as studies store it
        values |= {"device_memory_gib": mib * MIB / GIB, "device_memory_mib": None}
    knobs = ("precision",) if precisions_of(values["target"]) else ()
    order = {dest: number for number, dest in enumerate(PROFILE_OPTIONS)}  # of a profile together, after all others
    for action in sorted(of_model._actions, key=lambda action: order.get(action.dest, -1)):
        value = values[action.dest]
        if not action.option_strings:
            yield from [] if value is None and values["profile"] else [str(value or DEFAULT_MODEL)]
        elif isinstance(value, list):
            for item in value:
                yield from (action.option_strings[0], str(item))
        elif isinstance(value, tuple):
            yield from [] if action.dest in knobs else [action.option_strings[0], ",".join(value)]
        elif value != action.default:
            yield action.option_strings[0]
            yield from [] if value is True else [str(value)]
