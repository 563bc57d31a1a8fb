"""The request of a search: from flat values, from Python, and to JSON and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autoauto.cli.main import build_parser
from autoauto.records.errors import BadInput
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.requests.problem import Problem
from autoauto.space.requests.request import KnobValues, SearchRequest, StudyConfig
from autoauto.space.space import SearchSpace

TYPED = (
    "search resnet50 --cluster c600 --headroom 0.1 --overlap",
    "search --n-ipu 1,2 --batch-size 1:8 --constraint 'n_ipu<3' --max-latency-s 0.1 --objective throughput,latency",
    "search --mode training --global-batch 64 --schedule gpipe,1f1b --recompute auto --noise 0.1 --repeats 2",
    "search a --target gpu --accept-length 2.5 --draft-tokens 3 --draft-cost 0.1 --draft-model a/b --cached-share 0.5",
    "search --target host --precision fp32,bf16 --runtime onnxruntime --try n_ipu=1 --time-budget 9 --method tpe",
)


def request_of(text: str) -> SearchRequest:
    return SearchRequest.of(vars(build_parser().parse_args([word.strip("'") for word in text.split(" ")])))


@pytest.mark.parametrize("typed", TYPED)
def test_a_typed_search_is_read_as_it_was_written(typed: str) -> None:
    again = SearchRequest.from_json(request_of(typed).to_json())
    assert again.to_json() == request_of(typed).to_json()
    assert again.problem == request_of(typed).problem
    assert again.study.space.constraints == request_of(typed).study.space.constraints


@pytest.mark.parametrize(
    "study",
    [
        StudyConfig(),
        StudyConfig(SearchSpace((1, 2), (0.6,), (1, 4), constraints=(Constraint("n_ipu < 2"),)), Objective.LATENCY),
        StudyConfig(SearchSpace(n_ipu=(1,), runtime=("onnxruntime",)), method="tpe", noise=0.1, n_repeats=0),
        StudyConfig(KnobValues({"n_ipu": (1, 2), "recompute": (True,)}, (Constraint("n_ipu < 2"),), 8)),
        StudyConfig(tries=("n_ipu=2", {"n_ipu": 1, "batch_size": 3}), time_budget_s=0.5),
        StudyConfig(quick=True),
    ],
)
def test_a_search_from_python_is_read_as_it_was_written(study: StudyConfig) -> None:
    request = SearchRequest(Problem("resnet50"), study)
    again = SearchRequest.from_json(request.to_json())
    assert again == request
    if isinstance(study.space, SearchSpace) and isinstance(again.study.space, SearchSpace):
        assert again.study.space.given == study.space.given  # others are those of the target


def test_a_configuration_to_try_is_stored_by_its_values() -> None:
    study = StudyConfig(tries=Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8))
    again = StudyConfig.read(study.plain, "a study")
    assert again.tries == ({"n_ipu": 2, "memory_proportion": 0.6, "batch_size": 8},)


def test_constraints_over_knobs_bound_the_space_and_others_the_problem() -> None:
    request = request_of("search --constraint n_ipu<3 --constraint samples_per_s>2")
    assert [each.text for each in request.study.space.constraints] == ["n_ipu < 3"]
    assert [each.text for each in request.problem.constraints] == ["samples_per_s > 2"]


@pytest.mark.parametrize(
    ("part", "field", "value", "message"),
    [
        ("problem", "target", 3, "the problem of a search: target must be a text, got 3"),
        ("study", "noise", "some", "the study of a search: noise must be"),
        ("study", "objectives", "speed", "objectives are one or more of"),
        ("study", "space", {"grid": {"ipus": [1]}}, "the study of a search: space must have the field"),
    ],
)
def test_a_wrong_value_is_named(part: str, field: str, value: Any, message: str) -> None:
    plain = json.loads(SearchRequest(Problem("resnet50")).to_json())
    plain[part][field] = value
    with pytest.raises(BadInput, match=message):
        SearchRequest.from_json(json.dumps(plain))


@pytest.mark.parametrize("kind", ["grid", "knobs"])
def test_a_knob_that_is_not_known_is_refused(kind: str) -> None:
    space: dict[str, object] = {
        "grid": None,
        "knobs": None,
        "constraints": [],
        "global_batch": None,
        kind: {"ipus": [1]},
    }
    with pytest.raises(BadInput, match="there is no knob 'ipus'"):
        StudyConfig.read({**StudyConfig().plain, "space": space}, "a study")
