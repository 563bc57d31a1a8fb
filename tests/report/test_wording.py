"""Which knobs a study varies, and what configurations are called."""

from dataclasses import replace

from autoauto.records.knobs import Knobs, Strategy
from autoauto.records.schedule import Order
from autoauto.records.study_summary import Findings, Tried
from autoauto.report.wording import (
    clock_of,
    configuration,
    label,
    origin_of,
    own_knobs,
    period_text,
    really_ran,
    shown_knobs,
    varying,
)


def test_only_what_varies_is_shown(found: Findings) -> None:
    assert varying(found) == ["n_ipu", "memory_proportion"]
    orders = (Order.GPIPE, Order.ONE_F_ONE_B)
    tried = tuple(Tried(i, Knobs(2, 0.6, 1, order, False, 8)) for i, order in enumerate(orders))
    training = replace(found, tried=tried)
    assert varying(training) == ["schedule"]
    assert shown_knobs(training) == ["n_ipu", "memory_proportion", "schedule"]


def test_a_configuration_tells_what_it_is() -> None:
    training = Knobs(2, 0.6, 4, Order.GPIPE, True, 8)
    assert own_knobs(training) == ["n_ipu", "memory_proportion", "schedule", "recompute", "n_micro_batches"]
    phased = Knobs(1, 0.6, 4, n_micro_batches=16, strategy=Strategy.PHASED)
    assert own_knobs(phased) == ["n_ipu", "memory_proportion", "n_micro_batches", "strategy"]
    assert own_knobs(Knobs(2, 0.6, 4, replicas=2)) == ["n_ipu", "replicas", "memory_proportion"]
    assert configuration(training, ["schedule", "recompute"]) == "schedule gpipe, recompute on, batch_size 4"
    assert label(training, ["memory_proportion", "schedule"]) == "gpipe, memory 0.6"


def test_a_cost_model_is_no_hardware(found: Findings) -> None:
    """8 samples take 2,300 cycles and 200 go by in a second."""
    winner = found.contenders[0]
    assert (origin_of(found), really_ran(found)) == ("measured (cost model)", False)
    assert clock_of(found, winner) == 57_500.0
    assert period_text(found, winner) == "2,300 cycles, measured (cost model)"


def test_devices_tell_a_period_and_no_clock(found: Findings) -> None:
    ran, winner = replace(found, attributes={"target": "host 1"}), found.contenders[0]
    assert (origin_of(ran), really_ran(ran)) == ("measured", True)
    assert clock_of(ran, winner) is None
    assert period_text(ran, winner) == "40.000 ms, measured"
