import pytest

from autoauto.records.errors import BadInput
from autoauto.records.trial import Knobs, Outcome, SearchSpace


def test_the_default_space_has_1152_configurations() -> None:
    assert SearchSpace().n_configurations == 3 * 3 * 128 == 1152


@pytest.mark.parametrize("knobs", [(0, 0.6, 1), (1, 0.0, 1), (1, 1.1, 1), (1, float("nan"), 1), (1, 0.6, 0)])
def test_impossible_knobs_are_refused(knobs: tuple[int, float, int]) -> None:
    with pytest.raises(BadInput, match=r"must be .*, got"):
        Knobs(*knobs)


@pytest.mark.parametrize(
    "space",
    [{"n_ipu": ()}, {"n_ipu": (1, 1)}, {"n_ipu": (0,)}, {"memory_proportion": (2.0,)}, {"batch_size": (4, 2)}],
)
def test_impossible_spaces_are_refused(space: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(BadInput):
        SearchSpace(**space)


def test_an_outcome_fits_when_it_was_measured() -> None:
    assert not Outcome(Knobs(1, 0.6, 1), None, None, 0.0, 0.0, 5, 10, "too large").fits
