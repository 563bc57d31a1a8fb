"""Find the configuration with the highest throughput.

Every trial is stored, and a stopped search continues.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autoauto.cli.commands.studies.study_on_server import search_on_server
from autoauto.cli.options.model import add_model, add_profile, add_space, open_flow, say_defaults
from autoauto.cli.options.server import add_server, is_on_server
from autoauto.cli.options.study import add_executor, add_storage, add_workers, executor_maker, storage_words
from autoauto.cli.options.values import (
    at_most,
    configuration_text,
    constraint_text,
    labels,
    objectives,
    positive_number,
    seconds,
    share,
)
from autoauto.cli.output.busy import add_busy, describe_busy, heed_busy, state_of
from autoauto.cli.output.generation import describe_engines
from autoauto.cli.output.lines import add_json, print_json, print_line, show, show_command, warn
from autoauto.cli.output.log import add_log, best_event, open_log, write_event
from autoauto.cli.output.search_result import (
    describe_comparisons,
    describe_expected,
    describe_result,
    describe_speed,
    show_result,
    show_table_of_uses,
)
from autoauto.cli.search_config import add_config
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.target import RUNS_PLANS, Origin
from autoauto.records.units import digits
from autoauto.report.wording import configuration, headline
from autoauto.space.modes.mode import MAX_VALUES
from autoauto.space.numbers import RESULT_NAMES
from autoauto.space.objectives import MAX_MEASURED, Method, Objective
from autoauto.space.table import KNOB_NAMES, own_values

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.space.requests.request import SearchRequest, StudyConfig
    from autoauto.space.study_summary import StudySummary
    from autoauto.study.analysis.dry_run import DryRun
    from autoauto.study.execution.pace import Pace
    from autoauto.study.run import SearchResult


EXAMPLE = "search bert-large-128 --cluster bow-2000 --n-ipu 2,4 --batch-size 1:32"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a model, a cluster, the space, the method, and the database of the trials."""
    add_config(parser)
    add_model(parser)
    add_profile(parser)
    add_space(parser)
    add_objective(parser)
    _add_method(parser)
    _add_measuring(parser)
    add_workers(parser, None, "this process measures itself")
    add_executor(parser)
    add_storage(parser)
    add_server(parser, "search on")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="with --server: let a search that was stopped, has failed or whose budget has ended go on",
    )
    parser.add_argument("--study-name", metavar="NAME", help="default: made of all that the answer depends on")
    add_log(parser, "a bar, on a terminal only")
    add_json(parser)


def add_objective(parser: argparse.ArgumentParser) -> None:
    """Add what to optimise, and what must hold."""
    parser.add_argument(
        "--objective",
        type=objectives,
        default=Objective.THROUGHPUT,
        metavar="|".join(Objective),
        help=f"{'; '.join(f'{each}: {each.help}' for each in Objective)}; several with commas: their Pareto front; "
        f"default {Objective.THROUGHPUT}",
    )
    parser.add_argument(
        "--constraint",
        type=constraint_text,
        action="append",
        dest="constraints",
        metavar="EXPR",
        help=f'what must hold, for example "n_ipu * replicas <= 16", of {", ".join((*KNOB_NAMES, *RESULT_NAMES))}; '
        "may be given several times",
    )
    parser.add_argument(
        "--max-latency-s",
        type=positive_number,
        metavar="S",
        help=f'the same as --constraint "latency_s <= S": {Objective.LATENCY.help}',
    )
    for name, words in (("ttft", "time to first token"), ("tpot", "time per output token after the first")):
        parser.add_argument(
            f"--max-{name}-ms",
            f"--{name}",
            type=positive_number,
            metavar="MS",
            help=f'the same as --constraint "{name} <= MS ms": {words}, milliseconds',
        )


