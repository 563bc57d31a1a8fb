"""Where measured numbers come from."""

from dataclasses import replace

from autoauto.records.findings import Findings
from autoauto.report.origins import clock_of, origin_of, period_text, really_ran


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
