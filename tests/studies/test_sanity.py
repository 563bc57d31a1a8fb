"""No forecast exceeds what devices can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from autoauto.evaluate.flow import Flow
from autoauto.records.errors import Infeasible
from autoauto.space.knobs import Knobs
from autoauto.space.trial import Status, Trial, unfit_trial
from studies import sanity
from studies.sanity import Tally


def test_a_throughput_above_a_bound_is_found() -> None:
    tally = Tally()
    tally.add("a", 50.0, {"compute": 100.0, "memory": 200.0, "exchange": 40.0})
    tally.expect(True, "b")
    assert tally.shares == {"compute": 0.5, "memory": 0.25, "exchange": 1.25}
    assert (tally.n_compared, tally.wrong) == (1, ["a: 50.0 samples/s, exchange allows 40.0"])


@pytest.mark.parametrize(
    ("largest", "gap", "n_wrong"), [(16, (), 0), (128, (), 0), (0, (), 0), (64, (15,), 5), (2, (1,), 1)]
)
def test_a_batch_that_fits_above_one_that_lacks_memory_is_found(
    largest: int, gap: tuple[int, ...], n_wrong: int
) -> None:
    class Forecasts:
        def forecast(self, knobs: Knobs) -> Trial:
            fits = knobs.batch_size <= largest and knobs.batch_size not in gap
            return Trial(knobs, Status.OK) if fits else unfit_trial(knobs, Infeasible("too large", 7), 100)

    tally = Tally()
    sanity.check_memory(cast(Flow, Forecasts()), "a", Knobs(), tally)
    assert len(tally.wrong) == n_wrong


@pytest.mark.slow
def test_two_models_on_two_clusters_keep_all_bounds(run_script: Callable[..., list[str]]) -> None:
    _, *rows, last = run_script("sanity", "--quick")
    assert last == "0 do not hold"
    assert {row.split()[0] for row in rows} == {"c600", "bow-2000"}
    assert all(0 < float(share.rstrip("%")) < 100 for row in rows for share in row.split()[4:7])
