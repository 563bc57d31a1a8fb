"""Commands of a study to copy: to measure its winner again, `reproducing_command`, to export it, to search again."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autoauto.cli.options.model import PROFILE_OPTIONS, add_model, add_profile
from autoauto.cli.options.study import DEFAULT_STORAGE
from autoauto.engines.registry import engine_named
from autoauto.graph.load import find_model
from autoauto.records.errors import UnreadableModel
from autoauto.records.files.uploads import named_uploads
from autoauto.records.installation import DEFAULT_MODEL
from autoauto.records.plans.phased import PhasedPlan
from autoauto.records.target import Origin, studied_origin
from autoauto.records.units import GIB, MIB
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.modes.training import Training
from autoauto.space.objectives import objectives_text
from autoauto.space.requests.given import values_given
from autoauto.space.study_summary import SERVED, StudySummary
from autoauto.space.table import TABLE, flat_value, shown
from autoauto.space.trial import Trial
from autoauto.targets.registry import DEFAULT_TARGET

if TYPE_CHECKING:
    from autoauto.space.requests.problem import Problem
    from autoauto.space.requests.request import KnobValues, SearchRequest, StudyConfig
    from autoauto.space.space import SearchSpace


def commands_of(summary: StudySummary) -> list[tuple[str, str]]:
    """Pairs of a purpose and the command for it, to copy."""
    commands = []
    winner = summary.winner
    if winner is not None:
        command = reproducing_command(summary, winner)
        purpose = "Predict it again" if command.startswith("autoauto predict") else "Measure it again"
        commands.append((purpose, command))
        if _is_exported(summary, winner):
            commands.append(("Export it", _export_command(summary, winner)))
    # Options of the output are not asked for again.
    typed = shlex.split(summary.attributes.get("command", ""))
    if typed[:2] == ["autoauto", "search"] and typed[2:]:  # else it was called from Python
        output = argparse.ArgumentParser(add_help=False)
        output.add_argument("--json", action="store_true")
        output.add_argument("--log")
        _, again = output.parse_known_args(typed[2:])
        commands.append(("Search again", shlex.join(["autoauto", "search", *again])))
    return commands


def _is_exported(summary: StudySummary, winner: Trial) -> bool:
    """True if `autoauto export STUDY` writes the winner; if a model has the same name, that model is exported."""
    of_a_profile = problem_of_study(summary.attributes).profile is not None
    if winner.knobs.training or of_a_profile or winner.knobs.is_phased:
        return False
    try:
        find_model(summary.study_name)
    except UnreadableModel:
        return True
    return False


def _export_command(summary: StudySummary, winner: Trial) -> str:
    name, storage = summary.study_name, summary.storage
    engine = winner.knobs.values.get("engine")
    to = "onnx" if engine is None else engine_named(engine).launcher.to
    words = ["autoauto", "export", name]
    if storage not in (DEFAULT_STORAGE, SERVED):
        words += ["--storage", storage]
    return shlex.join([*words, "--to", to, "--output", f"{name}-{to}"])


def reproducing_command(summary: StudySummary, trial: Trial) -> str:
    """The command that measures a configuration again: model and cluster as in the search, then the knobs.

    On real devices it names the cuts, which also depend on what was measured before. Phases are planned again by
    `autoauto phased`.
    """
    plan, knobs = trial.plan, trial.knobs
    problem = problem_of_study(summary.attributes)
    if isinstance(plan, PhasedPlan):
        return shlex.join(["autoauto", "phased", *problem_words(problem), *_phase_arguments(knobs, plan)])
    command = "measure"
    if problem.profile is not None or isinstance(knobs.mode, Generation):
        command = "predict"
    words = ["autoauto", command, *problem_words(problem)]
    if knobs.training:
        words += ["--mode", "training"]
    return shlex.join([*words, *_knob_arguments(knobs), *_cuts(summary, trial), *_rate(problem, trial)])


def _phase_arguments(knobs: Knobs, plan: PhasedPlan) -> Iterator[str]:
    yield from ("--memory-proportion", f"{flat_value(knobs, 'memory_proportion')}")
    yield from ("--batch-size", f"{knobs.batch_size}", "--steps", f"{plan.steps}")
    yield from ("--io-mode", f"{plan.io_mode}", "--replicas", f"{plan.n_replicas}")
    if knobs.training:
        yield from ("--mode", "training")
    if knobs.mode.may_recompute:
        yield "--recompute"


def _rate(problem: Problem, trial: Trial) -> list[str]:
    """The option of the rate that the search has bisected; none where requests arrive at one that was given."""
    rate = trial.result.value("rate_per_s")
    is_given = any(problem.options.get(name) is not None for name in ("rate", "trace", "for_rate", "for_trace"))
    return [] if rate is None or is_given else ["--rate", repr(rate)]


def _cuts(summary: StudySummary, trial: Trial) -> list[str]:
    """The option that names the cuts of a pipeline that really ran."""
    partition = trial.plan.partition
    really_ran = studied_origin(summary.attributes) is Origin.MEASURED
    if not really_ran or len(partition) == 2 or trial.knobs.mode.stage_replicas:
        return []
    return ["--partition", ",".join(map(str, partition))]


def _knob_arguments(knobs: Knobs) -> Iterator[str]:
    """The options of the knobs that matter for a pipeline; a switch that is off, as by default, is left out."""
    for knob in shown(knobs):
        value = flat_value(knobs, knob.name)
        if value is not False or knob.default is True:
            yield knobs.session.words.pipeline_option if knob.name == "n_ipu" else knob.option
            yield f"{_typed(value)}"


def _typed(value: object) -> object:
    """A value of a knob as it is typed: switches are on or off."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return value


