"""Cut a model into pipeline stages.

The exact optimum of max compute + max transfer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from autoauto.cli.options.model import (
    PROFILE_OPTIONS,
    add_knobs,
    add_model,
    add_profile,
    open_flow,
    problem_of,
    requested_knobs,
)
from autoauto.cli.options.values import at_most
from autoauto.cli.output.lines import add_json, print_json, show, warn
from autoauto.cli.output.plans import describe_configuration, describe_plan, show_infeasible, show_plan
from autoauto.estimate.table import cost_table
from autoauto.plan.pipeline.interleaved import interleaved
from autoauto.plan.pipeline.optimal import optimal
from autoauto.plan.queries import best_per_device_count, explain, k_best, pareto_front, replicas
from autoauto.records.errors import BadInput, DoesNotFit
from autoauto.records.hardware import Period
from autoauto.records.plans.plan import Plan
from autoauto.records.target import Origin
from autoauto.records.units import format_number
from autoauto.schedule.orders.registry import has_one_stage_each
from autoauto.space.knobs import DEFAULT_PLANNING_PROPORTION
from autoauto.space.modes.mode import Recompute
from autoauto.space.table import PIPELINE_KNOBS
from autoauto.targets.registry import default_options

if TYPE_CHECKING:
    from autoauto.records.costs.cost import CostTable
    from autoauto.report.tables.table import Table

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
            gap, plan = flow.mode(knobs).gap(knobs), flow.predict(knobs)
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


MAX_PLANS = 1_000  # of one answer: some seconds of BERT on eight devices
MAX_CHUNKS = 1_000  # a device; each needs a layer of its own, and a row in tables


class QuerySubject(NamedTuple):
    """The subject of a query: costs of layers, their names and units.

    Attributes:
        batch_size: None when it is not known.
        shown_clock_hz: the same clock, where time is shown instead of cycles.
    """

    table: CostTable
    names: tuple[str, ...]
    clock_hz: float
    batch_size: int | None = None
    shown_clock_hz: float | None = None


class QueryAnswer(NamedTuple):
    """The answer to a query.

    Attributes:
        fits: whether there is a plan.
    """

    record: dict[str, Any]
    shown: tuple[Table | str, ...]
    fits: bool = True


def add_queries(parser: argparse.ArgumentParser) -> None:
    """Add one query, or none."""
    queries = parser.add_argument_group("instead of the best plan alone").add_mutually_exclusive_group()
    for option, text in (
        ("--explain", "the best plan, what limits it, and what moving a cut would cost"),
        ("--per-device-count", "the best plan for every number of devices from one to all that are given"),
        ("--as-replicas", "divide the devices among copies of one pipeline: the most micro-batches per second"),
    ):
        queries.add_argument(option, action="store_const", const=True, help=text)
    queries.add_argument("--k-best", type=at_most(MAX_PLANS), metavar="K", help="the K cheapest different plans")
    queries.add_argument(
        "--pareto-front",
        type=at_most(MAX_PLANS),
        nargs="?",
        const=100,
        metavar="MAX",
        help="the Pareto front of compute, transfer and peak memory, up to MAX plans; default %(const)s",
    )
    queries.add_argument(
        "--chunks",
        type=at_most(MAX_CHUNKS),
        metavar="V",
        help="V stages per device, dealt out in turn as interleaved schedules need",
    )


def best_plan(subject: QuerySubject, _: argparse.Namespace) -> QueryAnswer:
    """The best plan alone."""
    plan = optimal(subject.table)
    return QueryAnswer(describe_plan(plan), (_stages(subject, plan),))


def _stages(subject: QuerySubject, plan: Plan) -> Table:
    from autoauto.report.tables.plans import stages_table

    return stages_table(plan, subject.names, Origin.ESTIMATED, subject.shown_clock_hz)


def _plans(subject: QuerySubject, title: str, head: str, rows: Iterable[tuple[int, Plan | DoesNotFit]]) -> Table:
    from autoauto.report.tables.plans import plans_table

    named = ((str(number), outcome) for number, outcome in rows)
    return plans_table(title, head, named, subject.shown_clock_hz)


def _explained_plan(subject: QuerySubject, _: argparse.Namespace) -> QueryAnswer:
    from autoauto.report.tables.plans import explanation_table

    plan = optimal(subject.table)
    explanation = explain(subject.table, plan)
    next_best = explanation.next_best and asdict(explanation.next_best)
    record = describe_plan(plan) | {"explanation": asdict(explanation) | {"next_best": next_best}}
    limits = explanation_table(explanation, plan, subject.shown_clock_hz)
    return QueryAnswer(record, (_stages(subject, plan), limits))


def _k_best_plans(subject: QuerySubject, args: argparse.Namespace) -> QueryAnswer:
    plans = k_best(subject.table, args.k_best)
    record = {"plans": [describe_plan(plan) for plan in plans]}
    return QueryAnswer(record, (_plans(subject, "The cheapest plans", "rank", enumerate(plans, start=1)),))


def _front_plans(subject: QuerySubject, args: argparse.Namespace) -> QueryAnswer:
    n_plans = args.pareto_front
    plans = list(islice(pareto_front(subject.table), n_plans + 1))
    is_complete, plans = len(plans) <= n_plans, plans[:n_plans]
    steps = [describe_plan(plan) | {"peak_memory_bytes": plan.peak_memory_bytes} for plan in plans]
    title = "All best trades" if is_complete else f"The first {len(plans)} of the best trades"
    table = _plans(subject, title, "step", enumerate(plans, start=1))
    return QueryAnswer({"steps": steps, "is_complete": is_complete}, (table,))


def _plans_per_device_count(subject: QuerySubject, _: argparse.Namespace) -> QueryAnswer:
    outcomes = best_per_device_count(subject.table)
    plans: list[dict[str, Any]] = []
    for n_ipu, outcome in outcomes.items():
        if isinstance(outcome, Plan):
            described = describe_plan(outcome)
        else:
            described = {"fits": False, "excess_bytes": outcome.excess_bytes, "reason": str(outcome)}
        plans.append({"n_ipu": n_ipu} | described)
    table = _plans(subject, "The best plan for every n_ipu", "n_ipu", outcomes.items())
    return QueryAnswer({"plans": plans}, (table,), any(plan["fits"] for plan in plans))


def _replicated_plans(subject: QuerySubject, _: argparse.Namespace) -> QueryAnswer:
    """The division of the devices among copies of one pipeline that finishes the most micro-batches per second."""
    division = replicas(subject.table)
    micro_batches_per_s = division.samples_per_s(1, subject.clock_hz)
    record = {
        "n_ipu": division.n_ipu,
        "n_replicas": len(division.plans),
        "micro_batches_per_s": micro_batches_per_s,
        "plans": [describe_plan(plan) for plan in division.plans],
    }
    title = f"{len(division.plans)} x {division.n_ipu} devices: {format_number(micro_batches_per_s)} micro-batches/s"
    if subject.batch_size is not None:
        samples_per_s = division.samples_per_s(subject.batch_size, subject.clock_hz)
        record["samples_per_s"] = samples_per_s
        title += f", {format_number(samples_per_s)} samples/s"
    return QueryAnswer(record, (_plans(subject, title, "replica", enumerate(division.plans)),))


def _interleaved_plan(subject: QuerySubject, args: argparse.Namespace) -> QueryAnswer:
    bounded = interleaved(subject.table, args.chunks)
    certificate = {"n_chunks": args.chunks, "bound_cycles": bounded.bound_cycles, "gap": bounded.gap}
    proof = "optimal" if bounded.gap == 0 else f"no plan costs more than {100 * bounded.gap:.1f} % less"
    return QueryAnswer(describe_plan(bounded.plan) | certificate, (_stages(subject, bounded.plan), proof))


QUERIES: dict[str, Callable[[QuerySubject, argparse.Namespace], QueryAnswer]] = {
    "explain": _explained_plan,
    "k_best": _k_best_plans,
    "pareto_front": _front_plans,
    "per_device_count": _plans_per_device_count,
    "as_replicas": _replicated_plans,
    "chunks": _interleaved_plan,
}
"""By the argument that asks for it."""


def requested_query(args: argparse.Namespace) -> Callable[[QuerySubject, argparse.Namespace], QueryAnswer]:
    """The query of the arguments; `best_plan` when they have none."""
    return next((query for name, query in QUERIES.items() if getattr(args, name) is not None), best_plan)
