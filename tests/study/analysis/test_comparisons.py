"""What one would run without a search."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from autoauto.records.knobs import Knobs, Objective, SearchSpace, Strategy
from autoauto.records.schedule import Order
from autoauto.study.analysis.comparisons import default_knobs, expected_answer
from autoauto.study.run import run_search
from autoauto.study.store.study import open_study

if TYPE_CHECKING:
    from tests.search.conftest import Fake
import json

from autoauto.records.layers import LayerRange
from autoauto.records.plan import Plan, Stage
from autoauto.records.study_summary import (
    Contender,
    Expected,
    Findings,
    Interval,
    Repeated,
    Tried,
    Verdict,
    Verification,
)
from autoauto.study.analysis.comparisons import GRID_BISECT, seed_answer, study_comparisons
from autoauto.study.analysis.verification import DEFAULT, RUNNER_UP, WINNER


def test_it_is_one_pipeline_of_all_devices_that_may_be_used() -> None:
    assert default_knobs(SearchSpace((1, 2, 4), (0.3, 1.0)), real=False) == Knobs(4, 0.6, 8)


def test_it_keeps_to_the_batch_sizes_of_the_search() -> None:
    assert default_knobs(SearchSpace((2,), (0.3,), (1, 2, 4)), real=False) == Knobs(2, 0.6, 4)
    assert default_knobs(SearchSpace((2,), (0.3,), (16, 32)), real=False) == Knobs(2, 0.6, 16)


def test_on_real_devices_it_is_one_that_may_use_all_its_memory() -> None:
    assert default_knobs(SearchSpace((1, 2), (0.5,), (4, 8, 16), replicas=(1, 2)), real=True) == Knobs(1, 1.0, 8)


def test_training_and_phases_take_the_first_values() -> None:
    training = SearchSpace((2,), (0.6,), (4,), (Order.GPIPE, Order.POPART), (True, False), (8, 16))
    assert default_knobs(training, real=False) == Knobs(2, 0.6, 4, Order.GPIPE, True, 8)
    phased = SearchSpace((1,), (0.6,), (8,), strategy=(Strategy.PHASED,), steps=(4, 8))
    assert default_knobs(phased, real=False) == Knobs(1, 0.6, 8, n_micro_batches=4, strategy=Strategy.PHASED)


SPACE = SearchSpace((1, 2), (0.3, 1.0), tuple(range(1, 128)))


def test_it_is_where_bisection_ends_when_the_estimate_is_right(storage: str, fake: Fake) -> None:
    result = run_search(SPACE, fake, open_study(storage, "bow", Objective.THROUGHPUT, {}), Objective.THROUGHPUT)
    winner = Knobs(2, 0.3, 96)
    told = expected_answer(SPACE, type(fake)(), Objective.THROUGHPUT, winner)
    assert told is not None
    assert all(cell.batch_size for cell in result.cells)
    at_ends = [fake(replace(cell.knobs, batch_size=cell.batch_size)) for cell in result.cells if cell.batch_size]
    best = max(at_ends, key=lambda outcome: outcome.samples_per_s)
    assert (told.knobs, told.samples_per_s) == (best.knobs, best.samples_per_s)
    assert told.gain_percent == pytest.approx(100 * (fake(winner).samples_per_s / best.samples_per_s - 1))


def test_where_nothing_fits_there_is_none(fake: Fake) -> None:
    fake.tied = 2
    assert expected_answer(SearchSpace((2,), (0.3,), (1, 2)), fake, Objective.THROUGHPUT, Knobs(1, 0.3, 1)) is None


PLAN = Plan((Stage(LayerRange(0, 3), 0, 100, 0, 10, 10, {}, 1000),))
A, B = Knobs(2, 0.6, 3), Knobs(2, 0.6, 2)


def findings(speeds: dict[tuple[int, int], float]) -> Findings:
    """Trials by n_ipu and batch size; 0 does not fit."""
    tried = tuple(Tried(i, Knobs(n, 0.6, b), speed) for i, ((n, b), speed) in enumerate(speeds.items()))
    found = Findings("small", "sqlite:///x.db", Objective.THROUGHPUT, {}, tried, ())
    return replace(found, contenders=tuple(Contender(one, PLAN, None) for one in found.ranked))


def repeated(name: str, knobs: Knobs, *values: float, what: str = "") -> Repeated:
    return Repeated(name, knobs, what, values, values)


def told(found: Findings) -> dict[str, tuple[float | None, float | None]]:
    return {one.name: (one.speed and one.speed.mean, one.gain_percent) for one in study_comparisons(found)}


def test_gains_are_percent_of_the_other_one() -> None:
    found = findings({(1, 1): 80.0, (1, 2): 100.0, (1, 3): 0.0, (2, 2): 160.0, (2, 3): 200.0})
    assert told(found) == {RUNNER_UP: (160.0, 25.0), DEFAULT: (None, None), GRID_BISECT: (200.0, 0.0)}


def test_what_was_measured_again_is_compared_by_its_means() -> None:
    found = findings({(2, 2): 160.0, (2, 3): 200.0})
    rows = (
        repeated(WINNER, A, 199.0, 201.0),
        repeated(RUNNER_UP, B, 159.0, 161.0),
        repeated(DEFAULT, Knobs(1, 1.0, 8), 40.0, 40.0, what="one session, all cores"),
    )
    seed = Expected(Knobs(1, 0.6, 3), 100.0, 90.0)
    found = replace(found, verification=Verification(rows, 2, 0, Verdict.CLEAR, seed))
    assert told(found) == {RUNNER_UP: (160.0, 25.0), DEFAULT: (40.0, 400.0), GRID_BISECT: (160.0, 25.0)} | {
        GRID_BISECT: (200.0, 0.0)
    }
    _, default, _ = study_comparisons(found)
    assert default.note == "one session, all cores"
    assert default.speed == Interval(40.0, 0.0)


def test_the_seeds_answer_is_estimated_where_the_trials_do_not_tell_it() -> None:
    seed = Expected(Knobs(1, 0.6, 3), 100.0, 90.0)
    found = replace(
        findings({(1, 2): 160.0, (2, 5): 200.0}),
        verification=Verification((repeated(WINNER, Knobs(2, 0.6, 5), 200.0),), 1, 0, Verdict.CLEAR, seed),
    )
    *_, answer = study_comparisons(found)
    assert (answer.knobs, answer.gain_percent, answer.estimated) == (seed.knobs, 90.0, True)
    assert "both estimated" in answer.note


def test_the_winner_that_was_settled_is_compared_with_the_one_that_was_best() -> None:
    rows = repeated(WINNER, A, 199.0, 201.0), repeated(RUNNER_UP, B, 198.0, 202.0)
    found = replace(findings({(2, 2): 199.0, (2, 3): 200.0}), verification=Verification(rows, 2, 1, Verdict.TIE, None))
    second, default, _ = study_comparisons(found)
    assert (second.knobs, second.note) == (A, "a tie within the interval; the simpler one wins")
    assert default.note == "is the winner or the runner-up"


def test_a_default_that_does_not_fit_is_told() -> None:
    rows = repeated(WINNER, A, 200.0), Repeated(DEFAULT, Knobs(4, 0.6, 8), "", (None,), (None,), "too large; try less")
    found = replace(findings({(2, 3): 200.0}), verification=Verification(rows, 1, 0, Verdict.CLEAR, None))
    second, default, _ = study_comparisons(found)
    assert second.note == "nothing else fits"
    assert (default.knobs, default.gain_percent, default.note) == (Knobs(4, 0.6, 8), None, "too large")


def test_the_seed_ends_on_the_largest_batch_of_the_best_cell() -> None:
    """Throughput falls before the boundary, which bisection does not see."""
    found = findings({(1, 1): 90.0, (1, 2): 70.0, (1, 3): 0.0, (2, 2): 75.0, (2, 3): 0.0})
    answer, _ = seed_answer(found)
    assert answer is not None
    assert (answer.knobs.n_ipu, answer.samples_per_s) == (2, 75.0)


@pytest.mark.parametrize("unknown", [(1, 3), (1, 5)])
def test_an_open_boundary_is_not_guessed(unknown: tuple[int, int]) -> None:
    """Of batch sizes to 5, 2 fits and nothing tells whether 3 does."""
    found = findings({(1, 2): 70.0, (2, 5): 75.0} | ({unknown: 0.0} if unknown == (1, 5) else {}))
    answer, note = seed_answer(found)
    assert answer is None
    assert "1 of 2 cells" in note


def test_a_cell_that_was_never_tried_is_not_guessed() -> None:
    found = findings({(1, 1): 90.0, (1, 2): 70.0, (1, 3): 0.0})
    space = {"n_ipu": [1, 2], "memory_proportion": [0.6], "batch_size": [1, 2, 3]}
    rest = {"schedule": ["inference"], "strategy": ["pipeline"]}
    answer, note = seed_answer(replace(found, attributes={"space": json.dumps(space | rest)}))
    assert (answer, "1 of 2 cells" in note) == (None, True)


def test_the_only_one_that_fits_has_no_runner_up() -> None:
    assert study_comparisons(findings({(2, 1): 9.0}))[0].note == "nothing else fits"


def test_where_nothing_fits_nothing_is_compared() -> None:
    assert study_comparisons(findings({(1, 1): 0.0})) == ()


def test_by_several_objectives_nothing_is_held_against_the_default() -> None:
    found = findings({(1, 2): 10.0, (2, 2): 20.0})
    notes = [
        one.note
        for objective in ("throughput", "throughput,latency")
        for one in study_comparisons(replace(found, attributes={"objective": objective}))
        if one.name == DEFAULT
    ]
    assert ["unless --repeats is 0" in notes[0], "for one objective only" in notes[1]] == [True, True]
