"""The best measured trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from autoauto.records.plan import Plan
from autoauto.records.trial import Knobs, Objective, SearchSpace
from autoauto.search.best import best_trial
from autoauto.search.run import run_search
from autoauto.search.study import load_study, open_study

if TYPE_CHECKING:
    from tests.search.conftest import Fake

SPACE = SearchSpace((1, 2), (0.3, 1.0), tuple(range(1, 101)))


@pytest.mark.parametrize("objective", list(Objective))
def test_the_best_is_read_back_whole(
    storage: str, fake: Fake, plan: Callable[[Knobs], Plan], objective: Objective
) -> None:
    study = open_study(storage, "bow", objective, {})
    run_search(SPACE, fake, study, objective)
    best = best_trial(load_study(storage, "bow"))
    assert best is not None
    assert (best.number, best.value) == (study.best_trial.number, study.best_trial.value)
    assert study.best_trial.params == {
        "n_ipu": best.knobs.n_ipu,
        "memory_proportion": best.knobs.memory_proportion,
        "batch_size": best.knobs.batch_size,
    }
    assert best.measured == plan(best.knobs)
    assert best.samples_per_s == fake(best.knobs).samples_per_s
    assert best.estimate == fake(best.knobs).estimate


def test_nothing_measured_has_no_best(storage: str, fake: Fake) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    assert best_trial(study) is None
    run_search(SearchSpace((1,), (1.0,), (64, 128)), fake, study, Objective.THROUGHPUT)
    assert len(study.get_trials()) == 2
    assert best_trial(study) is None
