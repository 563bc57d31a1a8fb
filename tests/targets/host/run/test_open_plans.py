"""Plans that stay loaded between measurements: which, how many, and until when."""

from typing import Any

import pytest

from autoauto.records.errors import OutOfMemory
from autoauto.targets.host.run import run
from autoauto.targets.host.run.run import MAX_OPEN, OpenPlans


class Plan:
    """Stands for an `OpenPlan`; knows whether it is loaded."""

    private_bytes = 100

    def __init__(self) -> None:
        self.is_open = False

    def __enter__(self) -> "Plan":
        self.is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self.is_open = False


def opened(plans: OpenPlans, keys: list[int]) -> list[Any]:
    return [plans.get(key, Plan) for key in keys]  # type: ignore[arg-type]


def test_the_plan_that_was_used_longest_ago_is_closed_for_another() -> None:
    plans = OpenPlans()
    first = opened(plans, list(range(MAX_OPEN)))
    assert opened(plans, [0]) == first[:1]
    opened(plans, [99])
    assert [plan.is_open for plan in first] == [True, False, *[True] * (MAX_OPEN - 2)]
    plans.close()
    assert not any(plan.is_open for plan in first)


def test_a_dropped_plan_is_loaded_anew() -> None:
    plans = OpenPlans()
    (first,) = opened(plans, [1])
    plans.drop(1)
    plans.drop(2)  # not open
    assert not first.is_open
    assert opened(plans, [1]) != [first]


def test_all_are_closed_where_the_machine_has_less_memory_than_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = OpenPlans()
    first = opened(plans, [1, 2])
    monkeypatch.setattr(run, "machine_bytes", lambda: 199)
    (third,) = opened(plans, [3])
    assert [plan.is_open for plan in (*first, third)] == [False, False, True]


def test_a_plan_that_lacks_what_others_hold_is_loaded_without_them() -> None:
    class Large(Plan):
        def __enter__(self) -> Plan:
            if any(plan.is_open for plan in first):
                raise OutOfMemory("no memory is left", 1)
            return super().__enter__()

    plans = OpenPlans()
    first = opened(plans, [1, 2])
    with pytest.raises(OutOfMemory):
        plans.get(3, Large)  # type: ignore[arg-type]
    assert all(plan.is_open for plan in first)
    large: Any = plans.get(3, Large, may_lack_memory=True)  # type: ignore[arg-type]
    assert [plan.is_open for plan in (*first, large)] == [False, False, True]


def test_plans_end_with_their_owner() -> None:
    plans = OpenPlans()
    (plan,) = opened(plans, [1])
    del plans
    assert not plan.is_open
