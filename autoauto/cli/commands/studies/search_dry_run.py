"""`autoauto search --dry-run`: the estimate of every cell, what a search would try, and how long it would take."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from autoauto.cli.output.json_output import print_json
from autoauto.cli.output.lines import print_line
from autoauto.cli.output.search_result import describe_expected, describe_speed, show_uses
from autoauto.records.knobs.objectives import Method
from autoauto.records.knobs.space import SearchSpace
from autoauto.records.target import Origin

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.study.execution.pace import Pace


def show_dry_run(args: argparse.Namespace, flow: Flow, space: SearchSpace) -> int:
    """Print the estimates and what a search would try; no trial is made."""
    from autoauto.report.tables.terminal import show
    from autoauto.report.tables.trials import dry_run_table
    from autoauto.study.analysis.dry_run import dry_run, expected_winner
    from autoauto.study.defaults import baseline_of
    from autoauto.study.execution.pace import known_pace
    from autoauto.study.verify_winner import n_verification_measurements

    noise = flow.traits.noise if args.noise is None else args.noise
    last = baseline_of(flow, args.objective, space)
    method = Method(args.method)
    expected = dry_run(
        space, flow.expect, args.objective, method, noise, args.n_measurements, last, flow.forecasts.at_best
    )
    n_repeats = flow.traits.n_repeats if args.repeats is None else args.repeats
    n_again = n_verification_measurements(flow, n_repeats)
    pace = known_pace(args.storage, flow.fingerprint())
    expected_s = None if pace is None else pace.seconds * (expected.n_measured / (args.workers or 1) + n_again)
    winner = expected_winner(expected.cells, space, args.objective)
    if args.json:
        cells = list(map(describe_expected, expected.cells))
        best = winner and {**asdict(winner.trial.knobs), **describe_speed(winner.trial)}
        print_json(expected._asdict() | {"best": best, "cells": cells, "n_again": n_again, "expected_s": expected_s})
        return 0
    if winner is not None:
        show_uses(winner.trial, winner.comparisons, Origin.ESTIMATED)
    show(dry_run_table(expected.cells))
    print(
        f"{args.method} would try {expected.n_tried:,} of {expected.n_configurations:,} configurations and measure "
        f"{expected.n_measured:,}, if all measurements equal the estimates; nothing was measured"
    )
    print_line(_time_line(args.storage, pace, expected_s, expected.n_measured, n_again))
    return 0


def _time_line(storage: str, pace: Pace | None, expected_s: float | None, n_measured: int, n_again: int) -> str:
    """How long the measurements would take, where the database holds one of this model on these devices."""
    from autoauto.study.store.database import shown_storage

    database = shown_storage(storage)
    if pace is None or expected_s is None:
        return f"time to measure: not known, since {database} holds no measurement of this model on these devices"
    again = f", and {n_again} to measure the best again" if n_again else ""
    each = f"{pace.seconds:.2g} s, the median of {pace.n_known:,} in {database}"
    return f"time to measure: about {expected_s:.2g} s, {n_measured:,} of the search{again}, each {each}"
