"""Readers of option values refuse text that is no value, and say what a value looks like."""

import argparse
import re

import pytest

from autoauto.cli.options.values import (
    at_most,
    choices_of,
    constraint_text,
    integers,
    objectives,
    positive_number,
    proportions,
    share,
    switches,
)
from autoauto.schedule.orders.registry import TRAINING_ORDERS


@pytest.mark.parametrize("text", ["-1", "11", "9" * 5_000, "1.5", "x", ""])
def test_a_bound_is_named_in_one_line(text: str) -> None:
    assert at_most(10, minimum=0)("10") == 10
    with pytest.raises(argparse.ArgumentTypeError, match="must be a whole number from 0 to 10, got") as caught:
        at_most(10, minimum=0)(text)
    assert len(str(caught.value)) < 120


def test_positive_numbers_are_read() -> None:
    assert [positive_number(text) for text in ("2.5", "1e3", " 7 ")] == [2.5, 1000.0, 7.0]


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "one", ""])
def test_numbers_that_are_not_positive_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="above 0, got"):
        positive_number(text)


def test_shares_are_from_0_to_below_1() -> None:
    assert [share(text) for text in ("0", "0.25")] == [0.0, 0.25]
    for text in ("1", "-0.1", "nan", "half"):
        with pytest.raises(argparse.ArgumentTypeError, match="from 0 to below 1, got"):
            share(text)


@pytest.mark.parametrize("text", ["", "a", "1,,2", "1:", ":3", "1:2:3", "1.5"])
def test_text_that_is_no_list_of_integers_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="1,2,4 or 1:128"):
        integers(text)


@pytest.mark.parametrize("text", ["", "a", "0.3;0.6", "0.3:", "0.3:a", "0.3:0.6,"])
def test_text_that_is_no_list_of_proportions_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"0\.3,0\.6,1\.0"):
        proportions(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8:1", "a range is written FIRST:LAST, the smaller first, got '8:1'; try 1:8"),
        ("8:-1", "the smaller first, got '8:-1'; try 1:128"),
    ],
)
def test_a_range_that_holds_nothing_says_how_it_is_written(text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=re.escape(message)):
        integers(text)


@pytest.mark.parametrize("text", ["1:1000000000", f"1:{10**30}"])
def test_a_knob_has_a_limited_number_of_values(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="1 to 100,000 values"):
        integers(text)


def test_a_span_includes_both_ends() -> None:
    assert integers("1:128") == tuple(range(1, 129))


@pytest.mark.parametrize("text", ["", "on,", "yes", "on;off"])
def test_text_that_is_no_switch_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="on, off or off,on"):
        switches(text)


@pytest.mark.parametrize("text", ["", "gpipe,", "GPipe", "inference"])
def test_unknown_words_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="one or more of popart, gpipe"):
        choices_of(TRAINING_ORDERS)(text)


@pytest.mark.parametrize("text", ["", "speed", "latency,latency"])
def test_text_that_is_no_objective_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="one or more of throughput"):
        objectives(text)


def test_a_constraint_with_an_unknown_name_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="did you mean 'latency_s'"):
        constraint_text("latencys <= 1")