def problem_of_study(attributes: Mapping[str, str]) -> Problem:
    """The problem of a study, from its request; if it was started with objects in Python, from its attributes."""
    from autoauto.space.requests.problem import Problem
    from autoauto.space.requests.request import SearchRequest
    from autoauto.study.store.study import REQUEST

    if REQUEST in attributes:
        return SearchRequest.from_json(attributes[REQUEST]).problem
    values: dict[str, object] = {}
    for name in (*_TEXTS, *_NUMBERS):
        text = attributes.get(name, "None")
        if text != "None":
            values[name] = float(text) if name in _NUMBERS else text
    return Problem.of(values)


def search_command(request: SearchRequest) -> str:
    """The command that asks for a search; what it does not say is a default."""
    words = ["autoauto", "search", *problem_words(request.problem)]
    for each in request.problem.constraints:
        words += ["--constraint", each.text]
    return shlex.join([*words, *_study_words(request.study)])


def _study_words(study: StudyConfig) -> Iterator[str]:
    from autoauto.space.requests.request import StudyConfig
    from autoauto.study.methods.registry import method_for

    default = StudyConfig()
    yield from _space_words(study.space)
    if study.objectives != default.objectives:
        yield from ("--objective", objectives_text(study.objectives))
    if study.method is not None and study.method != method_for(study.objectives, None):
        yield from ("--method", study.method)
    if study.n_measurements != default.n_measurements:
        yield from ("--n-measurements", f"{study.n_measurements}")
    others = {
        "--noise": study.noise,
        "--repeats": study.n_repeats,
        "--time-budget": study.time_budget_s,
        "--measure": study.measure.n_most or None,
        "--measure-flips": study.measure.n_flips or None,
    }
    for option, value in others.items():
        if value is not None:
            yield from (option, f"{value}")
    if study.strict:
        yield "--strict"
    if study.quick:
        yield "--quick"
    tries = [study.tries] if isinstance(study.tries, str | Knobs | Mapping) else study.tries
    for configuration in tries:
        yield "--try"
        yield configuration if isinstance(configuration, str) else _given_text(configuration)


def _space_words(space: SearchSpace | KnobValues) -> Iterator[str]:
    from autoauto.space.requests.request import KnobValues

    values: Mapping[str, Sequence[object]]
    if isinstance(space, KnobValues):
        values = space.values
        global_batch = space.global_batch
    else:
        values = {name: space[name] for name in space.given}
        global_batch = None
    if any(knob.name in values for knob in Training.knobs):
        yield from ("--mode", "training")
    for name, some in values.items():
        if name != "n_micro_batches" or not global_batch:  # they follow from it
            yield from (TABLE[name].option, _values_text(some))
    for constraint in space.constraints:
        yield from ("--constraint", constraint.text)
    if global_batch is not None:
        yield from ("--global-batch", f"{global_batch}")


def _values_text(values: Sequence[object]) -> str:
    """Values of a knob as they are typed.

    >>> _values_text([1, 2, 3]), _values_text([True, False])
    ('1:3', 'on,off')
    """
    from autoauto.study.store.study import format_values

    return format_values([_typed(value) for value in values])


def _given_text(configuration: Knobs | Mapping[str, object]) -> str:
    values = values_given(configuration) if isinstance(configuration, Knobs) else configuration
    return ",".join(f"{name}={_values_text([value])}" for name, value in values.items())


_TEXTS = ("model", "cluster", "precision", "estimator", "period", "cut_at")
_NUMBERS = ("headroom", "planning_proportion")
"""The values of a problem that a study has as attributes, of its fingerprint."""


def problem_words(problem: Problem) -> Iterator[str]:
    """The model, and the options that differ from their defaults, with files below this folder by their short paths."""
    parser = argparse.ArgumentParser(add_help=False)
    add_model(parser)
    add_profile(parser)
    parser.set_defaults(target=DEFAULT_TARGET)
    values = problem.with_paths(_short).values
    if mib := values["device_memory_mib"]:  # which commands have in GiB
        values |= {"device_memory_gib": mib * MIB / GIB, "device_memory_mib": None}
    order = {dest: number for number, dest in enumerate(PROFILE_OPTIONS)}  # of a profile together, after all others
    for action in sorted(parser._actions, key=lambda action: order.get(action.dest, -1)):
        value = values.get(action.dest)
        if not action.option_strings:
            if value is not None:
                yield named_uploads(str(value))
            elif not problem.profile:
                yield DEFAULT_MODEL
        elif isinstance(value, list | tuple):
            for item in value:
                yield from (action.option_strings[0], str(item))
        elif value not in (None, False, action.default):
            yield action.option_strings[0]
            if value is not True:
                yield named_uploads(str(value))


def _short(path: Path) -> str:
    """A path from this folder where it lies below it, else all of it."""
    whole, here = path.resolve(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)
