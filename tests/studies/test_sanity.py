"""No forecast exceeds what devices can do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from studies.sanity import Tally


def test_a_throughput_above_a_bound_is_found() -> None:
    tally = Tally()
    tally.add("a", 50.0, {"compute": 100.0, "memory": 200.0, "exchange": 40.0})
    tally.expect(True, "b")
    assert tally.shares == {"compute": 0.5, "memory": 0.25, "exchange": 1.25}
    assert (tally.n_compared, tally.wrong) == (1, ["a: 50.0 samples/s, exchange allows 40.0"])


@pytest.mark.slow
def test_two_models_on_two_clusters_keep_all_bounds(run_script: Callable[..., list[str]]) -> None:
    _, *rows, last = run_script("sanity", "--quick")
    assert last == "0 do not hold"
    assert {row.split()[0] for row in rows} == {"c600", "bow-2000"}
    assert all(0 < float(share.rstrip("%")) < 100 for row in rows for share in row.split()[4:7])
