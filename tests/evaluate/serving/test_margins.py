"""How likely the higher of two forecasts is better, by what differs between them."""

from __future__ import annotations

import pytest

from autoauto.engines.registry import engine_named
from autoauto.evaluate.serving.margins import (
    MIN_PROBABILITY,
    EngineChoice,
    difference,
    error_of,
    probability_better,
    simplest_of_tie,
)
from autoauto.space.knobs import Knobs

SERVED = EngineChoice("vllm", ("bf16", "bf16"), 1, (2, 1, 1))
OTHER_GROUP = SERVED._replace(group=(4, 1, 1))
OTHER_ENGINE = OTHER_GROUP._replace(engine="sglang")
OTHER_FORMAT = OTHER_ENGINE._replace(formats=("fp8", "bf16"))


def test_the_largest_difference_counts() -> None:
    others = (SERVED, OTHER_GROUP, OTHER_ENGINE, OTHER_FORMAT)
    assert [difference(SERVED, other) for other in others] == ["batch", "group", "engine", "format"]


def test_errors_are_wider_for_what_differs_more() -> None:
    errors = [error_of(SERVED, other) for other in (SERVED, OTHER_GROUP, OTHER_ENGINE, OTHER_FORMAT)]
    assert errors == sorted(errors)
    assert 0 < errors[0] < errors[-1] < 1


def test_every_doubling_of_the_stages_adds_the_error_of_the_engine() -> None:
    group, pipeline = error_of(SERVED, OTHER_GROUP), error_of(SERVED, SERVED._replace(n_stages=4, group=(1, 1, 1)))
    assert pipeline**2 - group**2 == pytest.approx(2 * engine_named("vllm").measured.stage_error ** 2)
    assert error_of(SERVED._replace(n_stages=4), SERVED._replace(n_stages=4)) == error_of(SERVED, SERVED)


def test_probabilities_add_up_and_grow_with_the_margin() -> None:
    assert probability_better(0.0, SERVED, OTHER_GROUP) == 0.5
    assert probability_better(0.1, SERVED, OTHER_GROUP) + probability_better(
        -0.1, OTHER_GROUP, SERVED
    ) == pytest.approx(1)
    assert (
        probability_better(0.01, SERVED, OTHER_GROUP) < MIN_PROBABILITY < probability_better(0.1, SERVED, OTHER_GROUP)
    )


def test_a_configuration_has_what_differs() -> None:
    knobs = Knobs(
        2, 8, 2, engine="vllm", tensor_parallel=2, precision="bf16", kv_cache_precision="bf16", input_tokens=64,
        output_tokens=32,
    )  # fmt: skip
    assert EngineChoice.of(knobs) == SERVED._replace(n_stages=2)


def served(n_stages: int, tensor_parallel: int, engine: str = "vllm") -> Knobs:
    return Knobs(
        n_stages, 8, 8 // (n_stages * tensor_parallel), engine=engine, tensor_parallel=tensor_parallel,
        precision="bf16", kv_cache_precision="bf16", input_tokens=64, output_tokens=32,
    )  # fmt: skip


def test_a_tie_goes_to_fewer_stages_and_smaller_groups() -> None:
    pipeline, plain, group = served(4, 1), served(1, 1), served(1, 2)
    assert simplest_of_tie(pipeline, {pipeline: 1043.0, plain: 1000.0}) == plain
    assert simplest_of_tie(group, {group: 1010.0, plain: 1000.0}) == plain
    assert simplest_of_tie(group, {group: 1200.0, plain: 1000.0}) == group, "a group that gives a fifth more is better"
    assert simplest_of_tie(pipeline, {pipeline: 1300.0, plain: 1000.0}) == pipeline


def test_a_pipeline_must_promise_more_than_a_group() -> None:
    pipeline, plain, group = served(2, 1), served(1, 1), served(1, 2)
    assert simplest_of_tie(group, {group: 1060.0, plain: 1000.0}) == group
    assert simplest_of_tie(pipeline, {pipeline: 1060.0, plain: 1000.0}) == plain


def test_a_tie_that_is_no_simpler_changes_nothing() -> None:
    best, other_engine, mixed = served(1, 2), served(1, 2, "sglang"), served(2, 1)
    assert simplest_of_tie(best, {best: 1001.0, other_engine: 1000.0, mixed: 1000.0}) == best
    smaller_batch = best.with_values(batch_size=4)
    assert simplest_of_tie(best, {best: 1001.0, smaller_batch: 1000.0}) == best


def test_of_equally_simple_ones_the_highest_is_taken() -> None:
    best, low, high = served(1, 2), served(1, 1), served(1, 1).with_values(batch_size=16)
    assert simplest_of_tie(best, {best: 1002.0, low: 1000.0, high: 1001.0}) == high
