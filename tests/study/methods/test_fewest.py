"""Searches for the fewest devices, against trying every configuration."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Status, Trial
from autoauto.study.methods import fewest as module
from autoauto.study.methods.fewest import fewest
from autoauto.study.methods.protocol import Observation, drive
from autoauto.study.methods.surveyed import Survey

SPACE = SearchSpace(
    (1, 2, 3),
    replicas=tuple(range(1, 7)),
    batch_size=(8, 16),
    engine=("vllm", "sglang"),
    tensor_parallel=(1, 2),
    input_tokens=(8,),
    output_tokens=(8,),
)
EVERY = [knobs for cell in SPACE.cells for knobs in cell]


def forecast(knobs: Knobs) -> Trial:
    speed = knobs.n_devices + knobs.batch_size / 100
    trial = Trial(knobs, Status.OK, samples_per_s=speed, tokens_per_s=speed, tpot_s=0.1)
    return trial if knobs.n_devices > 2 else replace(trial, status=Status.CONSTRAINED, violation=0.5)


def tried(works: Mapping[Knobs, bool], known: Mapping[Knobs, Observation] | None = None) -> list[Knobs]:
    """The configurations that are tried where some of them do what must hold."""
    asked: list[Knobs] = []

    def observe(knobs: Knobs) -> Observation:
        asked.append(knobs)
        return Observation(1 / knobs.n_devices if works[knobs] else None, measured=True)

    def forecasts(cell: Sequence[Knobs]) -> list[Trial]:
        return list(map(forecast, cell))

    drive(fewest(SPACE, known or {}, Survey(forecasts, Objective.DEVICES)), observe)
    return asked


@pytest.mark.parametrize("seed", range(20))
def test_the_answer_is_the_fewest_of_all_whatever_works(seed: int) -> None:
    chances = random.Random(seed)
    share = chances.choice([0.02, 0.1, 0.5, 0.9])
    works = {knobs: knobs.n_devices > 2 and chances.random() < share for knobs in EVERY}
    asked = tried(works)
    assert len(asked) == len(set(asked))
    fewest_of_all = min((knobs.n_devices for knobs in EVERY if works[knobs]), default=None)
    answer = min((knobs.n_devices for knobs in asked if works[knobs]), default=None)
    assert answer == fewest_of_all


def test_where_more_devices_do_more_few_are_tried_that_do_not_prove_it() -> None:
    works = {knobs: knobs.n_devices > 6 for knobs in EVERY}
    asked = tried(works)
    fewer = [knobs for knobs in EVERY if 2 < knobs.n_devices <= 6]
    assert set(fewer) <= set(asked), "all on fewer are tried"
    assert len(asked) < len(fewer) + 30


def test_what_is_known_is_not_tried_again() -> None:
    works = {knobs: knobs.n_devices > 6 for knobs in EVERY}
    first = tried(works)
    known = {knobs: Observation(1 / knobs.n_devices if works[knobs] else None, measured=True) for knobs in first}
    assert tried(works, known) == []


def test_no_more_are_tried_than_the_limit_and_what_works_is_found_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SIMULATED", 25)
    works = {knobs: knobs.n_devices > 6 for knobs in EVERY}
    asked = tried(works)
    assert len(asked) == 25
    fewest_of_all = min(knobs.n_devices for knobs in EVERY if works[knobs])
    assert min(knobs.n_devices for knobs in asked if works[knobs]) == fewest_of_all


def test_where_nothing_works_those_nearest_to_it_are_tried() -> None:
    nothing = dict.fromkeys(EVERY, False)
    asked = tried(nothing)
    may_work = [knobs for knobs in EVERY if knobs.n_devices > 2]
    assert set(may_work) <= set(asked)