def _add_method(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--method",
        choices=[str(method) for method in Method],
        help="guided: measure the best configuration by the estimate, until no other can be better; grid-bisect: "
        "bisect the batch size for every combination of the other knobs; exhaustive: every configuration; tpe, random: "
        "Optuna's samplers; default guided, or tpe for several objectives, which guided does not support",
    )
    parser.add_argument(
        "--n-measurements",
        type=at_most(MAX_VALUES),
        default=30,
        metavar="N",
        help="of tpe and random; default %(default)s",
    )
    parser.add_argument(
        "--noise",
        type=share,
        metavar="SHARE",
        help="values that differ by no more are ties, and the simpler configuration wins; "
        f"default {RUNS_PLANS.noise}, and 0 on a simulated target",
    )
    parser.add_argument(
        "--repeats",
        type=at_most(1_000, minimum=0),
        metavar="N",
        help="measure the winner again N times, in turns with the next best and, on this machine, one session; 0 for "
        "not at all; default 3, and 1 on a cost model, which gives the same number each time",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="for --target host: the whole model without cuts, at batch sizes 1 and 8, in one session of all cores or "
        "in several that take all cores, each measured once; no turns at the end and no other formats",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="take the highest forecast; by default fewer stages or smaller groups of GPUs win where the error of "
        "forecasts does not tell them apart from it",
    )
    parser.add_argument(
        "--try",
        type=configuration_text,
        action="append",
        metavar="KNOBS",
        help="try this configuration of the space first, for example n_ipu=2,batch_size=8, other knobs at their "
        "defaults; may be given several times",
    )
    parser.add_argument(
        "--time-budget",
        type=seconds,
        metavar="S|5m|2h",
        help="time after which nothing further is tried: the best so far is verified, and is the answer",
    )
    add_busy(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="print the estimates and what would be tried; measure nothing"
    )


def _add_measuring(parser: argparse.ArgumentParser) -> None:
    """Add how many configurations are measured, and how their engines are started."""
    parser.add_argument(
        "--measure",
        type=at_most(MAX_MEASURED, minimum=0),
        default=0,
        metavar="K",
        help="start the best configurations on real engines and measure up to K of them, one after the other, each the "
        "one that is likely best by all before; default %(default)s: the answer is modelled",
    )
    parser.add_argument(
        "--measure-flips",
        type=at_most(MAX_MEASURED, minimum=0),
        default=0,
        metavar="N",
        help="measure up to N more: the answer with another value of one knob, those nearest to it by forecast first",
    )
    parser.add_argument(
        "--launch",
        metavar="WAY",
        help="how engines are started to be measured: local, on this machine; ssh:HOST, or ssh:HOST1,HOST2 for several "
        "machines; docker, in containers of this machine; default local",
    )
    parser.add_argument(
        "--endpoint",
        action="append",
        metavar="URL",
        help="somebody else starts engines to be measured: commands are printed, and measured once the server at URL "
        "answers; several times for several replicas, or once for what shares requests out among them; its key is "
        "read from the variable OPENAI_API_KEY",
    )
    parser.add_argument(
        "--launch-timeout",
        type=positive_number,
        metavar="S",
        help="seconds until an engine that was started must answer; default 1800",
    )
    parser.add_argument(
        "--measure-on",
        type=labels,
        default={},
        metavar="NAME=VALUE,...",
        help="with --server and --measure: what the worker says of itself that measures, for example gpu=h100; "
        "it must have been started with --launch",
    )


