"""Rank clusters for the same load.

Each is searched, and its best configuration is a row.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from autoauto.cli.commands.studies.search import add_objective, typed_command
from autoauto.cli.options.model import add_model, add_space
from autoauto.cli.options.study import add_storage
from autoauto.cli.output.lines import add_json, print_assumed, print_json, show, warn
from autoauto.cli.output.search_result import describe_best
from autoauto.records.errors import BadInput, Infeasible
from autoauto.space.objectives import objective_tuple

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.report.tables.clusters import ClusterAnswer
    from autoauto.space.requests.request import SearchRequest

EXAMPLE = "rank Qwen/Qwen3-32B --cluster l40s-8,h100_sxm-8 --isl 2000 --osl 500 --price l40s=0.9,h100=2.5"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a model, several clusters, the space, and the database of the trials."""
    add_model(parser)
    for action in parser._actions:
        if action.dest == "cluster":
            action.metavar, action.help = "NAME|FILE,...", "two clusters or more with commas, each as `search` takes it"
    add_space(parser)
    add_objective(parser)
    add_storage(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Search every cluster, and print a row of each, the best by the objective first."""
    from autoauto.report.tables.clusters import ranked_answers
    from autoauto.space.requests.request import asked_objectives

    names = list(dict.fromkeys(filter(None, (args.cluster or "").split(","))))
    if len(names) < 2:
        raise BadInput(
            f"rank compares two clusters or more, got {args.cluster!r}; try --cluster l40s-8,h100_sxm-8, or search"
        )
    objective, *others = objective_tuple(asked_objectives(args.objective, vars(args)))
    if others:
        raise BadInput(f"clusters are ranked by one objective, got {objective} and more; leave the others out")
    opened = [_opened(args, name) for name in names]  # so that a wrong name is told before the first search
    answers = ranked_answers([_answer(args, *each) for each in opened], objective)
    notes = tuple(dict.fromkeys(note for flow, _ in opened for note in flow.setting.notes))
    if args.json:
        described = [{**each._asdict(), "best": each.best and describe_best(each.best)} for each in answers]
        print_json({"objective": str(objective), "clusters": described, "assumed": list(notes)})
    else:
        from autoauto.report.tables.clusters import clusters_table

        show(clusters_table(answers, objective))
        print_assumed(notes)
    if not any(answer.best for answer in answers):
        warn("no cluster has a configuration that fits and meets the bounds; try others, or wider bounds")
        return Infeasible.exit_code
    return 0


def _opened(args: argparse.Namespace, cluster: str) -> tuple[Flow, SearchRequest]:
    from autoauto.evaluate.open import open_problem
    from autoauto.space.requests.request import SearchRequest
    from autoauto.study.arguments import check_objectives

    request = SearchRequest.of({**vars(args), "cluster": cluster})
    flow = open_problem(request.problem, args.storage)
    check_objectives(flow, request.study.objectives)
    return flow, request


def _answer(args: argparse.Namespace, flow: Flow, request: SearchRequest) -> ClusterAnswer:
    """The best configuration of a cluster, or why it has none; the study is that of a search of this cluster alone."""
    from autoauto.report.tables.clusters import ClusterAnswer
    from autoauto.study.run import nothing_fits
    from autoauto.study.search import StudyStorage, search_study

    typed = {"command": typed_command(sys.argv[1:], args.storage)}
    storage = StudyStorage(args.storage, None, {"headroom": f"{args.headroom}"}, typed, request)
    result = search_study(flow, request.study, storage)
    reason = "" if result.best else str(nothing_fits(result))
    return ClusterAnswer(flow.cluster.name, result.best, flow.traits.origin, result.study_name, reason)
