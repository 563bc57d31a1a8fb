"""Names of knobs, configurations, periods and timelines."""

from dataclasses import replace

from autoauto.records.knobs import Knobs, Strategy
from autoauto.records.schedule import Order
from autoauto.records.study_summary import StudySummary, TrialSummary
from autoauto.report.wording import (
    clock_of,
    configuration,
    label,
    origin_of,
    period_text,
    ran_on_devices,
    relevant_knobs,
    shown_knobs,
    varying_knobs,
)


def test_only_what_varies_is_shown(summary: StudySummary) -> None:
    assert varying_knobs(summary) == ["n_ipu", "memory_proportion"]
    orders = (Order.GPIPE, Order.ONE_F_ONE_B)
    trials = tuple(TrialSummary(i, Knobs(2, 0.6, 1, order, False, 8)) for i, order in enumerate(orders))
    training = replace(summary, trials=trials)
    assert varying_knobs(training) == ["schedule"]
    assert shown_knobs(training) == ["n_ipu", "memory_proportion", "schedule"]


def test_a_configuration_has_the_knobs_that_matter() -> None:
    training = Knobs(2, 0.6, 4, Order.GPIPE, True, 8)
    assert relevant_knobs(training) == ["n_ipu", "memory_proportion", "schedule", "recompute", "n_micro_batches"]
    phased = Knobs(1, 0.6, 4, n_micro_batches=16, strategy=Strategy.PHASED)
    assert relevant_knobs(phased) == ["n_ipu", "memory_proportion", "n_micro_batches", "strategy"]
    assert relevant_knobs(Knobs(2, 0.6, 4, replicas=2)) == ["n_ipu", "replicas", "memory_proportion"]
    assert configuration(training, ["schedule", "recompute"]) == "schedule gpipe, recompute on, batch_size 4"
    assert label(training, ["memory_proportion", "schedule"]) == "gpipe, memory 0.6"


def test_a_cost_model_is_not_called_hardware(summary: StudySummary) -> None:
    """8 samples take 2,300 cycles, and 200 samples a second: 57,500 cycles a second."""
    winner = summary.finalists[0]
    assert (origin_of(summary), ran_on_devices(summary)) == ("measured (cost model)", False)
    assert clock_of(summary, winner) == 57_500.0
    assert period_text(summary, winner) == "2,300 cycles, measured (cost model)"


def test_a_plan_that_devices_ran_has_a_period_and_no_clock(summary: StudySummary) -> None:
    ran, winner = replace(summary, attributes={"target": "host 1"}), summary.finalists[0]
    assert (origin_of(ran), ran_on_devices(ran)) == ("measured", True)
    assert clock_of(ran, winner) is None
    assert period_text(ran, winner) == "40.000 ms, measured"
