"""A line about what is not as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from autoauto.records.constraint import Constraint
from autoauto.records.schedule import Order
from autoauto.records.trial import Objective, SearchSpace, Strategy
from autoauto.search.resumed import note_space, read_space
from autoauto.search.run import run_search
from autoauto.search.study import open_study

if TYPE_CHECKING:
    from tests.search.conftest import Fake

SPACE = SearchSpace((1, 2), (0.3,), (1, 2, 3))


def test_a_changed_space_is_told_once_and_only_what_changed(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    assert note_space(study, SPACE) is None
    run_search(SPACE, fake, study, Objective.THROUGHPUT)
    assert note_space(study, SPACE) is None
    wider = SearchSpace((1,), (0.3, 0.6), (1, 2, 3))
    inside = sum(trial.params["n_ipu"] == 1 for trial in study.get_trials())
    assert note_space(study, wider) == (
        "study bow goes on in another space: n_ipu was 1,2, is 1; memory_proportion was 0.3, is 0.3,0.6; "
        f"{inside} of its {len(study.trials)} finished trials are in it and are not measured again"
    )
    assert note_space(study, wider) is None


def test_what_is_kept_is_read_again(storage: str) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    training = SearchSpace((1, 2), (0.3,), (1, 2), (Order.GPIPE,), (False, True), (8,), tuple(Strategy), (4, 8))
    bound = replace(SPACE, constraints=(Constraint("n_ipu * batch_size <= 4"),))
    for space in (SPACE, training, bound):
        note_space(study, space)
        assert read_space(study.user_attrs["space"]) == space


def test_without_trials_there_is_nothing_to_tell(storage: str) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    note_space(study, SPACE)
    assert note_space(study, SearchSpace((4,), (0.3,), (1,))) is None