def run(args: argparse.Namespace) -> int:
    """Search, store every trial, print the best configuration."""
    from autoauto.space.requests.request import SearchRequest
    from autoauto.study.methods.registry import method_for

    args.method = method_for(args.objective, args.method)
    request = SearchRequest.of(vars(args))
    if is_on_server(args) and not args.dry_run:
        return search_on_server(args, request)
    _check(args)
    flow = open_flow(args)
    if args.dry_run:
        return show_dry_run(args, flow, request.study)
    if args.executor is None:  # else others measure on their machines
        heed_busy(flow, args.busy)
    result = search_with_log(args, flow, request)
    assert result.summary is not None
    if args.json:
        record = describe_result(result, args.storage, flow)
        record |= describe_comparisons(result.summary) if result.best else describe_engines(result.summary)
        if args.time_budget:
            record["out_of_time"] = result.out_of_time
        print_json(record | describe_busy(flow))
    elif result.front:
        _show(args, flow, result, result.summary)
        if args.executor is None and not args.quick:  # others measure on their machines
            _show_lower_precisions(flow, result)
    if not result.front:
        return _say_why_nothing(args, flow, result)
    if args.log == "json":
        answer: dict[str, Any] = {"best": None, "front": list(map(best_event, result.front))}
        if result.best is not None:
            answer = {"best": best_event(result.best)}
        write_event("end", exit_code=0, study_name=result.study_name, **answer, **result.counts._asdict())
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.measure_on:
        raise BadInput("--measure-on says which worker of a server measures, got no --server; here it is this machine")
    if args.resume:
        raise BadInput("--resume is for --server, got none; here the same command continues a search")
    if args.dry_run and args.measure:
        raise BadInput(f"--dry-run measures nothing, got --measure {args.measure}; leave one of them out")


def _say_why_nothing(args: argparse.Namespace, flow: Flow, result: SearchResult) -> int:
    """Say that nothing fits before what was assumed and where the study is, and return the exit code."""
    from autoauto.study.run import nothing_fits

    error = nothing_fits(result)
    if args.json or args.log == "json":
        raise error
    warn(str(error))
    sys.stderr.flush()
    assert result.summary is not None
    _show(args, flow, result, result.summary)
    return error.exit_code


def search_with_log(args: argparse.Namespace, flow: Flow, request: SearchRequest) -> SearchResult:
    """Search as the arguments say, show the progress, and verify the winner."""
    from autoauto.study.run import Observers
    from autoauto.study.search import StudyStorage, search_study

    about = {"headroom": f"{args.headroom}"}
    typed = {"command": typed_command(sys.argv[1:], args.storage)}
    storage = StudyStorage(args.storage, args.study_name, about, typed, request)
    with open_log(args.log, args.method) as log:
        observers = Observers(log.trial, log.progress, log.verification, warn, warn)
        return search_study(flow, request.study, storage, executor_maker(args, flow), observers)


def typed_command(words: Sequence[str], storage: str) -> str:
    """The command as it was typed, without the storage's password."""
    from autoauto.study.store.database import shown_storage

    shown = shown_storage(storage)
    return shlex.join(["autoauto", *(word.replace(storage, shown) for word in words)])


def _show_lower_precisions(flow: Flow, result: SearchResult) -> None:
    """Print what formats would give that the search was not asked for, where devices run the model."""
    from autoauto.evaluate.lower_precision import lower_precisions

    if result.best is None or not flow.traits.space.get("runtime"):
        return
    for lower in lower_precisions(flow, result.space, result.best):
        asked = ",".join(map(str, (*result.space["precision"], lower.precision)))
        error = f"outputs differ by {100 * lower.output_error:.2g} %"
        print_line(f"{lower.precision}: {lower.speedup:.1f}x, {error} (--precision {asked})")


def _show(args: argparse.Namespace, flow: Flow, result: SearchResult, summary: StudySummary) -> None:
    from autoauto.study.store.database import shown_storage

    say_defaults(args)
    show_result(flow, result, summary, args.objective)
    if result.out_of_time:
        budget = digits(args.time_budget, 6)
        print_line(f"the time budget of {budget} s ended the search; the same command continues it")
    print_line(f"study {result.study_name} in {shown_storage(args.storage)}")
    command = shlex.join(["autoauto", "explain", result.study_name, *storage_words(args.storage)])
    show_command("why the others lost" if result.front else "why", command)


