import argparse

import pytest

from autoauto.cli.options.numbers import count, integers, positive, positive_number, proportions, share


def test_numbers_above_0() -> None:
    assert [positive_number(text) for text in ("2.5", "1e3", " 7 ")] == [2.5, 1000.0, 7.0]


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "one", ""])
def test_others_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="above 0, got"):
        positive_number(text)


def test_shares_are_below_1() -> None:
    assert [share(text) for text in ("0", "0.25")] == [0.0, 0.25]
    for text in ("1", "-0.1", "nan", "half"):
        with pytest.raises(argparse.ArgumentTypeError, match="from 0 to below 1, got"):
            share(text)


@pytest.mark.parametrize("text", ["", "a", "1,,2", "1:", ":3", "1:2:3", "1.5"])
def test_what_is_no_list_of_integers_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="1,2,4 or 1:128"):
        integers(text)


@pytest.mark.parametrize("text", ["", "a", "0.3;0.6"])
def test_what_is_no_list_of_proportions_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"0\.3,0\.6,1\.0"):
        proportions(text)


@pytest.mark.parametrize("text", ["8:1", "1:1000000000"])
def test_a_knob_takes_a_sensible_number_of_values(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="1 to 100000 values"):
        integers(text)


@pytest.mark.parametrize("text", ["0", "-1", "", "1.5", "x"])
def test_what_is_not_positive_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="from 1"):
        positive(text)


@pytest.mark.parametrize("text", ["-1", "", "1.5", "x"])
def test_what_is_no_count_is_refused(text: str) -> None:
    assert count("0") == 0
    with pytest.raises(argparse.ArgumentTypeError, match="from 0"):
        count(text)


def test_both_ends_of_a_span_are_values() -> None:
    assert integers("1:128") == tuple(range(1, 129))
