"""The request of a search: from flat values, from Python, and to JSON and back."""

from __future__ import annotations

import json
from dataclasses import astuple
from typing import Any

import pytest

from autoauto.cli.main import build_parser
from autoauto.records.errors import BadInput
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.requests.problem import Problem
from autoauto.space.requests.request import KnobValues, MeasureConfig, SearchRequest, StudyConfig
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--global-batch 64", "how many micro-batches a step of --mode training has, got --mode inference"),
        ("--mode training --global-batch 64 --n-micro-batches 4", "got --n-micro-batches too; leave one of them out"),
        ("--optimizer adam", "only training has optimizer, got --mode inference; try --mode training"),
        ("--target gpu --for-rate 3 --objective latency", "--for-rate looks for the fewest GPUs, got --objective lat"),
        ("--measure 2 --launch local --endpoint http://a", "--launch starts engines and --endpoint is one that some"),
        ("--launch docker", "say how and what else engines measure; say how many: --measure 3"),
        ("--endpoint http://a", "say how and what else engines measure; say how many: --measure 3"),
        ("--measure-flips 2", "say how and what else engines measure; say how many: --measure 3"),
        ("--concurrency 4 --batch-size 4", "--concurrency says how large batches are, got --batch-size too"),
        ("--overlap --period serial", "--overlap is --period overlap, got --period serial too; leave one out"),
        ("--target ipu --precision fp16,fp32", "--target ipu has one --precision, got fp16, fp32; leave the others"),
        ("--target ipu --device-memory-gib 2", "--device-memory-gib is for --target host or --profile; leave it out"),
        ("--profile 8=a.csv", "--profile and --profile-format go together, got --profile; give both"),
        ("--profile-format csv", "--profile and --profile-format go together, got --profile-format; give both"),
        ("--profile a --profile-format csv --devices 2", "--devices, --device-memory-gib and --link-gb-per-s go toge"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        request_of(f"search {words}")


def test_options_that_go_together_say_what_is_searched() -> None:
    training = request_of("search --mode training --global-batch 64 --replicas 2 --batch-size 4").study.space
    assert isinstance(training, KnobValues)
    assert training.global_batch == 64
    assert training.values["n_micro_batches"] == (16,)  # the default, which the global batch replaces later
    assert training.values["stages_per_device"] == (1,)
    assert "schedule" not in training.values  # its default depends on the model
    two = request_of("search --mode training --schedule interleaved,1f1b").study.space
    assert isinstance(two, KnobValues)
    assert two.values["stages_per_device"] == (1, 2)
    given = request_of("search --mode training --schedule interleaved --stages-per-device 4").study.space
    assert isinstance(given, KnobValues)
    assert given.values["stages_per_device"] == (4,)
    assert request_of("search --target gpu --for-rate 3").study.objectives is Objective.DEVICES
    assert request_of("search --target gpu --for-rate 3 --objective devices").study.objectives is Objective.DEVICES
    assert request_of("search --overlap --period overlap").problem.planning.period == "overlap"


@pytest.mark.parametrize(
    ("values", "measure"),
    [
        ({}, (0, "local", 1800.0, 0)),
        ({"measure": 3}, (3, "local", 1800.0, 0)),
        ({"measure": 3, "launch": "ssh:node1", "launch_timeout": 60.0}, (3, "ssh:node1", 60.0, 0)),
        ({"measure": 1, "endpoint": ["http://a", "http://b"]}, (1, "endpoint:http://a,http://b", 1800.0, 0)),
        ({"measure": 1, "measure_flips": 2}, (1, "local", 1800.0, 2)),
    ],
)
def test_what_engines_measure_by_the_names_of_options(values: dict[str, Any], measure: tuple[object, ...]) -> None:
    assert astuple(MeasureConfig.of(values)) == measure


def test_a_search_of_which_nothing_is_said() -> None:
    """The defaults of Python, of parsed options, and of a search file are one another's."""
    study = StudyConfig.of({"target": "ipu"})
    assert study == StudyConfig()
    assert (study.objectives, study.method, study.n_measurements, study.tries) == (Objective.THROUGHPUT, None, 30, ())
    assert (study.noise, study.n_repeats, study.time_budget_s, study.strict) == (None, None, None, False)
    assert study.measure == MeasureConfig(0, "local", 1800.0, 0)


def test_every_option_of_a_study_arrives() -> None:
    study = StudyConfig.of(
        {"target": "ipu", "objective": "latency", "method": "tpe", "n_measurements": 7, "noise": 0.1, "repeats": 2}
        | {"try": ("n_ipu=1",), "time_budget": 9.5, "strict": True, "measure": 4, "n_ipu": (2, 4)}
        | {"constraints": ["n_ipu < 3", "latency_s < 1"], "global_batch": None}
    )
    assert (study.objectives, study.method, study.n_measurements, study.noise) == (Objective.LATENCY, "tpe", 7, 0.1)
    assert (study.n_repeats, study.tries, study.time_budget_s, study.strict) == (2, ("n_ipu=1",), 9.5, True)
    assert study.measure.n_most == 4
    assert study.space == KnobValues({"n_ipu": (2, 4)}, (Constraint("n_ipu < 3"),))


def test_knobs_from_a_caller_are_each_once_and_sizes_ascend() -> None:
    read = KnobValues.read({"n_ipu": 4, "batch_size": [8, 2, 8], "schedule": ["gpipe", "1f1b", "gpipe"]})
    assert read.values == {"n_ipu": (4,), "batch_size": (2, 8), "schedule": ("gpipe", "1f1b")}
    with pytest.raises(BadInput, match="n_ipu takes one value or more, got none"):
        KnobValues.read({"n_ipu": []})
