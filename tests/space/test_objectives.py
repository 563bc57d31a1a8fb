"""Objectives: what they need of devices, and their values as far as a trial has them."""

import pytest

from autoauto.records.errors import BadInput
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective, shown_values
from autoauto.space.trial import Status, Trial
from autoauto.targets.clusters import load_cluster


@pytest.mark.parametrize("objective", Objective)
def test_a_value_follows_from_its_score(objective: Objective) -> None:
    assert objective.value_of(objective.score(0.25)) == 0.25


def test_devices_without_the_quantity_of_an_objective_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for objective in (Objective.THROUGHPUT, Objective.PER_DEVICE, Objective.LATENCY):
        objective.check(load_cluster("bow-2000"))
    with pytest.raises(BadInput, match=r"^--objective cost needs price_per_hour of every device, bow-2000 has none "):
        Objective.COST.check(load_cluster("bow-2000"))
    monkeypatch.setattr(Objective.LATENCY, "_quantity", "fp8")
    Objective.LATENCY.check(load_cluster("c600"))
    with pytest.raises(BadInput, match=r"^--objective latency needs fp8 of every device, bow-2000 has none of bow; "):
        Objective.LATENCY.check(load_cluster("bow-2000"))


def test_values_without_plans_are_numbers_or_what_the_study_stores() -> None:
    objectives = (Objective.PER_DEVICE, Objective.LATENCY)
    trial = Trial(Knobs(), Status.OK, latency_s=0.5, values=(3e5, 0.25))
    assert shown_values(objectives, trial) == (3e5, 0.5)
    assert shown_values(objectives, Trial(Knobs(), Status.TIME_OUT)) == (None, None)
