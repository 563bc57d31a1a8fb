"""The commands that measure the winner of a study again, and search again."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence

from autoauto.cli.commands import search
from autoauto.cli.options.execution import RECIPE
from autoauto.cli.options.model import add_model
from autoauto.records.knobs import Knobs
from autoauto.records.phased import PhasedPlan
from autoauto.records.study_summary import Contender, Findings

_KEPT = {name: f"--{name.replace('_', '-')}" for name in ("cluster", "precision", "estimator", "planning_proportion")}


def commands_of(found: Findings) -> list[tuple[str, str]]:
    """What each command does, and how it is typed."""
    told = []
    if found.winner is not None:
        told.append(("Measure it again", reproducing_command(found, found.winner)))
    if _typed(found.attributes):
        told.append(("Search again", found.attributes["command"]))
    return told


def reproducing_command(found: Findings, contender: Contender) -> str:
    """How to measure a configuration again: model and cluster as the search had them, then the knobs.

    Phases are planned again by `autoauto phased`. What was not searched from the command line is told by the names that
    the study keeps.
    """
    plan, knobs = contender.measured, contender.tried.knobs
    batch = ["--memory-proportion", f"{knobs.memory_proportion}", "--batch-size", f"{knobs.batch_size}"]
    mode = ["--mode", "training"] if knobs.training else []
    if isinstance(plan, PhasedPlan):
        own = ["--steps", f"{plan.steps}", "--io-mode", f"{plan.io_mode}", "--replicas", f"{plan.n_replicas}"]
        again = ["--recompute"] if knobs.recompute else []
        return shlex.join(["autoauto", "phased", *_model(found.attributes), *batch, *own, *mode, *again])
    pipeline = ["--n-ipu", f"{knobs.n_ipu}", *(["--replicas", f"{knobs.replicas}"] if knobs.replicas > 1 else [])]
    return shlex.join(["autoauto", "measure", *_model(found.attributes), *pipeline, *batch, *mode, *_training(knobs)])


def _training(knobs: Knobs) -> list[str]:
    if not knobs.training:
        return []
    again = ["--recompute", "on"] if knobs.recompute else []
    return ["--schedule", f"{knobs.schedule}", "--n-micro-batches", f"{knobs.n_micro_batches}", *again]


def _typed(told: Mapping[str, str]) -> list[str]:
    """The arguments of the search as they were typed; none when it was called from Python."""
    first, second, *rest = [*shlex.split(told.get("command", "")), "", ""]
    return rest[:-2] if (first, second) == ("autoauto", "search") else []


def _model(told: Mapping[str, str]) -> list[str]:
    """The model, and the options about where it runs that differ from their defaults."""
    kept = [word for name, option in _KEPT.items() if told.get(name, "None") != "None" for word in (option, told[name])]
    kept += ["--headroom", told["headroom"]] if told.get("headroom", "0.0") != "0.0" else []
    kept += ["--overlap"] if told.get("overlap") == "True" else []
    words = _typed(told) or [told.get("model", ""), *kept]
    from_file = json.loads(told.get(RECIPE, "{}")) if "--config" in words else {}
    try:
        return list(_options(words, from_file))
    except (argparse.ArgumentError, SystemExit):  # made by a version with other options
        return [told.get("model", ""), *kept]


def _options(words: Sequence[str], from_file: dict[str, object]) -> Iterator[str]:
    searched, shared = argparse.ArgumentParser(exit_on_error=False), argparse.ArgumentParser(add_help=False)
    search.add_arguments(searched)
    add_model(shared)
    values = {**vars(searched.parse_known_args(words)[0]), **from_file}
    for action in shared._actions:
        value = values[action.dest]
        if not action.option_strings:
            yield str(value)
        elif value != action.default:
            yield action.option_strings[0]
            yield from [] if value is True else [str(value)]
