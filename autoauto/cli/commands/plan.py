"""Cut a model into pipeline stages.

The exact optimum of max compute + max transfer.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from autoauto.cli.commands.plan_queries import QuerySubject, add_queries, best_plan, requested_query
from autoauto.cli.options.model import (
    PROFILE_OPTIONS,
    add_knobs,
    add_model,
    add_profile,
    open_flow,
    problem_of,
    requested_knobs,
)
from autoauto.cli.output.lines import add_json, print_json, show, warn
from autoauto.cli.output.plans import describe_configuration, show_infeasible, show_plan
from autoauto.records.errors import BadInput, DoesNotFit
from autoauto.records.hardware import Period
from autoauto.records.target import Origin
from autoauto.schedule.orders.registry import has_one_stage_each
from autoauto.space.knobs import DEFAULT_PLANNING_PROPORTION
from autoauto.space.modes.mode import Recompute
from autoauto.space.table import PIPELINE_KNOBS
from autoauto.targets.registry import default_options

EXAMPLE = "plan --model-info profile.json --cluster-info cluster.json --planning-proportion 0.85 --json"

MODEL_ARGUMENTS = (
    *("model", "target", "cluster", "headroom", "precision", *default_options(), "mode", "estimator", "cut_at"),
    *(knob.name for knob in PIPELINE_KNOBS if knob.name != "replicas"),
)
"""Arguments of a model; a profile excludes those that it does not use."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a model and one configuration, or a profile and a cluster in the format of [auto-pipeline]."""
    add_model(parser)
    add_knobs(parser, without=("replicas",))
    parser.add_argument(
        "--model-info",
        type=Path,
        metavar="FILE",
        help="plan this profile: ModelInfo of Graphcore's auto_pipeline as JSON, or a profile of `autoauto profile`",
    )
    parser.add_argument(
        "--cluster-info",
        type=Path,
        metavar="FILE",
        help="plan for all devices of this cluster: IPUClusterInfo of Graphcore's auto_pipeline as JSON",
    )
    parser.add_argument(
        "--config-info",
        type=Path,
        metavar="FILE",
        help="read the planning proportion from this AutoPipelineConfiguration of Graphcore's auto_pipeline as JSON",
    )
    add_profile(parser)
    defaults = {name: parser.get_default(name) for name in (*MODEL_ARGUMENTS, *PROFILE_OPTIONS)}
    parser.set_defaults(defaults=defaults)
    add_queries(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the partition and its costs, or the answer to another query."""
    from autoauto.profile.importers.auto_pipeline import planning_proportion_from_auto_pipeline
    from autoauto.records.files.json import read_json

    if (args.model_info is None) != (args.cluster_info is None):
        raise BadInput("--model-info and --cluster-info go together, got one of them; try both")
    if args.config_info is not None:
        args.planning_proportion = planning_proportion_from_auto_pipeline(
            read_json(args.config_info), str(args.config_info)
        )
    if args.model_info is None:
        return _plan_model(args)
    return _plan_profile(args)


def _plan_model(args: argparse.Namespace) -> int:
    flow = open_flow(args)
    knobs = requested_knobs(args, flow)
    if requested_query(args) is best_plan:
        try:
            gap, plan = flow.gap(knobs), flow.predict(knobs)
        except DoesNotFit as failure:
            return show_infeasible(args, failure)
        if gap > 0:
            warn(f"no plan costs more than {100 * gap:.1f} % less")
        return show_plan(args, flow, knobs, plan, Origin.ESTIMATED)
    if knobs.mode.stage_replicas:
        raise BadInput("stage replicas have the best plan only; leave the other query out")
    if not has_one_stage_each(knobs.step) or knobs.mode.recompute is Recompute.AUTO:
        raise BadInput("several stages a device and recompute auto have the best plan only; leave the other query out")
    context = describe_configuration(flow, knobs) | {"source": Origin.ESTIMATED}
    table, clock_hz = flow.table(knobs), flow.cluster.clock_hz
    subject = QuerySubject(table, flow.setting.names, clock_hz, knobs.batch_size, flow.setting.shown_clock_hz)
    return _answer(args, subject, context)


def _plan_profile(args: argparse.Namespace) -> int:
    from autoauto.estimate.table import cost_table
    from autoauto.profile.importers.auto_pipeline import cluster_from_auto_pipeline, read_profile
    from autoauto.records.files.json import read_json

    given = [name for name, default in args.defaults.items() if getattr(args, name, None) != default]
    if given:
        raise BadInput(f"a profile comes with its model and options, got {', '.join(given)} too; leave them out")
    cluster = cluster_from_auto_pipeline(read_json(args.cluster_info), str(args.cluster_info))
    profile = read_profile(args.model_info)
    proportion = DEFAULT_PLANNING_PROPORTION if args.planning_proportion is None else args.planning_proportion
    table = cost_table(profile, cluster, proportion, Period(problem_of(args).planning.period or Period.BARRIER))
    return _answer(args, QuerySubject(table, profile.names, cluster.clock_hz), {})


def _answer(args: argparse.Namespace, subject: QuerySubject, context: dict[str, Any]) -> int:
    try:
        answer = requested_query(args)(subject, args)
    except DoesNotFit as failure:
        return show_infeasible(args, failure)
    if args.json:
        print_json(context | answer.record)
    else:
        show(*answer.shown)
    return 0 if answer.fits else 3
