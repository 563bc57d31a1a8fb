"""The study beside the whole package, which no extra of ours has."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

from autoauto.space.knobs import Knobs
from studies import gpu_conformance


def test_without_the_processor_steps_and_memory_are_those_of_the_package() -> None:
    pytest.importorskip("aiconfigurator", reason="it estimates, and is no extra of ours")
    model = gpu_conformance.MODELS[0]
    ours, theirs = gpu_conformance.ours(model, 4, 64), gpu_conformance.theirs(model, 4, 64)
    assert ours.step_s == pytest.approx(theirs.step_s, rel=0.05)
    assert ours.memory_bytes == pytest.approx(theirs.memory_bytes, rel=0.05)
    assert ours.tpot_s > ours.step_s


@pytest.mark.filterwarnings("ignore")  # its own, of pandas and of what it will leave out
def test_its_own_two_pools_have_the_rate_that_it_says_of_them() -> None:
    pytest.importorskip("aiconfigurator", reason="it estimates, and is no extra of ours")
    asked = gpu_conformance.POOLED[7]
    best = gpu_conformance.their_configs(asked)["disagg"].iloc[0]
    workers: dict[str, Any] = {
        f"prefill_{name}": int(best[f"(p){theirs}"])
        for name, theirs in (("workers", "workers"), ("tensor_parallel", "tp"), ("batch_size", "bs"))
    }
    knobs = Knobs(
        1,
        int(best["(d)bs"]),
        int(best["(d)workers"]),
        engine=asked.engine,
        tensor_parallel=int(best["(d)tp"]),
        input_tokens=asked.requests.input_tokens,
        output_tokens=asked.requests.output_tokens,
        **workers,
    )
    said = gpu_conformance.pools_in_their_estimate(asked, knobs)
    assert said.tokens_per_s == pytest.approx(best["tokens/s"], rel=1e-3)
    assert said.ttft_s == pytest.approx(best["ttft"] / 1e3, rel=1e-3)
    assert said.tpot_s == pytest.approx(best["tpot"] / 1e3, rel=1e-3)


@pytest.mark.slow
def test_it_prints_a_line_a_model_or_what_it_needs(run_script: Callable[..., list[str]]) -> None:
    if find_spec("aiconfigurator") is None:
        run_script("gpu_conformance", exit_codes=(1,))
    else:
        assert len(run_script("gpu_conformance")) == 1 + len(gpu_conformance.MODELS) + len(gpu_conformance.REASONS)


def test_configurations_are_forty_and_every_engine_has_a_reason() -> None:
    assert len(gpu_conformance.MODELS) * len(gpu_conformance.SHAPES) == 40
    assert {model.engine for model in gpu_conformance.MODELS} == gpu_conformance.REASONS.keys()


def test_two_pools_are_asked_for_twenty_times_on_8_to_32_gpus() -> None:
    assert len(set(gpu_conformance.POOLED)) == 20
    assert {asked.n_gpus for asked in gpu_conformance.POOLED} == {8, 16, 32}
    assert {asked.engine for asked in gpu_conformance.POOLED} == gpu_conformance.REASONS.keys()
