"""The winner of a search measured again, and what it is compared with: the end of `search`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from autoauto.cli.options.execution import hands_of
from autoauto.cli.options.numbers import count
from autoauto.records.errors import DoesNotFit
from autoauto.records.knobs import Knobs, Objective, SearchSpace
from autoauto.records.trial import Outcome
from autoauto.records.units import samples_per_s

if TYPE_CHECKING:
    from optuna import Study

    from autoauto.evaluate.flow import Flow
    from autoauto.study.analysis.verification import Contestant
    from autoauto.study.execution.executors import Hands
    from autoauto.study.run import SearchResult

REPEATS = 3
"""Turns on real devices."""


def add_repeats(parser: argparse.ArgumentParser) -> None:
    """Take how often the winner is measured again."""
    parser.add_argument(
        "--repeats",
        type=count,
        metavar="N",
        help="measure the winner again N times, in turns with the runner-up and the default configuration, 0 for not "
        f"at all; default {REPEATS}, and 1 on a cost model, which gives the same number each time",
    )


def n_repeats_of(args: argparse.Namespace, flow: Flow) -> int:
    """How many turns the arguments ask for."""
    asked: int | None = args.repeats
    return asked if asked is not None else REPEATS if flow.runner is not None else 1


def n_again_of(args: argparse.Namespace, flow: Flow) -> int:
    """How many measurements the end of a search takes at most."""
    n_repeats = n_repeats_of(args, flow)
    return 1 if flow.runner is None and n_repeats == 1 else 3 * n_repeats


def verified(
    args: argparse.Namespace,
    flow: Flow,
    study: Study,
    result: SearchResult,
    progress: Callable[[int, int], None] | None = None,
) -> SearchResult:
    """The result with the winner that measuring again settles; nothing is measured when nothing fits or N is 0.

    A cost model gives the same number each time: unless it is asked for more than one turn, the numbers of the search
    stand for the turn, and only the default configuration is measured.
    """
    from autoauto.study.analysis.best import best_trial
    from autoauto.study.analysis.comparisons import expected_answer
    from autoauto.study.analysis.verification import contestants_of, verify
    from autoauto.study.execution.executors import Own
    from autoauto.study.store.trials import complete_trials

    n_repeats, space = n_repeats_of(args, flow), result.space
    if result.best is None or n_repeats == 0:  # by several objectives none is the best
        return result
    objective = Objective(args.objective)
    best, hands = result.best.knobs, hands_of(args, flow) or Own(flow.evaluate)
    contestants = contestants_of(study, space, best, objective, hands, default_of(flow, space, objective, hands))
    known = complete_trials(study) if flow.runner is None and n_repeats == 1 else {}
    told = verify(
        study,
        contestants,
        n_repeats,
        objective,
        lambda: expected_answer(space, flow.expect, objective, best),
        known,
        progress,
    )
    return replace(result, best=best_trial(study, space)) if told.settled else result


def default_of(flow: Flow, space: SearchSpace, objective: Objective, hands: Hands) -> Contestant:
    """What one would run without a search; on this machine one session of the runtime with all cores.

    When the objective counts devices, one device instead.
    """
    from autoauto.study.analysis.comparisons import default_knobs
    from autoauto.study.analysis.verification import DEFAULT, Contestant
    from autoauto.study.execution.executors import Own
    from autoauto.targets.host.target import HostTarget

    knobs = default_knobs(space, flow.runner is not None)
    if not isinstance(flow.target, HostTarget) or len(flow.cluster) == 1 or objective is Objective.PER_IPU:
        return Contestant(DEFAULT, knobs, "", hands)
    return Contestant(DEFAULT, knobs, "one session, all cores", Own(lambda knobs: run_undivided(flow, knobs)))


def run_undivided(flow: Flow, knobs: Knobs) -> Outcome:
    """The whole model in one session on the cores of all devices."""
    from autoauto.targets.host.target import HostTarget

    assert isinstance(flow.target, HostTarget)
    memory_bytes = int(sum(device.memory_bytes for device in flow.cluster.devices))
    try:
        run = flow.target.run_undivided(flow.graph, flow.cluster, flow.options(knobs))
    except DoesNotFit as failure:
        return Outcome(knobs, None, None, 0.0, 0.0, failure.excess_bytes, memory_bytes, str(failure))
    speed = samples_per_s(knobs.batch_size, run.period_cycles, flow.cluster.devices[0].clock_hz)
    return Outcome(knobs, None, run.plan, speed, 0.0, 0, memory_bytes, "", run.timelines[0])
