"""What searches find on GPUs can be exported: some of the random searches of the study."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from studies import gpu_exports

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")


def test_searches_are_for_every_engine_and_model() -> None:
    every = gpu_exports.searches(40, 62)
    assert len(set(every)) == 40
    assert {each.engine for each in every} == {"vllm", "sglang", "trtllm"}
    assert {each.model for each in every} == set(gpu_exports.MODELS)
    assert any("+" in each.cluster for each in every)


@pytest.mark.slow
def test_winners_can_be_exported(run_script: Callable[..., list[str]]) -> None:
    lines = run_script("gpu_exports", "--searches", "6", "--seed", "7")
    assert lines[-1] == "6 of 6 can be acted on"
