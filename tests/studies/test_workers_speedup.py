"""The workers study on a small space."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autoauto.space.knobs import Knobs
from studies import workers_speedup


def test_a_configuration_beyond_the_limit_has_excess_bytes_and_no_throughput() -> None:
    small, large = (
        workers_speedup.Model(0.0)(Knobs(n_ipu=1, memory_proportion=1.0, batch_size=batch_size))
        for batch_size in (36, 37)
    )
    assert (small.excess_bytes, large.excess_bytes) == (0, 25)
    assert small.samples_per_s > 0
    assert large.samples_per_s == 0


@pytest.mark.slow
def test_every_method_has_a_row_for_every_number_of_workers(run_script: Callable[..., list[str]]) -> None:
    """Bisection returns the same for any number of workers; which proposals a guided search sees in time is chance."""
    header, *rows = run_script("workers_speedup", "--workers", "1,2", "--seconds", "0.01", "--quick")
    assert header.split() == ["method", "workers", "tried", "time", "speed-up", "best"]
    assert [row.split()[:2] for row in rows] == [[method, n] for method in workers_speedup.METHODS for n in "12"]
    assert rows[1].endswith(": the same")
    assert rows[3].endswith((": the same", ": ANOTHER"))