def show_dry_run(args: argparse.Namespace, flow: Flow, config: StudyConfig) -> int:
    """Print the estimates and what a search would try; no trial is made."""
    from autoauto.report.tables.trials import dry_run_table
    from autoauto.study.analysis.dry_run import dry_run, expected_winner
    from autoauto.study.arguments import Extent, check_objectives, chosen_method, n_repeats_of, space_of
    from autoauto.study.execution.pace import known_pace
    from autoauto.study.verify_winner import n_verification_measurements

    check_objectives(flow, config.objectives)
    space = space_of(flow, config.space, config.objectives, quick=config.quick)
    choice = chosen_method(flow, config, space, Extent.of(space, config.tries, None).first)
    if flow.first_mode.simulates:
        raise BadInput("a dry run simulates no arrivals, so it cannot tell which bounds hold; leave --dry-run out")
    expected = dry_run(space, flow.expect, config.objectives, choice, flow)
    n_again = n_verification_measurements(flow, n_repeats_of(flow, config))
    pace = known_pace(args.storage, flow.fingerprint())
    expected_s = None
    if pace is not None:  # workers share the measurements of the search, but not those of the verification
        expected_s = pace.seconds * (expected.n_measured / (args.workers or 1) + n_again)
    winner, machine = expected_winner(expected.cells, space, config.objectives), state_of(flow)
    if args.json:
        best = winner and {**own_values(winner[0].knobs), **describe_speed(winner[0])}
        record = expected._asdict() | {"best": best, "cells": list(map(describe_expected, expected.cells))}
        record |= {"n_again": n_again, "expected_s": expected_s}
        if machine is not None:
            record["machine"] = machine.to_json()
        print_json(record)
        return _dry_exit_code(expected)
    say_defaults(args)
    if winner is not None:
        trial, comparisons = winner
        needs = flow.setting.needs(trial.knobs.session)
        print_line("; ".join(filter(None, (headline(trial, Origin.ESTIMATED), needs))))
        show_table_of_uses(comparisons, Origin.ESTIMATED)
    show(dry_run_table(expected.cells, config.objectives))
    if (n_others := len(space.cells) - len(expected.cells)) > 0:
        print(f"{n_others:,} further combinations need no forecast: bounds of theirs say that they are no better")
    print(
        f"{args.method} would try {expected.n_tried:,} of {expected.n_configurations:,} configurations and measure "
        f"{expected.n_measured:,}, if all measurements equal the estimates; nothing was measured"
    )
    print_line(_time_line(args.storage, pace, expected_s, expected.n_measured, n_again))
    if machine is not None:
        print_line(f"threads: {machine.threads_text}")
    return _dry_exit_code(expected)


def _dry_exit_code(expected: DryRun) -> int:
    """0, or 3 with a line on stderr where by the estimate nothing fits or meets the bounds."""
    trials = [trial for entry in expected.cells for trial in entry.cell.trials]
    if any(trial.fits for trial in trials):
        return 0
    running = [trial for trial in trials if trial.runs]
    nearest = min(running or trials, key=lambda trial: trial.violation, default=None)
    nearest_text = "" if nearest is None else f"; the nearest is {configuration(nearest.knobs)}: {nearest.reason}"
    warn(f"by the estimate no configuration fits and meets the bounds{nearest_text}")
    return Infeasible.exit_code


def _time_line(storage: str, pace: Pace | None, expected_s: float | None, n_measured: int, n_again: int) -> str:
    """A line on how long the measurements would take; known if the database has some of this model on these devices."""
    from autoauto.study.store.database import shown_storage

    database = shown_storage(storage)
    if pace is None or expected_s is None:
        return f"time to measure: not known, since {database} holds no measurement of this model on these devices"
    again = f", and {n_again} to measure the best again" if n_again else ""
    each = f"{digits(pace.seconds, 2)} s, the median of {pace.n_known:,} in {database}"
    return f"time to measure: about {digits(expected_s, 2)} s, {n_measured:,} of the search{again}, each {each}"
