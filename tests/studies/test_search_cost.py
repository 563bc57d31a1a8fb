"""The study of what searches cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_search_is_counted_beside_that_of_another_checkout(run_script: Callable[..., list[str]]) -> None:
    head, row = run_script("search_cost", "--small", "--before", str(Path(__file__).parents[2]))
    assert head.split()[:7] == ["search", "CPU", "s", "before", "ratio", "x", "work"]
    (
        *_,
        cpu_s,
        before_s,
        ratio,
        _,
        again_s,
        again_before_s,
        again_ratio,
        mib,
        n_forecasts,
        n_profiles,
        n_compilations,
    ) = row.split()
    assert float(ratio) == pytest.approx(float(cpu_s) / float(before_s), abs=0.02)
    assert float(again_ratio) == pytest.approx(float(again_s) / float(again_before_s), abs=0.02)
    assert min(float(cpu_s), float(again_s)) > 0
    assert 50 < float(mib) < 2000
    # A search of one cell of eight batch sizes: some of them are forecast, each with a profile of all kinds of layers.
    assert int(n_forecasts) >= int(n_profiles) >= 2
    assert int(n_compilations) >= 20 * int(n_profiles)
