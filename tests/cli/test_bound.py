from collections.abc import Callable
from typing import Any

import pytest

Door = Callable[..., Any]


@pytest.mark.parametrize("command", ["predict", "measure", "profile"])
def test_products_planned_without_the_bound_are_told_in_one_line(door: Door, command: str) -> None:
    code, _, err = door(command, "resnet50", "--batch-size", "16", "--memory-proportion", "0.01")
    assert code == 0
    assert err.count("\n") == 1
    assert "meets memory proportion 0.01, so the bound was dropped there" in err


def test_a_bound_that_is_met_is_not_worth_a_word(door: Door) -> None:
    assert door("predict", "resnet50", "--memory-proportion", "0.6").err == ""
