"""Errors of forecasts of families of decoders: what even rows say, what stands for missing ones, what is said."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest

from autoauto.records.costs.blocks import Attention, BlockKind, Dense, Experts
from autoauto.records.costs.decoder import Checkpoint, Decoder, WeightFormat
from autoauto.targets.gpu.calibration import INTERVAL, Group, Ratio, fit, unmeasured
from autoauto.targets.gpu.family_errors import (
    DENSE,
    TPOT_PRIOR,
    TTFT_PRIOR,
    ErrorKey,
    FamilyErrors,
    error_notes,
    error_table,
    errors_of,
    family_of,
    priors_of,
)
from studies.gpu_family_errors import fitted_errors

PLAIN = Decoder("", "LlamaForCausalLM", 64, 4, 8, 2, 8, 96, 100, is_tied=False)
MIXTURE = replace(
    PLAIN,
    architecture="MadeUpMoeForCausalLM",
    experts=Experts(8, 2, 32),
    checkpoint=Checkpoint(WeightFormat.FP8_BLOCK),
)


def test_plain_dense_decoders_are_one_family_and_others_are_their_classes() -> None:
    windowed = replace(PLAIN, kinds=(BlockKind(Attention(8, 2, 8, window=16), Dense(96)),))
    assert family_of(PLAIN) == family_of(replace(PLAIN, architecture="MistralForCausalLM")) == DENSE
    assert family_of(replace(windowed, architecture="Gemma3ForCausalLM")) == "Gemma3ForCausalLM"
    assert family_of(MIXTURE) == "MadeUpMoeForCausalLM"


def test_forecasts_of_dense_decoders_stay_as_they_are() -> None:
    assert priors_of(ErrorKey(DENSE, "vllm", "bf16", "h100_sxm")) == (TPOT_PRIOR, TTFT_PRIOR)
    assert unmeasured(ErrorKey(DENSE, "vllm", "bf16", "h100_sxm")).tpot.factor == 1.0


def test_every_group_of_the_file_has_a_family_with_the_format_and_wider_intervals_elsewhere() -> None:
    table = error_table()
    assert table[ErrorKey()].factor == 1.0
    for key, errors in table.items():
        of_family = table[key._replace(system="")]
        assert 0.3 < errors.factor < 3
        assert errors.n_rows <= of_family.n_rows
        elsewhere = errors_of(key._replace(system="made_up"))
        assert elsewhere == of_family


@pytest.mark.parametrize("missing", ["engine", "precision", "family"])
def test_where_nothing_of_a_kind_was_measured_intervals_are_as_wide_as_families_differ(missing: str) -> None:
    key = next(key for key in error_table() if key.system)._replace(**{missing: "made up"})
    of_all = unmeasured(key)
    assert of_all.tpot.factor == 1.0
    dense = unmeasured(ErrorKey(DENSE))
    assert of_all.tpot.high / of_all.tpot.low > dense.tpot.high / dense.tpot.low
    assert of_all.ttft.high / of_all.ttft.low > dense.ttft.high / dense.ttft.low


def test_an_interval_of_a_group_holds_as_many_rows_as_is_said() -> None:
    errors = FamilyErrors(100, 1.2, 1.2, 0.2, 0.5)
    random = np.random.default_rng(0)
    logs = random.normal(log(1.2), 0.2, 10_000)
    low, high = errors.ends
    assert ((np.exp(logs) > low) & (np.exp(logs) < high)).mean() == pytest.approx(INTERVAL, abs=0.02)
    prior = errors.priors.tpot
    assert (prior.scatter, exp(prior.centre)) == pytest.approx((0.2, 1.2))
    assert prior.scatter**2 + prior.near**2 > 0.2**2, "what a user runs differs from all rows"
    assert errors.priors.ttft.scatter**2 + errors.priors.ttft.near**2 == pytest.approx(0.5**2)


def test_rows_of_a_user_move_the_factor_of_a_family() -> None:
    key = next(key for key, errors in error_table().items() if key.system and errors.factor > 1.1)
    group = Group("model", key.engine, key.system, key.precision, key.family)
    ours = unmeasured(key).tpot
    theirs = fit([Ratio(group, 1.1 * ours.factor, None)] * 50).of(group).tpot
    assert ours.factor < theirs.factor < 1.1 * ours.factor
    assert theirs.high / theirs.low < ours.high / ours.low


@pytest.mark.parametrize(
    ("errors", "is_contradicted"),
    [
        (FamilyErrors(10, 0.7, 0.7, 0.1, 0.5), True),
        (FamilyErrors(9, 0.7, 0.7, 0.1, 0.5), False),
        (FamilyErrors(10, 0.8, 0.8, 0.1, 0.5), False),
        (FamilyErrors(10, 1.6, 1.6, 0.1, 0.5), True),
        (FamilyErrors(10, 1.0, 1.0, 0.31, 0.5), True),
    ],
)
def test_times_far_from_enough_rows_are_contradicted(errors: FamilyErrors, is_contradicted: bool) -> None:
    assert errors.is_contradicted == is_contradicted


def test_an_answer_says_what_it_is_multiplied_by_what_is_contradicted_and_what_was_not_measured() -> None:
    key, errors = next((key, errors) for key, errors in error_table().items() if key.system and errors.is_contradicted)
    decoder = replace(MIXTURE, architecture=key.family, checkpoint=Checkpoint(WeightFormat(key.precision)))
    notes = error_notes(decoder, [key.engine, "made_up"], [key.system])
    assert f"by {key.engine} on {key.system} are not trusted: 80 % of {errors.n_rows} measured rows have" in notes[0]
    assert f"{key.engine} on {key.system} times {errors.factor:.2f} ({errors.n_rows} rows)" in notes[1]
    assert notes[2].endswith(f"was measured: made_up on {key.system}")
    assert error_notes(PLAIN, [key.engine], [key.system]) == ()


def test_a_fit_finds_what_was_put_in() -> None:
    random = np.random.default_rng(0)
    near, far = ErrorKey("A", "vllm", "fp8", "x"), ErrorKey("A", "vllm", "fp8", "y")
    logs = {
        key: list(zip(random.normal(middle, 0.1, 200).tolist(), random.normal(0.0, 0.4, 200).tolist(), strict=True))
        for key, middle in ((near, 0.0), (far, 0.4))
    }
    fitted = dict(fitted_errors(logs))
    assert fitted.keys() == {ErrorKey(), near._replace(system=""), near, far}
    assert log(fitted[near].factor) == pytest.approx(0.0, abs=0.03)
    assert log(fitted[far].factor) == pytest.approx(0.4, abs=0.03)
    assert fitted[far].tpot_spread == pytest.approx(0.1, rel=0.15)
    assert fitted[far].ttft_spread == pytest.approx(0.4, rel=0.15)
    elsewhere = fitted[near._replace(system="")]
    assert 1.0 < elsewhere.factor < exp(0.4)
    assert elsewhere.tpot_spread > 1.3 * fitted[far].tpot_spread
    few = dict(fitted_errors({near: logs[near][:200], far: logs[far][:2]}))
    assert few[far].factor < fitted[far].factor
