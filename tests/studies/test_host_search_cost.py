"""The study of what searches on this machine cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from studies.custom_target import model_of
from studies.host_search_cost import COLUMNS, Cost
from studies.search_cost import HERE


def test_the_row_of_a_search_has_its_numbers_in_their_columns() -> None:
    cost = Cost(1.25, 20.0, 31.5, 40.04, 9, 2, 6, 123.45, "openvino")
    words = " ".join(cost.cells.split())
    assert words == "1.2 20.0 31.5 40.0 9 2 6 123.5 openvino"
    ends = [cost.cells.index(word) + len(word) for word in ("1.2 ", "20.0", "31.5")]
    assert ends[1:] == [sum(width for _, width in COLUMNS[:n]) for n in (2, 3)]


@pytest.mark.slow
@pytest.mark.timeout(300)  # two searches of a few runs each
def test_a_search_is_counted_beside_that_of_another_checkout(
    run_script: Callable[..., list[str]], tmp_path: Path
) -> None:
    onnx.save(model_of(n_layers=4, width=256), tmp_path / "small.onnx")
    options = "--options", "--quick --runtime onnxruntime", "--pairs", "1", "--before", str(HERE)
    head, *rows, ratio = run_script("host_search_cost", "--models", "small.onnx", *options)
    assert head.replace("CPU s", "CPU_s").split()[1:-1] == [name.replace(" ", "_") for name, _ in COLUMNS]
    then, now = ([float(word) for word in row.split()[2:9]] for row in rows)
    assert [row.split()[1] for row in rows] == ["before", "now"]
    for first, answer, end, cpu, n_runs, n_early, n_turns in (then, now):
        assert 0 < first <= answer <= end
        assert cpu > 0
        assert n_runs > n_early >= 0 == n_turns
    assert float(ratio.split()[-1]) == pytest.approx(now[3] / then[3], rel=0.05)
