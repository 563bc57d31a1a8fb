"""What searches find on GPUs can be exported: some of the random questions of the study."""

from __future__ import annotations

import pytest
from tests.studies.running import run_script

from studies import gpu_exports

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")


def test_questions_are_of_all_kinds() -> None:
    every = gpu_exports.questions(40, 62)
    assert len(set(every)) == 40
    assert {each.engine for each in every} == {"vllm", "sglang", "trtllm"}
    assert {each.model for each in every} == set(gpu_exports.MODELS)
    assert any("+" in each.cluster for each in every)


@pytest.mark.slow
def test_winners_can_be_exported(run_script: Callable[..., list[str]]) -> None:
    lines = run_script("gpu_exports", "--questions", "6", "--seed", "7")
    assert lines[-1] == "6 of 6 can be acted on"
