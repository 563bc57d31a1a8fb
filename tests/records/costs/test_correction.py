"""Factors by class of layer and by batch size."""

import pytest

from autoauto.records.costs.correction import PLAIN_SUM, Correction, parent_class


def test_every_class_descends_from_the_root() -> None:
    name, ancestors = "Relu after Conv", []
    while name:
        above = parent_class(name)
        assert above is not None
        ancestors.append(above)
        name = above
    assert ancestors == ["Relu", ""]


def test_a_plain_sum_has_no_factors_and_no_examples() -> None:
    assert (PLAIN_SUM.n_examples, PLAIN_SUM.memory_interval.high, PLAIN_SUM.cycles_interval.low) == (0, 1.0, 1.0)


def test_a_factor_beyond_the_ends_is_extrapolated_by_no_more_than_its_last_step() -> None:
    correction = Correction(batch_sizes=((8, 1.0), (9, 0.5), (32, 0.4), (33, 0.9)))
    assert [correction.at_batch_size(size) for size in (8, 9, 32, 33)] == pytest.approx([1.0, 0.5, 0.4, 0.9])
    for size in (1, 2, 4, 7):
        assert 1.0 < correction.at_batch_size(size) <= 1.0 / 0.4
    for size in (34, 66, 1000):
        assert 0.9 < correction.at_batch_size(size) <= 0.9 / 0.5
    assert correction.at_batch_size(66) == correction.at_batch_size(1000)


def test_a_factor_is_constant_beyond_sizes_that_are_close_together() -> None:
    correction = Correction(batch_sizes=((8, 1.0), (9, 0.5)))
    assert [correction.at_batch_size(size) for size in (1, 7, 10, 100)] == [1.0, 1.0, 0.5, 0.5]
