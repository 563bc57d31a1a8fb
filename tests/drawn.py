"""How many drawn cases a test has: a part in the default run, all in the thorough one that `.ci/run` does.

The thorough run is `pytest -m "slow or hypothesis or drawn" --hypothesis-profile thorough`. Tests whose number of cases
depends on the run have the mark `drawn`; Hypothesis marks its own.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings

N_EXAMPLES = 25
"""Examples of a test of Hypothesis in the default run."""
DAILY_SHARE = 4
"""The default run has one in so many of the cases that a test draws in a loop."""


def is_thorough() -> bool:
    """True in the run that draws all cases."""
    return settings.get_current_profile_name() == "thorough"


def n_examples(n: int) -> int:
    """The `max_examples` of a test that has `n` in the thorough run."""
    return n if is_thorough() else min(n, N_EXAMPLES)


def n_drawn(n: int) -> int:
    """The number of cases of a test that has `n` in the thorough run."""
    return n if is_thorough() else n // DAILY_SHARE


def daily(cases: Sequence[Any], n: int = 1, *, several: bool = False) -> list[Any]:
    """Cases for `parametrize`: the first `n` in the default run, the others among the slow tests.

    Args:
        cases: the values of an argument.
        n: how many of them are in the default run.
        several: True where a case is a tuple of the values of several arguments.
    """
    others = [case if several else (case,) for case in cases[n:]]
    return [*cases[:n], *(pytest.param(*values, marks=pytest.mark.slow) for values in others)]
