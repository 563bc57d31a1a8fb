"""What a method is known by."""

from autoauto.records.trial import Knobs
from autoauto.search.exhaustive import exhaustive
from autoauto.search.steps import Propose, Step, Steps, Tried, drive


def test_a_method_begins_again_unless_it_has_a_name() -> None:
    assert not Propose(lambda space, _: exhaustive(space)).name


def test_a_method_is_answered_when_it_tries_and_not_while_it_predicts() -> None:
    told: list[Tried | None] = []

    def method() -> Steps:
        for knobs in (None, Knobs(1, 0.6, 4), None, Knobs(1, 0.6, 8)):
            told.append((yield Step(knobs, 0, 4)))

    drive(method(), lambda knobs: Tried(float(knobs.batch_size), True))
    assert told == [None, Tried(4.0, True), None, Tried(8.0, True)]
