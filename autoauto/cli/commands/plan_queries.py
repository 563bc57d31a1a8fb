"""What `autoauto plan` can compute besides the best plan: one function per query, each with one `QueryAnswer`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from autoauto.cli.options.values import at_most
from autoauto.cli.output.plans import describe_plan
from autoauto.records.errors import DoesNotFit
from autoauto.records.plans.plan import Plan
from autoauto.records.target import Origin
from autoauto.records.units import format_number

if TYPE_CHECKING:
    from autoauto.records.costs.cost import CostTable
    from autoauto.report.tables.table import Table

MAX_PLANS = 1_000  # of one answer: some seconds of BERT on eight devices
MAX_CHUNKS = 1_000  # a device; each needs a layer of its own, and a row in tables


class QuerySubject(NamedTuple):
    """The subject of a query: costs of layers, their names and units.

    Attributes:
        table: the costs of all ranges of layers.
        names: of the layers.
        clock_hz: the clock of the cycles.
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
        record: as plain values.
        shown: as tables and lines of text.
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
    from autoauto.plan.pipeline.optimal import optimal
    from autoauto.report.tables.plans import stages_table

    plan = optimal(subject.table)
    stages = stages_table(plan, subject.names, Origin.ESTIMATED, subject.shown_clock_hz)
    return QueryAnswer(describe_plan(plan), (stages,))


def _explained_plan(subject: QuerySubject, _: argparse.Namespace) -> QueryAnswer:
    """The best plan, what limits it, and what moving a cut would cost."""
    from autoauto.plan.pipeline.optimal import optimal
    from autoauto.plan.queries import explain
    from autoauto.report.tables.plans import explanation_table, stages_table

    plan = optimal(subject.table)
    explanation = explain(subject.table, plan)
    next_best = explanation.next_best and asdict(explanation.next_best)
    record = describe_plan(plan) | {"explanation": asdict(explanation) | {"next_best": next_best}}
    stages = stages_table(plan, subject.names, Origin.ESTIMATED, subject.shown_clock_hz)
    return QueryAnswer(record, (stages, explanation_table(explanation, plan, subject.shown_clock_hz)))


def _k_best_plans(subject: QuerySubject, args: argparse.Namespace) -> QueryAnswer:
    """The k cheapest plans."""
    from autoauto.plan.queries import k_best
    from autoauto.report.tables.plans import plans_table

    plans = k_best(subject.table, args.k_best)
    rows = ((str(rank), plan) for rank, plan in enumerate(plans, start=1))
    record = {"plans": [describe_plan(plan) for plan in plans]}
    return QueryAnswer(record, (plans_table("The cheapest plans", "rank", rows, subject.shown_clock_hz),))


def _front_plans(subject: QuerySubject, args: argparse.Namespace) -> QueryAnswer:
    """The Pareto front of compute, transfer and peak memory, or its first plans."""
    from autoauto.plan.queries import pareto_front
    from autoauto.report.tables.plans import plans_table

    n_plans = args.pareto_front
    plans = list(islice(pareto_front(subject.table), n_plans + 1))
    is_complete, plans = len(plans) <= n_plans, plans[:n_plans]
    steps = [describe_plan(plan) | {"peak_memory_bytes": plan.peak_memory_bytes} for plan in plans]
    title = "All best trades" if is_complete else f"The first {len(plans)} of the best trades"
    rows = ((str(number), plan) for number, plan in enumerate(plans, start=1))
    table = plans_table(title, "step", rows, subject.shown_clock_hz)
    return QueryAnswer({"steps": steps, "is_complete": is_complete}, (table,))


def _plans_per_device_count(subject: QuerySubject, _: argparse.Namespace) -> QueryAnswer:
    """The best plan for every number of devices, or why there is none."""
    from autoauto.plan.queries import best_per_device_count
    from autoauto.report.tables.plans import plans_table

    outcomes = best_per_device_count(subject.table)
    plans = [{"n_ipu": n_ipu} | _describe_outcome(outcome) for n_ipu, outcome in outcomes.items()]
    rows = ((str(n_ipu), outcome) for n_ipu, outcome in outcomes.items())
    table = plans_table("The best plan for every n_ipu", "n_ipu", rows, subject.shown_clock_hz)
    return QueryAnswer({"plans": plans}, (table,), any(plan["fits"] for plan in plans))


def _describe_outcome(outcome: Plan | DoesNotFit) -> dict[str, Any]:
    if isinstance(outcome, Plan):
        return describe_plan(outcome)
    return {"fits": False, "excess_bytes": outcome.excess_bytes, "reason": str(outcome)}


def _replicated_plans(subject: QuerySubject, _: argparse.Namespace) -> QueryAnswer:
    """The division of the devices among copies of one pipeline that finishes the most micro-batches per second."""
    from autoauto.plan.queries import replicas
    from autoauto.report.tables.plans import plans_table

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
        samples_per_s = record["samples_per_s"] = division.samples_per_s(subject.batch_size, subject.clock_hz)
        title += f", {format_number(samples_per_s)} samples/s"
    rows = ((str(i), plan) for i, plan in enumerate(division.plans))
    return QueryAnswer(record, (plans_table(title, "replica", rows, subject.shown_clock_hz),))


def _interleaved_plan(subject: QuerySubject, args: argparse.Namespace) -> QueryAnswer:
    """A plan with several stages per device, and how much better another one can be at most."""
    from autoauto.plan.pipeline.interleaved import interleaved
    from autoauto.report.tables.plans import stages_table

    bounded = interleaved(subject.table, args.chunks)
    certificate = {"n_chunks": args.chunks, "bound_cycles": bounded.bound_cycles, "gap": bounded.gap}
    proof = "optimal" if bounded.gap == 0 else f"no plan costs more than {100 * bounded.gap:.1f} % less"
    stages = stages_table(bounded.plan, subject.names, Origin.ESTIMATED, subject.shown_clock_hz)
    return QueryAnswer(describe_plan(bounded.plan) | certificate, (stages, proof))


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
