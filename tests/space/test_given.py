"""A configuration of one's own, by some of its knobs."""

from __future__ import annotations

import pytest

from autoauto.records.errors import BadInput
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.requests.given import configuration_given, knob_values
from autoauto.space.space import SearchSpace

SPACE = SearchSpace(n_ipu=(1, 2), replicas=(1, 2), strategy=tuple(Strategy), batch_size=(1, 2, 8))


@pytest.mark.parametrize(
    "given",
    ["n_ipu=2,batch_size=8", {"n_ipu": 2, "batch_size": 8}, Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8)],
)
def test_other_knobs_have_their_defaults(given: object) -> None:
    assert configuration_given(SPACE, given) == Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8)


def test_without_a_default_it_is_the_first_value_of_the_space() -> None:
    space = SearchSpace(n_ipu=(2,), memory_proportion=(0.2, 0.4), batch_size=(3, 4))
    assert configuration_given(space, "n_ipu=2") == Knobs(n_ipu=2, memory_proportion=0.2, batch_size=3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("n_ipu", "is written n_ipu=2,batch_size=8, got 'n_ipu'"),
        ("n_ipus=2", "there is no knob 'n_ipus'; did you mean 'n_ipu'"),
        ("n_ipu=2,n_ipu=1", "has one n_ipu, got two"),
        ("n_ipu=two", "n_ipu must be a whole number from 1 to 100,000, got 'two'"),
        ("n_ipu=0", "n_ipu must be a whole number from 1"),
        ("strategy=fast", "strategy must be one of"),
        ("n_ipu=3", "whose n_ipu is 1, 2, got 3; widen it"),
        ("strategy=phased,replicas=2", "none of strategy phased, replicas 2 together"),
        (3, "values of knobs, as in 'n_ipu=2,batch_size=8', got 3"),
        ({}, "values of knobs"),
        (Knobs(n_ipu=2, memory_proportion=0.6, batch_size=9), "whose batch_size is 1, 2, 8, got 9"),
    ],
)
def test_what_is_no_configuration_of_the_space_is_refused(given: object, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        configuration_given(SPACE, given)


def test_switches_and_words_are_written_as_in_options() -> None:
    values = knob_values("recompute=on, schedule=gpipe, memory-proportion=0.3")
    assert values == {"recompute": True, "schedule": "gpipe", "memory_proportion": 0.3}
