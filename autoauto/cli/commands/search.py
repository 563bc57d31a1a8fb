"""Find the configuration with the highest throughput; every trial is kept, a stopped search goes on where it was."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from autoauto.cli.config.search_config import add_config
from autoauto.cli.options.constraints import add_constraints, constraints_of
from autoauto.cli.options.execution import RECIPE, add_executor, add_workers, hands_of, recipe
from autoauto.cli.options.model import (
    DEFAULT_STORAGE,
    add_json,
    add_model,
    add_storage,
    add_training,
    aim,
    choices_of,
    training_values,
)
from autoauto.cli.options.numbers import integers, positive, proportions, share
from autoauto.cli.options.targets import open_flow
from autoauto.cli.options.verification import add_repeats, n_again_of, verified
from autoauto.cli.output.log import add_log, best_event, open_again, open_log, write_event
from autoauto.cli.output.results import (
    describe_cell,
    describe_compared,
    describe_result,
    findings_of,
    print_json,
    show_best,
    show_compared,
    show_front,
)
from autoauto.records.knobs import DEFAULT_NOISE, Method, Objective, SearchSpace, Strategy, aim_name

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.records.study_summary import Findings
    from autoauto.study.run import SearchResult

EXAMPLE = "search bert-large-128 --cluster bow-2000 --n-ipu 2,4 --batch-size 1:32"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take a model, a cluster, the space and where to keep the trials."""
    add_config(parser)
    add_model(parser)
    parser.add_argument(
        "--n-ipu", type=integers, metavar="1,2,4", help="devices in the pipeline; default: powers of two, at most 4"
    )
    parser.add_argument(
        "--replicas", type=integers, metavar="1,2", help="pipelines side by side; default 1, or 1,2,4 on the host"
    )
    parser.add_argument(
        "--memory-proportion",
        type=proportions,
        metavar="0.3,0.6,1.0",
        help="bounds on the temporary memory of a matmul or convolution, on the host the part of a device's memory; "
        "default 0.3,0.6,1.0, or 1.0 on the host",
    )
    parser.add_argument(
        "--batch-size",
        type=integers,
        metavar="1:128",
        help="batch sizes, both ends included; default 1:128, or 1,2,4,8,16,32 on the host",
    )
    add_training(parser, several=True)
    parser.add_argument(
        "--strategy",
        type=choices_of(tuple(Strategy)),
        metavar="pipeline,phased",
        help="stages on several devices, or phases on each, from streaming memory; "
        "default: pipeline, and phased where no pipeline fits",
    )
    parser.add_argument(
        "--steps",
        type=integers,
        default=(16,),
        metavar="16",
        help="micro-batches that go through a phase before the next begins; default 16",
    )
    parser.add_argument(
        "--objective",
        type=aim,
        default=Objective.THROUGHPUT,
        metavar="|".join(Objective),
        help="samples per second, the seed's cycles x n_ipu / batch (also a proxy for energy), or seconds from entry "
        "to result; several with commas: all that no other beats in one without losing in another; default throughput",
    )
    add_constraints(parser)
    add_method(parser)
    add_repeats(parser)
    add_workers(parser, None, "this process measures itself")
    add_executor(parser)
    add_storage(parser)
    parser.add_argument("--study-name", metavar="NAME", help="default: model, cluster and objective")
    add_log(parser, "a bar, on a terminal only")
    add_json(parser)


def add_method(parser: argparse.ArgumentParser) -> None:
    """Take how configurations are chosen."""
    parser.add_argument(
        "--method",
        choices=[str(method) for method in Method],
        help="guided: what the estimate finds best, as long as anything could be better; grid-bisect: the batch size "
        "bisected in every cell; exhaustive: everything; tpe, random: Optuna's samplers; default guided, or tpe for "
        "several objectives, of which guided knows none",
    )
    parser.add_argument(
        "--n-measurements", type=positive, default=30, metavar="N", help="of tpe and random; default %(default)s"
    )
    parser.add_argument(
        "--noise",
        type=share,
        metavar="SHARE",
        help="values that differ by no more are ties, and the simpler configuration wins; "
        f"default {DEFAULT_NOISE}, and 0 on a simulated target",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="tell what the estimate says and what would be tried; measure nothing"
    )


def run(args: argparse.Namespace) -> int:
    """Search, keep every trial, print the best configuration."""
    from autoauto.study.methods.registry import method_for

    args.method = method_for(args.objective, args.method)
    flow = open_flow(args)
    space = search_space(args, flow)
    if args.dry_run:
        return show_rehearsal(args, flow, space)
    result = search(args, flow, space)
    found = None if result.best is None else findings_of(result.study_name, args.storage, result.best)
    if args.json:
        print_json(describe_result(result, args.storage) | (describe_compared(found) if found else {}))
    else:
        _show(args, flow, result, found)
    if not result.front:
        from autoauto.study.search import nothing_fits

        raise nothing_fits(result)
    if args.log == "json":
        best = result.best and best_event(result.best)
        front = {} if result.best else {"front": list(map(best_event, result.front))}
        write_event("end", exit_code=0, study_name=result.study_name, best=best, **front, **result.counts._asdict())
    return 0


