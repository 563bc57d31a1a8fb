"""Real training in a pipeline of two processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.slow
@pytest.mark.timeout(600)  # imports PyTorch in four processes and traces six stages
def test_pipelines_train_as_one_process_does(run_script: Callable[..., list[str]]) -> None:
    pytest.importorskip("torch", reason="torch trains the network, and is missing")
    _, whole, *rows, verdict = run_script("real_training", "--quick")
    assert verdict == "gradients are equal within 1e-05, losses within 1e-04: yes"
    assert [row.split()[:3] for row in rows] == [["digits", "2", order] for order in ("gpipe", "1f1b", "zb1p")]
    losses = [map(float, row.split()[3:5]) for row in (whole, *rows)]
    assert all(last < 0.8 * first for first, last in losses)
    times = [list(map(float, row.split()[9:])) for row in rows]
    assert all(len(cells) == 6 and min(cells) > 0 for cells in times)
