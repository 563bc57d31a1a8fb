"""The study of how the cost of searches grows."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.slow
def test_layers_of_more_blocks_compile_to_what_those_of_one_do(run_script: Callable[..., list[str]]) -> None:
    pytest.importorskip("torch")
    head, *rows = run_script("search_growth", "--small")
    assert head.split() == [
        "layers,",
        "4",
        "devices",
        "CPU",
        "s",
        "x",
        "again",
        "s",
        "MiB",
        "forecasts",
        "compilations",
    ]
    (_, _, nodes, _, cpu_s, *_, n_compilations), (_, _, more_nodes, _, more_cpu_s, *_, compilations_of_more) = (
        row.split() for row in rows
    )
    assert 1.5 * int(nodes) < int(more_nodes)
    assert 0 < float(more_cpu_s) < 2 * float(cpu_s)
    assert int(compilations_of_more) < 1.2 * int(n_compilations)
