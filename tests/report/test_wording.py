"""Names of knobs, configurations, periods and timelines."""

from dataclasses import replace

from autoauto.records.schedule import Order
from autoauto.records.target import Origin
from autoauto.report.wording import (
    clock_of,
    configuration,
    headline,
    label,
    origin_of,
    ran_on_devices,
    shown_knobs,
    varying_knobs,
)
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.study_summary import StudySummary
from tests.report.made import made


def test_only_what_varies_is_shown(summary: StudySummary) -> None:
    assert varying_knobs(summary) == ["n_ipu", "memory_proportion"]
    orders = (Order.GPIPE, Order.ONE_F_ONE_B)
    trials = tuple(
        made(i, Knobs(n_ipu=2, memory_proportion=0.6, batch_size=1, schedule=order, recompute=False, n_micro_batches=8))
        for i, order in enumerate(orders)
    )
    training = replace(summary, trials=trials)
    assert varying_knobs(training) == ["schedule"]
    assert shown_knobs(training) == ["n_ipu", "memory_proportion", "schedule"]


def test_a_configuration_has_the_knobs_that_matter() -> None:
    training = Knobs(
        n_ipu=2, memory_proportion=0.6, batch_size=4, schedule=Order.GPIPE, recompute=True, n_micro_batches=8
    )
    trains = "n_ipu 2, memory_proportion 0.6, schedule gpipe, recompute on, n_micro_batches 8, batch_size 4"
    assert configuration(training) == trains
    phased = Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4, n_micro_batches=16, strategy=Strategy.PHASED)
    assert configuration(phased) == "n_ipu 1, memory_proportion 0.6, n_micro_batches 16, strategy phased, batch_size 4"
    assert (
        configuration(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4, replicas=2))
        == "n_ipu 2, replicas 2, memory_proportion 0.6, batch_size 4"
    )
    assert label(training, ["memory_proportion", "schedule"]) == "gpipe, memory 0.6"


def test_a_cost_model_is_not_called_hardware(summary: StudySummary) -> None:
    """8 samples take 2,300 cycles, and 200 samples a second: 57,500 cycles a second."""
    winner = summary.finalists[0]
    assert (origin_of(summary), ran_on_devices(summary)) == ("modelled", False)
    assert clock_of(summary, winner) == 57_500.0


def test_a_plan_that_devices_ran_has_no_clock(summary: StudySummary) -> None:
    ran, winner = replace(summary, attributes={"target": "host 1", "origin": "measured"}), summary.finalists[0]
    assert (origin_of(ran), ran_on_devices(ran)) == ("measured", True)
    assert clock_of(ran, winner) is None


def test_a_headline_has_the_throughput_of_the_cluster_a_replica_and_a_device() -> None:
    def shown(knobs: Knobs) -> str:
        return headline(made(0, knobs, 1200.0), Origin.MEASURED)

    assert shown(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=8)) == "1,200.0 samples/s on 1 device, measured"
    assert shown(Knobs(n_ipu=4, memory_proportion=0.6, batch_size=8)) == (
        "1,200.0 samples/s on 4 devices (one pipeline of 4 devices; 300.0 a device), measured"
    )
    assert shown(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=8, replicas=4)) == (
        "1,200.0 samples/s on 4 devices (4 replicas of 1 device; 300.0 a device), measured"
    )
    assert shown(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8, replicas=3)) == (
        "1,200.0 samples/s on 6 devices (3 replicas of 2 devices; 400.0 a replica, 200.0 a device), measured"
    )
    assert shown(Knobs(n_ipu=1, memory_proportion=1.0, batch_size=8, cores_per_device=3)) == (
        "1,200.0 samples/s on 3 cores (one session of 3 cores; 400.0 a core), measured"
    )
    phased = Knobs(n_ipu=4, memory_proportion=0.6, batch_size=8, n_micro_batches=16, strategy=Strategy.PHASED)
    assert shown(phased) == "1,200.0 samples/s on 4 devices (the same phases on each; 300.0 a device), measured"
