"""The study of what pipelines give beside tensor parallelism."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest


@pytest.mark.slow
def test_a_small_decoder_has_an_answer_with_and_without_pipelines(run_script: Callable[..., list[str]]) -> None:
    pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
    for row, n_answers in zip(run_script("gpu_pipelines", "--small"), (2, 4), strict=True):
        best, *others = (float(number.replace(",", "")) for number in re.findall(r"([\d,]+) tokens/s", row))
        assert len(others) == n_answers - 1
        assert best >= max(others) > 0
        assert "PP1" in row.partition("PP 1:")[2]
