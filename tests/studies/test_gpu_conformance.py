"""The study beside the whole package, which no extra of ours has."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import pytest

from studies import gpu_conformance


def test_without_the_processor_steps_and_memory_are_those_of_the_package() -> None:
    pytest.importorskip("aiconfigurator", reason="it estimates, and is no extra of ours")
    model = gpu_conformance.MODELS[0]
    ours, theirs = gpu_conformance.ours(model, 4, 64), gpu_conformance.theirs(model, 4, 64)
    assert ours.step_s == pytest.approx(theirs.step_s, rel=0.05)
    assert ours.memory_bytes == pytest.approx(theirs.memory_bytes, rel=0.05)
    assert ours.tpot_s > ours.step_s


@pytest.mark.slow
def test_it_prints_a_line_a_model_or_what_it_needs(run_script: Callable[..., list[str]]) -> None:
    if find_spec("aiconfigurator") is None:
        run_script("gpu_conformance", exit_codes=(1,))
    else:
        assert len(run_script("gpu_conformance")) == 1 + len(gpu_conformance.MODELS) + len(gpu_conformance.REASONS)


def test_configurations_are_forty_and_every_engine_has_a_reason() -> None:
    assert len(gpu_conformance.MODELS) * len(gpu_conformance.SHAPES) == 40
    assert {model.engine for model in gpu_conformance.MODELS} == gpu_conformance.REASONS.keys()
