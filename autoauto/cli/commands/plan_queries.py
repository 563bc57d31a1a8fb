"""What `autoauto plan` may be asked besides the best plan: one function a question, each with one answer."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from autoauto.cli.options.numbers import positive
from autoauto.cli.output.results import describe_plan
from autoauto.records.errors import DoesNotFit
from autoauto.records.plan import Plan

if TYPE_CHECKING:
    from rich.console import RenderableType

    from autoauto.records.cost import CostTable


class Subject(NamedTuple):
    """What the questions are about: the costs, the layers' names, the clock that cycles count, the batch if known."""

    table: CostTable
    names: tuple[str, ...]
    clock_hz: float
    batch_size: int | None = None


class Answer(NamedTuple):
    """An answer as plain values, and as something to print."""

    record: dict[str, Any]
    shown: RenderableType
    fits: bool = True


def add_questions(parser: argparse.ArgumentParser) -> None:
    """Take one question, or none."""
    questions = parser.add_argument_group("instead of the best plan alone").add_mutually_exclusive_group()
    for name, text in (
        ("--explain", "tell what binds it and what moving a cut would cost"),
        ("--every-n-ipu", "the plan for every number of devices from one to all that are given"),
        ("--replicas", "divide the devices among copies of one pipeline: the most micro-batches a second"),
    ):
        questions.add_argument(name, action="store_const", const=True, help=text)
    questions.add_argument("--k-best", type=positive, metavar="K", help="the K cheapest different plans")
    questions.add_argument(
        "--staircase",
        type=positive,
        nargs="?",
        const=100,
        metavar="MAX",
        help="the trade of compute against transfer against peak memory, up to MAX plans; default %(const)s",
    )
    questions.add_argument(
        "--chunks",
        type=positive,
        metavar="V",
        help="V stages a device, dealt out in turn as interleaved schedules want",
    )


def best(subject: Subject, _: argparse.Namespace) -> Answer:
    """The best plan alone."""
    from autoauto.plan.pipeline.optimal import optimal
    from autoauto.report.style import ESTIMATED
    from autoauto.report.text.plans import stages_table

    plan = optimal(subject.table)
    return Answer(describe_plan(plan), stages_table(plan, subject.names, ESTIMATED))


def explained(subject: Subject, _: argparse.Namespace) -> Answer:
    """The best plan, what binds it, and what moving a cut would cost."""
    from rich.console import Group

    from autoauto.plan.pipeline.optimal import optimal
    from autoauto.plan.queries.explain import explain
    from autoauto.report.style import ESTIMATED
    from autoauto.report.text.plans import explanation_table, stages_table

    plan = optimal(subject.table)
    explanation = explain(subject.table, plan)
    next_best = explanation.next_best and asdict(explanation.next_best)
    record = describe_plan(plan) | {"explanation": asdict(explanation) | {"next_best": next_best}}
    tables = stages_table(plan, subject.names, ESTIMATED), explanation_table(explanation, plan)
    return Answer(record, Group(*tables))


def cheapest(subject: Subject, args: argparse.Namespace) -> Answer:
    """The k cheapest plans."""
    from autoauto.plan.queries.k_best import k_best
    from autoauto.report.text.plans import plans_table

    plans = k_best(subject.table, args.k_best)
    rows = ((str(rank), plan) for rank, plan in enumerate(plans, start=1))
    return Answer({"plans": [describe_plan(plan) for plan in plans]}, plans_table("The cheapest plans", "rank", rows))


def trade(subject: Subject, args: argparse.Namespace) -> Answer:
    """The trade of compute against transfer against peak memory, or its beginning."""
    from autoauto.plan.queries.pareto_front import staircase
    from autoauto.report.text.plans import plans_table

    plans = list(islice(staircase(subject.table), args.staircase + 1))
    complete, plans = len(plans) <= args.staircase, plans[: args.staircase]
    steps = [describe_plan(plan) | {"peak_memory_bytes": plan.peak_memory_bytes} for plan in plans]
    title = "All best trades" if complete else f"The first {len(plans)} of the best trades"
    rows = ((str(number), plan) for number, plan in enumerate(plans, start=1))
    return Answer({"steps": steps, "is_complete": complete}, plans_table(title, "step", rows))


def every_count(subject: Subject, _: argparse.Namespace) -> Answer:
    """The plan for every number of devices, or why there is none."""
    from autoauto.plan.queries.device_counts import every_n
    from autoauto.report.text.plans import plans_table

    outcomes = every_n(subject.table)
    plans = [{"n_ipu": n_ipu} | _described(outcome) for n_ipu, outcome in outcomes.items()]
    rows = ((str(n_ipu), outcome) for n_ipu, outcome in outcomes.items())
    shown = plans_table("The best plan for every n_ipu", "n_ipu", rows)
    return Answer({"plans": plans}, shown, any(plan["fits"] for plan in plans))


def _described(outcome: Plan | DoesNotFit) -> dict[str, Any]:
    if isinstance(outcome, Plan):
        return describe_plan(outcome)
    return {"fits": False, "excess_bytes": outcome.excess_bytes, "reason": str(outcome)}


def copies(subject: Subject, _: argparse.Namespace) -> Answer:
    """The division of the devices among copies of one pipeline that finishes the most micro-batches a second."""
    from autoauto.plan.queries.device_counts import replicas
    from autoauto.report.text.plans import plans_table

    found = replicas(subject.table)
    speed = found.samples_per_s(1, subject.clock_hz)
    record = {
        "n_ipu": found.n_ipu,
        "n_replicas": len(found.plans),
        "micro_batches_per_s": speed,
        "plans": [describe_plan(plan) for plan in found.plans],
    }
    title = f"{len(found.plans)} x {found.n_ipu} devices: {speed:,.1f} micro-batches/s"
    if subject.batch_size is not None:
        record["samples_per_s"] = found.samples_per_s(subject.batch_size, subject.clock_hz)
        title += f", {record['samples_per_s']:,.1f} samples/s"
    return Answer(record, plans_table(title, "replica", ((str(i), plan) for i, plan in enumerate(found.plans))))


def dealt(subject: Subject, args: argparse.Namespace) -> Answer:
    """The best plan found with several stages a device, and how much better another could be."""
    from rich.console import Group

    from autoauto.plan.pipeline.interleaved import interleaved
    from autoauto.report.style import ESTIMATED
    from autoauto.report.text.plans import stages_table

    found = interleaved(subject.table, args.chunks)
    certificate = {"n_chunks": args.chunks, "bound_cycles": found.bound_cycles, "gap": found.gap}
    proof = "optimal" if found.gap == 0 else f"no plan costs more than {100 * found.gap:.1f} % less"
    shown = Group(stages_table(found.plan, subject.names, ESTIMATED), proof)
    return Answer(describe_plan(found.plan) | certificate, shown)


QUESTIONS: dict[str, Callable[[Subject, argparse.Namespace], Answer]] = {
    "explain": explained,
    "k_best": cheapest,
    "staircase": trade,
    "every_n_ipu": every_count,
    "replicas": copies,
    "chunks": dealt,
}


def question(args: argparse.Namespace) -> Callable[[Subject, argparse.Namespace], Answer]:
    """The question that the arguments ask."""
    return next((ask for name, ask in QUESTIONS.items() if getattr(args, name) is not None), best)
