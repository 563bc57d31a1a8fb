"""What a search is called with: configurations to try first, a time budget, and refused arguments."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from autoauto.evaluate.open import load_flow
from autoauto.records.errors import BadInput, Infeasible
from autoauto.space.knobs import Knobs
from autoauto.space.requests.request import KnobValues, StudyConfig
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Trial
from autoauto.study import arguments
from autoauto.study.search import search, search_flow

SPACE = SearchSpace((1, 2), (0.6, 1.0), (1, 2, 4, 8))


@pytest.mark.parametrize(
    "method",
    ["guided", *(pytest.param(method, marks=pytest.mark.slow) for method in ("grid-bisect", "exhaustive", "tpe"))],
)
def test_a_configuration_of_ones_own_is_tried_first_and_once(method: str) -> None:
    trials: list[Trial] = []
    own: list[Any] = ["n_ipu=2,batch_size=2", {"n_ipu": 1, "batch_size": 4}]
    best = search("resnet50", "bow-2000", SPACE, method=method, tries=own, callback=trials.append)
    tried = [trial.knobs for trial in trials]
    assert tried[:2] == [
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=2),
        Knobs(n_ipu=1, memory_proportion=0.6, batch_size=4),
    ]
    assert len(set(tried)) == len(tried)
    without = search("resnet50", "bow-2000", SPACE, method=method)
    assert best.samples_per_s == pytest.approx(without.samples_per_s, rel=0.003)


@pytest.fixture
def every_look_takes_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count()
    monkeypatch.setattr(arguments, "monotonic", lambda: float(next(seconds)))


@pytest.mark.usefixtures("every_look_takes_a_second")
def test_a_time_budget_ends_the_search_with_the_best_so_far_and_an_equal_search_continues(storage: str) -> None:
    flow = load_flow("resnet50", "bow-2000")
    first = search_flow(flow, SPACE, method="exhaustive", storage=storage, time_budget_s=4)
    assert first.out_of_time
    assert first.best is not None
    assert len(first.trials) == 3
    second = search_flow(flow, SPACE, method="exhaustive", storage=storage)
    assert (second.study_name, second.out_of_time) == (first.study_name, False)
    assert len(second.trials) == SPACE.n_configurations


@pytest.mark.usefixtures("every_look_takes_a_second")
def test_without_an_answer_the_budget_is_why() -> None:
    with pytest.raises(Infeasible, match="the time budget ended before a configuration fitted, 0 tried"):
        search("resnet50", "bow-2000", SPACE, time_budget_s=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"callback": 3}, "callback must be a function or None, got 3"),
        ({"progress": "bar"}, "progress must be a function or None, got 'bar'"),
        ({"n_repeats": "x"}, "n_repeats must be a whole number from 0, got 'x'"),
        ({"n_repeats": -1}, "n_repeats must be a whole number from 0, got -1"),
        ({"n_measurements": True}, "n_measurements must be a whole number from 1, got True"),
        ({"constraints": 3}, "constraints are texts such as"),
        ({"tries": 3}, r"tries are configurations such as \['n_ipu=2,batch_size=8'\], got 3"),
        ({"tries": "n_ipu=4"}, "whose n_ipu is 1, 2, got 4"),
        ({"time_budget_s": 0}, "a time budget must be a number of seconds above 0, got 0"),
        ({"time_budget_s": "5m"}, "a time budget must be a number of seconds above 0, got '5m'"),
        ({"time_budget_s": True}, "a time budget must be a number of seconds above 0, got True"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        search("resnet50", "bow-2000", SPACE, **wrong)
    assert "\n" not in str(refused.value)


def test_a_quick_search_is_for_devices_that_are_measured() -> None:
    flow = load_flow("resnet50", "bow-2000")
    with pytest.raises(BadInput, match="--quick measures the whole model on devices of this machine, got others"):
        arguments.space_of(flow, KnobValues(), quick=True)
    assert arguments.n_repeats_of(flow, StudyConfig(quick=True)) == 0
    assert arguments.n_repeats_of(flow, StudyConfig(quick=True, n_repeats=2)) == 2
