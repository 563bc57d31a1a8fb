"""What simple uses of a cluster give by the estimate, and how a study stores it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.study_summary import Alternative
from autoauto.space.trial import Trial
from autoauto.study.analysis.best import expected_alternatives, store_alternatives, stored_alternatives, summarise_study
from autoauto.study.methods.registry import predictor
from autoauto.study.run import run_search
from autoauto.study.store.study import load_study, open_study

if TYPE_CHECKING:
    from tests.study.conftest import Fake

SPACE = SearchSpace((1, 2, 4), (0.3, 1.0), (1, 5, 6, 7, 24, 30, 36, 37, 60))


def best_of(fake: Fake, n_ipu: int) -> float:
    trials = (fake(knobs) for cell in SPACE.cells for knobs in cell if knobs.n_ipu == n_ipu)
    return max(trial.samples_per_s for trial in trials)


@pytest.mark.parametrize("n_ipu", [1, 4])
def test_each_has_the_best_of_its_part_of_the_space(fake: Fake, n_ipu: int) -> None:
    predict = predictor(fake, Objective.THROUGHPUT)
    by_name = {entry.name: entry for entry in expected_alternatives(SPACE, predict, fake)}
    entry = by_name["one device" if n_ipu == 1 else "one pipeline of 4"]
    assert entry.knobs.n_ipu == n_ipu
    assert entry.samples_per_s == best_of(fake, n_ipu)


def test_batch_sizes_that_were_tried_are_asked_for_other_numbers_of_replicas(fake: Fake) -> None:
    wide = SearchSpace((1,), (0.6,), tuple(range(1, 1025)), replicas=(1, 2))
    asked: list[Knobs] = []

    def expect(knobs: Knobs) -> Trial:
        asked.append(knobs)
        return fake(knobs)

    predict = predictor(expect, Objective.THROUGHPUT)
    odd = Knobs(n_ipu=1, memory_proportion=0.6, batch_size=777, replicas=2)
    expected_alternatives(wide, predict, fake)
    assert Knobs(n_ipu=1, memory_proportion=0.6, batch_size=777) not in asked
    expected_alternatives(wide, predict, fake, [odd])
    assert {Knobs(n_ipu=1, memory_proportion=0.6, batch_size=777), odd} <= set(asked)


def test_what_was_not_estimated_to_the_end_is_said_to_give_at_most_so_much(fake: Fake, storage: str) -> None:
    """Pipelines of four have a limit only, and are never asked of the estimate."""
    asked: list[Knobs] = []

    def expect(knobs: Knobs) -> Trial:
        asked.append(knobs)
        return fake(knobs)

    def upper_bound(knobs: Knobs) -> Trial | None:
        return fake(knobs).with_values(samples_per_s=7.0) if knobs.n_ipu == 4 else None

    predict = predictor(expect, Objective.THROUGHPUT, upper_bound)
    alternatives = expected_alternatives(SPACE, predict, expect, upper_bound=upper_bound)
    assert [entry.samples_per_s for entry in alternatives if entry.at_most] == [7.0]
    assert {knobs.n_ipu for knobs in asked} == {1}
    study = open_study(storage, "bow", Objective.THROUGHPUT, {})
    run_search(SPACE, fake, study, Objective.THROUGHPUT)
    store_alternatives(study, alternatives)
    assert stored_alternatives(study) == alternatives


def test_where_none_fits_there_is_a_reason(fake: Fake) -> None:
    fake.tied = 2
    space = SearchSpace((1, 2), (0.3,), (4, 8))
    *_, longest = expected_alternatives(space, predictor(fake, Objective.THROUGHPUT), fake)
    assert (longest.name, longest.samples_per_s) == ("one pipeline of 2", 0.0)
    assert longest.reason == "tied weights leave no cut"


def test_a_study_stores_those_of_its_last_search(storage: str, fake: Fake) -> None:
    study = open_study(storage, "small", Objective.THROUGHPUT, {})
    run_search(SearchSpace((1,), (0.3,), (1, 5)), fake, study, Objective.THROUGHPUT)
    assert stored_alternatives(study) == ()
    first, second = (
        Alternative("one device", Knobs(n_ipu=1, memory_proportion=0.3, batch_size=n), 10.0 * n, "") for n in (1, 5)
    )
    store_alternatives(study, [first])
    store_alternatives(study, [second])
    summary = summarise_study(load_study(storage, "small"), storage)
    assert summary.alternatives == (second,)
    assert "alternatives" not in summary.attributes
