"""A study read as a whole: everything that its trials tell."""

import pytest

from autoauto.records.trial import Knobs, Objective, SearchSpace
from autoauto.search.best import best_trial
from autoauto.search.child import Evaluate
from autoauto.search.findings import study_findings
from autoauto.search.run import run_search
from autoauto.search.study import open_study

SPACE = SearchSpace((1, 2), (0.6, 1.0), tuple(range(1, 65)))


def test_all_that_was_tried_is_told(storage: str, fake: Evaluate) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {"model": "abc"})
    result = run_search(SPACE, fake, study, Objective.THROUGHPUT)
    found = study_findings(study, storage, n_contenders=3)
    assert (found.study_name, found.storage, found.attributes["model"]) == ("bow", storage, "abc")
    assert len(found.tried) == result.counts.n_tried
    assert sum(tried.compiled for tried in found.tried) == result.counts.n_measured
    best = best_trial(study)
    assert best is not None
    assert found.winner is not None
    assert (found.winner.tried.number, found.winner.measured) == (best.number, best.measured)
    assert (found.winner.tried.samples_per_s, found.winner.estimate) == (best.samples_per_s, best.estimate)
    assert [contender.tried for contender in found.contenders] == list(found.ranked[:3])
    assert {(cell.knobs, cell.largest and cell.largest.knobs.batch_size) for cell in found.cells} == {
        (cell.knobs, cell.batch_size) for cell in result.cells
    }


def test_what_does_not_fit_has_its_reason(storage: str, fake: Evaluate) -> None:
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    space = SearchSpace((1,), (1.0,), (100,))
    run_search(space, fake, study, Objective.THROUGHPUT)
    found = study_findings(study, storage)
    (tried,) = found.tried
    assert (tried.fits, tried.compiled, tried.reason) == (False, True, "stage 0 is out of memory")
    assert tried.excess_bytes == 100 + 2500 - 1000
    assert (found.winner, found.ranked) == (None, ())


def test_a_trial_that_failed_is_told_beside_the_others(storage: str, fake: Evaluate) -> None:
    def breaks(knobs: Knobs) -> object:
        raise RuntimeError("a bug")

    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    run_search(SearchSpace((1,), (0.6,), (1,)), fake, study, Objective.THROUGHPUT)
    with pytest.raises(RuntimeError):
        run_search(SearchSpace((1,), (0.6,), (2,)), breaks, study, Objective.THROUGHPUT)  # type: ignore[arg-type]
    found = study_findings(study, storage)
    (failure,) = found.failures
    assert (failure.params["batch_size"], "a bug" in failure.reason) == (2, True)
    assert len(found.tried) == 1