def _show(args: argparse.Namespace, flow: Flow, result: SearchResult, found: Findings | None) -> None:
    """Print the best, why it is that, and where to read more."""
    from autoauto.study.store.database import shown_storage

    if result.best is not None:
        show_best(result.best, result.counts, result.cells, flow.target.version, flow.names)
    elif result.front:
        show_front(result.front, result.counts, args.objective, flow.target.version)
    if found is not None:
        show_compared(found)
    elif result.best is not None:
        print("the study knows a better one outside this space; `autoauto report` shows it")
    where = shown_storage(args.storage)
    print(f"study {result.study_name} in {where}")
    named = [result.study_name, *([] if args.storage == DEFAULT_STORAGE else ["--storage", where])]
    print(f"why, cell by cell: {shlex.join(['autoauto', 'explain', *named])}")


def search(args: argparse.Namespace, flow: Flow, space: SearchSpace) -> SearchResult:
    """Search as the arguments say, show how far it is, and measure the best again."""
    from autoauto.study.search import search_flow
    from autoauto.study.store.study import join_study

    with open_log(args.log, args.method) as log:
        result = search_flow(
            flow,
            space,
            aim_name(args.objective),
            args.method,
            n_measurements=args.n_measurements,
            noise=args.noise,
            storage=args.storage,
            study_name=args.study_name,
            about={"headroom": f"{args.headroom}"},
            notes={"command": typed_command(sys.argv[1:], args.storage), RECIPE: recipe(args)},
            hands=hands_of(args, flow),
            or_phased=args.strategy is None,
            callback=log.trial,
            progress=log.progress,
            tell=lambda line: print(f"autoauto: {line}", file=sys.stderr),
        )
    with open_again(args.log) as again:
        return verified(args, flow, join_study(args.storage, result.study_name), result, again)


def typed_command(words: Sequence[str], storage: str) -> str:
    """The command as it was typed, without the storage's password."""
    from autoauto.study.store.database import shown_storage

    shown = shown_storage(storage)
    return shlex.join(["autoauto", *(word.replace(storage, shown) for word in words)])


def show_rehearsal(args: argparse.Namespace, flow: Flow, space: SearchSpace) -> int:
    """Print what the estimate says of every cell and what a search would try; no trial is made."""
    from rich.console import Console

    from autoauto.report.text.trials import rehearsal_table
    from autoauto.study.analysis.dry_run import rehearsal_of
    from autoauto.study.execution.pace import known_pace
    from autoauto.study.search import default_noise
    from autoauto.study.store.database import shown_storage

    noise = default_noise(flow) if args.noise is None else args.noise
    told = rehearsal_of(space, flow.expect, args.objective, Method(args.method), noise, args.n_measurements)
    n_again = n_again_of(args, flow)
    pace = known_pace(args.storage, flow.fingerprint())
    expected_s = None if pace is None else pace.seconds * (told.n_measured / (args.workers or 1) + n_again)
    if args.json:
        cells = list(map(describe_cell, told.cells))
        print_json(told._asdict() | {"cells": cells, "n_again": n_again, "expected_s": expected_s})
        return 0
    Console().print(rehearsal_table(told.cells))
    print(
        f"{args.method} would try {told.n_tried:,} of {told.n_configurations:,} configurations and measure "
        f"{told.n_measured:,}, if all come out as estimated; nothing was measured"
    )
    again = f", and {n_again} to measure the best again" if n_again else ""
    where = shown_storage(args.storage)
    if pace is None or expected_s is None:
        print(f"time to measure: not known, since {where} holds no measurement of this model on these devices")
    else:
        took = f"{pace.seconds:.2g} s, the median of {pace.n_known:,} in {where}"
        print(f"time to measure: about {expected_s:.2g} s, {told.n_measured:,} of the search{again}, each {took}")
    return 0


def search_space(args: argparse.Namespace, flow: Flow) -> SearchSpace:
    """The space that the arguments name; what they leave open is the default of the target.

    Raises:
        BadInput: the model or the cluster does not go so far.
    """
    from autoauto.study.search import default_space

    schedule, recompute, n_micro_batches = training_values(args)
    names = ("n_ipu", "memory_proportion", "batch_size", "strategy", "replicas")
    given = {name: value for name in names if (value := getattr(args, name)) is not None}
    space = replace(
        default_space(flow),
        schedule=schedule,
        recompute=recompute,
        n_micro_batches=n_micro_batches,
        steps=args.steps,
        constraints=tuple(constraint for constraint in constraints_of(args) if constraint.over_knobs),
        **given,
    )
    flow.check(space)
    return space
