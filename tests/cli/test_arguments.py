import pytest

from autoauto.cli.arguments import integers, proportions
from autoauto.records.errors import BadInput


@pytest.mark.parametrize("text", ["", "a", "1,,2", "1:", ":3", "1:2:3", "1.5"])
def test_what_is_no_list_of_integers_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="1,2,4 or 1:128"):
        integers(text)


@pytest.mark.parametrize("text", ["", "a", "0.3;0.6"])
def test_what_is_no_list_of_proportions_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"0\.3,0\.6,1\.0"):
        proportions(text)


def test_both_ends_of_a_span_are_values() -> None:
    assert integers("1:128") == tuple(range(1, 129))
