"""Which values a knob may have, and what it sets."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from autoauto.records.costs.options import CompileOptions, PlainSession, Session, SessionOptions
from autoauto.records.knob import FRACTION_BY_DEVICE, Domain, HasKnobs, Knob, largest_by_device, whole
from autoauto.records.units import Precision

SWITCH = Domain(bool, "on or off", "switches", words=("auto",))


@pytest.mark.parametrize(
    ("domain", "allowed", "refused"),
    [
        (whole(4), [1, 4], [0, 5, 2.0, "2", True, None]),
        (whole(4, 0), [0], [-1, False]),
        (Domain(str, "a word", "words", words=("a", "b")), ["a", "b"], ["c", "", 1, None]),
        (SWITCH, [True, False, "auto"], ["on", 0, 1, None]),
        (FRACTION_BY_DEVICE, [1, 0.5, 1.0, "0.5:1"], [0, 0.0, 1.5, -0.5, "0.5:0", "0.5:1.5", True, None]),
    ],
)
def test_values_that_a_knob_may_have(domain: Domain, allowed: list[Any], refused: list[Any]) -> None:
    assert all(map(domain.allows, allowed))
    assert not any(map(domain.allows, refused))


def test_of_numbers_by_device_the_largest_counts() -> None:
    assert (largest_by_device("0.5:0.75:0.25"), largest_by_device(0.5)) == (0.75, 0.5)


class _Owner(HasKnobs):
    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob("two_words", whole(9), 1, "help", "N", ("1", "1")),
        Knob("named", whole(9), 7, "help", "N", ("7", "7"), sets="other"),
    )
    two_words, other = 3, 4


def test_a_knob_sets_the_field_of_its_name_or_another() -> None:
    first, second = _Owner.knobs
    assert [(knob.field, knob.option) for knob in (first, second)] == [
        ("two_words", "--two-words"),
        ("other", "--named"),
    ]
    assert _Owner().values == {"two_words": 3, "other": 4}
    assert (second.absent, Knob("x", whole(9), 7, "help", "N", ("7", "7"), absent=None).absent) == (7, None)


class _Parts(Session):
    runtime: ClassVar[str | None] = "r"
    n_parts = 3
    conflict = "no"


class _Half(_Parts):
    computes_in = Precision.FP16


def test_a_session_says_its_batch_sizes_and_formats() -> None:
    assert _Parts().batch_sizes([1, 3, 4, 6, 9]) == [3, 6, 9]
    assert (_Parts().is_possible, PlainSession().is_possible) == (False, True)
    assert PlainSession().batch_sizes([1, 2]) == [1, 2]
    assert [SessionOptions(1, each).precision for each in (_Parts(), _Half())] == [Precision.FP32, Precision.FP16]
    assert SessionOptions(1, _Half()).runtime == "r"
    for session, expected in ((_Parts(), Precision.FP32), (_Half(), Precision.FP16)):
        assert CompileOptions(1, Precision.FP32, session=session).weight_precision is expected
    assert PlainSession().of_devices([PlainSession()] * 2) == PlainSession()
