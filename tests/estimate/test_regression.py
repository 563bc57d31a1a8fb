"""Fitted factors, and prediction intervals: by hand, and how often they hold for noise of an unknown distribution."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest
from scipy.special import stdtrit

from autoauto.estimate.regression import (
    LEVEL,
    MAX_FACTOR,
    STUDENT_QUANTILES,
    TrainingRow,
    factor,
    fit,
    fit_factors,
    predicted,
    prediction_interval,
)
from autoauto.records.costs.correction import PLAIN_SUM, RangeExample, RangeFeature, WholeRange
from autoauto.records.layers import LayerRange


def test_from_19_ratios_on_the_ends_are_order_statistics() -> None:
    ratios = [1 + (number - 10) / 100 for number in range(1, 20)]  # 0.91 to 1.09
    assert prediction_interval(ratios) == (0.91, 1.09)
    assert prediction_interval([*ratios, *ratios[1:]])[1] == pytest.approx(1.09)  # rank 36 of 37


def test_a_perfect_prediction_is_inside() -> None:
    assert prediction_interval([0.9] * 30) == (0.9, 1.0)
    assert prediction_interval([1.2] * 30) == (1.0, 1.2)


def test_few_ratios_have_an_interval_of_students_distribution() -> None:
    low, high = prediction_interval([0.99, 1.01])
    assert 1 / low == pytest.approx(high, rel=1e-3)
    assert high == pytest.approx(1 + 6.31 * 0.01414 * 1.2247, rel=0.02)  # t of one degree of freedom
    assert prediction_interval([0.5, 2.0]) == (1 / MAX_FACTOR, MAX_FACTOR)
    assert prediction_interval([1.3]) == (1.0, 1.0)


def test_quantiles_of_students_distribution_are_those_of_scipy() -> None:
    assert [stdtrit(n + 1, LEVEL) for n in range(len(STUDENT_QUANTILES))] == list(STUDENT_QUANTILES)
    assert prediction_interval([1.0] * (len(STUDENT_QUANTILES) + 1)) == (1.0, 1.0)  # so many the table must have


@pytest.mark.parametrize("n_ratios", [8, 12, 19, 40])
def test_each_end_is_exceeded_with_a_probability_of_5_percent(n_ratios: int) -> None:
    random = Random(n_ratios)
    above = below = 0
    for _ in range(2000):
        low, high = prediction_interval([random.lognormvariate(0, 0.05) for _ in range(n_ratios)])
        unseen = random.lognormvariate(0, 0.05)
        above += unseen > high
        below += unseen < low
    assert above / 2000 < 0.065
    assert below / 2000 < 0.065


TRUE = {"Conv": 1.1, "Relu after Conv": 0.0, "Relu after Add": 0.9, "Add": 0.95}


def example(random: Random, noise: float = 0.0, memory: float = 1.0, batch_size: int = 4) -> RangeExample:
    """A range of all classes; temporary memory is `memory` times that of the layers."""
    alone = {name: random.randrange(1000, 100_000) for name in TRUE}
    cycles = round(predicted(alone, TRUE) * random.uniform(1 - noise, 1 + noise))
    memory_bytes = {"parameter": random.randrange(10**6), "temporary": random.randrange(10**6, 10**7)}
    whole = {**memory_bytes, "temporary": round(memory_bytes["temporary"] * memory)}
    compiled = WholeRange(LayerRange(0, 9), cycles, 2 * cycles, whole)
    return RangeExample(compiled, batch_size, alone, alone, memory_bytes, {})


def examples(n: int, seed: int = 0, **arguments: float) -> list[RangeExample]:
    random = Random(seed)
    return [example(random, batch_size=4 ** (number % 2 + 1), **arguments) for number in range(n)]


def mean_error(factors: Mapping[str, float], noise: float = 0.0) -> float:
    unseen = examples(100, seed=9, noise=noise)
    return sum(abs(predicted(e.forward_cycles, factors) / e.whole.forward_cycles - 1) for e in unseen) / 100


def test_a_fit_finds_known_factors() -> None:
    fitted = fit(examples(60))
    for name, value in TRUE.items():
        assert fitted.forward[name] == pytest.approx(value, abs=0.03)
        assert fitted.backward[name] == pytest.approx(2 * value, abs=0.06)


def test_a_few_noisy_examples_beat_plain_sums_by_far() -> None:
    assert mean_error({}) > 0.2
    assert mean_error(fit(examples(12, noise=0.03)).forward) < 0.05


def test_factors_without_examples_are_the_prior() -> None:
    features = dict.fromkeys(map(str, RangeFeature), 1)
    rows = [TrainingRow({"Conv": 1000, **features}, 1200, number % 3) for number in range(9)]
    fitted = fit_factors(rows).factors
    assert [round(factor(fitted, name), 2) for name in ("Conv", *RangeFeature)] == [1.2, 0.0, 0.5, 0.3]


def test_factors_are_never_negative() -> None:
    rows = [TrainingRow({"Conv": 1000, "Relu": amount}, 1000 - amount, amount % 3) for amount in range(10, 500, 10)]
    fitted = fit_factors(rows).factors
    assert min(fitted.values()) == 0.0
    assert fitted["Relu"] == 0.0


def test_reading_weights_has_a_factor_of_its_own() -> None:
    random, reads = Random(0), []
    for number in range(20):
        conv, weights = random.randrange(1000, 9000), random.randrange(1, 9000)
        whole = WholeRange(LayerRange(0, number + 1), round(0.9 * conv + 0.5 * weights), 0, {"parameter": 1})
        features = {RangeFeature.WEIGHTS: weights}
        reads.append(RangeExample(whole, 4, {"Conv": conv}, {}, {"parameter": 1}, features))
    fitted = fit(reads)
    assert fitted.forward["Conv"] == pytest.approx(0.9, abs=0.03)
    assert fitted.features == {RangeFeature.WEIGHTS: pytest.approx(0.5, abs=0.03)}
    assert set(fitted.forward) == {"", "Conv"}
    assert factor({"": 0.9}, RangeFeature.WEIGHTS) == 0.0


def test_a_batch_size_has_its_factor() -> None:
    """The same layers cost 1.0, 0.9 and 0.8 times the prediction by classes at 1, 4 and 16 samples."""
    random, shared = Random(0), []
    for batch_size, share in ((1, 1.0), (4, 0.9), (16, 0.8)):
        for plain in (example(random, batch_size=batch_size) for _ in range(8)):
            whole = plain.whole._replace(
                forward_cycles=round(share * plain.whole.forward_cycles),
                backward_cycles=round(share * plain.whole.backward_cycles),
            )
            shared.append(plain._replace(whole=whole))
    fitted = fit(shared)
    for batch_size, share in ((1, 1.0), (2, 0.95), (16, 0.8), (64, 0.8)):
        unseen = example(Random(7), batch_size=batch_size)
        prediction = fitted.at_batch_size(batch_size) * predicted(unseen.forward_cycles, fitted.forward)
        assert prediction == pytest.approx(share * unseen.whole.forward_cycles, rel=0.05)
    assert fit(shared[:8]).batch_sizes == ()


def test_a_class_without_examples_has_its_parents_factor() -> None:
    fitted = fit_factors(
        [TrainingRow({"Conv": 1000, "Relu after Conv": n}, 900 + n // 2, n % 2) for n in range(100, 900, 50)]
    )
    assert factor(fitted.factors, "Relu after Add") == fitted.factors["Relu"]
    assert factor(fitted.factors, "Gelu") == fitted.factors[""]
    assert 0.4 < fitted.factors["Relu after Conv"] < 0.6


def test_memory_is_corrected_where_that_saves_memory() -> None:
    assert fit(examples(30)).memory == {}
    fitted = fit(examples(30, memory=0.8)).memory
    assert fitted == {"temporary": pytest.approx(0.8, abs=0.01)}
    assert fit(examples(30, memory=0.0)).memory == {"temporary": 0.0}
    larger = fit(examples(30, memory=1.3))
    assert larger.memory_interval.high * larger.memory["temporary"] >= 1.28


def test_memory_is_not_corrected_where_that_would_underestimate_most_ranges() -> None:
    """As of gpt2: a large output counts in sums, not in a range that ends with it; the others need more than sums."""
    ends, inside = (
        [example(Random(seed), memory=share, batch_size=size) for seed in seeds for size in (1, 4)]
        for share, seeds in ((0.2, range(3)), (1.2, range(3, 7)))
    )
    large = [
        small._replace(
            memory_bytes={name: 8 * n_bytes for name, n_bytes in small.memory_bytes.items()},
            whole=small.whole._replace(memory_bytes={name: 8 * n for name, n in small.whole.memory_bytes.items()}),
        )
        for small in ends
    ]
    fitted = fit([*large, *inside])
    assert fitted.memory == {}
    assert fitted.memory_interval.high > 1.2


def test_intervals_contain_unseen_examples() -> None:
    fitted = fit(examples(40, noise=0.04))
    low, high = fitted.cycles_interval
    inside = [
        low <= e.whole.forward_cycles / predicted(e.forward_cycles, fitted.forward) <= high
        for e in examples(400, seed=5, noise=0.04)
    ]
    assert sum(inside) / len(inside) > 0.9
    assert high < 1.1


def test_equal_examples_give_equal_corrections() -> None:
    assert fit(examples(20, noise=0.02)) == fit(examples(20, noise=0.02))


def test_a_single_example_gives_no_correction() -> None:
    assert fit(examples(1)) == PLAIN_SUM
