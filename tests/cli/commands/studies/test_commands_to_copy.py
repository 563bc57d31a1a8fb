"""Commands that measure the winner again and search again."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from autoauto.cli.commands.studies.commands_to_copy import commands_of, problem_words, reproducing_command
from autoauto.cli.main import build_parser
from autoauto.cli.options.study import DEFAULT_STORAGE
from autoauto.records.layers import LayerRange
from autoauto.records.model_inputs import read_model_inputs
from autoauto.records.plans.phased import IoMode, Phase, PhasedPlan
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.objectives import Objective
from autoauto.space.requests.problem import Planning, Problem, ProfileFiles
from autoauto.space.requests.request import SearchRequest
from autoauto.space.study_summary import StudySummary
from autoauto.space.trial import Status, Trial
from autoauto.study.analysis.best import summarise_study
from autoauto.study.store.study import load_study
from tests.cli.conftest import RunCli

PLAN = Plan((Stage(LayerRange(0, 3), 0, 100, 0, 10, 10, {}, 1000),))


def summary(knobs: Knobs, **attributes: str) -> StudySummary:
    winner = Trial(knobs, Status.OK, measured=PLAN, samples_per_s=10.0, number=0)
    return StudySummary("small", "sqlite:///x.db", Objective.THROUGHPUT, attributes, (winner,), (), (winner,))


@pytest.mark.parametrize(
    ("typed", "again"),
    [
        ("search resnet50 --study-name first", "measure resnet50"),
        ("search --study-name first --storage sqlite:///x.db --n-ipu 1,2", "measure resnet50"),
        ("search 'my model.onnx' --cluster pod.toml --batch-size 1:9", "measure 'my model.onnx' --cluster pod.toml"),
        ("search resnet50 --target host --cores-per-device 1,2", "measure resnet50 --target host"),
        ("search --overlap vit-b16 --precision fp32", "measure vit-b16 --precision fp32 --period overlap"),
        ("search resnet50 --shape a=1,b=2x3", "measure resnet50 --shape a=1 --shape b=2x3"),
        ("search --target host --device-memory-gib 0.5", "measure resnet50 --target host --device-memory-gib 0.5"),
    ],
)
def test_model_and_target_are_those_of_the_request(typed: str, again: str) -> None:
    request = SearchRequest.of(vars(build_parser().parse_args(shlex.split(typed)))).to_json()
    study = summary(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8), request=request, model="net", cluster="pair")
    assert study.winner is not None
    command = reproducing_command(study, study.winner)
    assert command == f"autoauto {again} --n-ipu 2 --memory-proportion 0.6 --batch-size 8"


@pytest.mark.parametrize(
    ("knobs", "option"),
    [
        (Knobs(n_ipu=2, batch_size=8, replicas=3), "--replicas 3 --memory-proportion 0.6"),
        (
            Knobs(n_ipu=2, batch_size=8, runtime="onnxruntime", cores_per_device=3),
            "--runtime onnxruntime --cores-per-device 3 --precision fp32",
        ),
    ],
)
def test_knobs_that_are_not_at_their_default_are_arguments(knobs: Knobs, option: str) -> None:
    study = summary(knobs, model="net", planning_proportion="None", estimator="sum")
    expected = f"autoauto measure net --estimator sum --n-ipu 2 {option} --batch-size 8"
    assert study.winner is not None
    assert reproducing_command(study, study.winner) == expected


def test_a_search_from_python_has_its_options_too() -> None:
    request = SearchRequest(Problem("net.onnx", "host", options={"inputs": "real.npz"})).to_json()
    study = summary(Knobs(n_ipu=1, memory_proportion=1.0, batch_size=8), request=request, model="net", cluster="host")
    assert study.winner is not None
    command = reproducing_command(study, study.winner)
    wanted = "--target host --inputs real.npz --n-ipu 1 --memory-proportion 1.0 --batch-size 8"
    assert command == f"autoauto measure net.onnx {wanted}"


def test_files_below_this_folder_have_short_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a=b.onnx").touch()
    (tmp_path / "pod.toml").touch()
    monkeypatch.chdir(tmp_path)
    stored = SearchRequest.from_json(SearchRequest(Problem("models/a=b.onnx", cluster="pod.toml")).to_json()).problem
    assert [*problem_words(stored)] == ["models/a=b.onnx", "--cluster", "pod.toml"]
    monkeypatch.chdir(tmp_path / "models")
    assert [*problem_words(stored)] == ["a=b.onnx", "--cluster", str(tmp_path / "pod.toml")]


def test_words_of_a_problem_are_read_as_the_same_problem() -> None:
    planning = Planning("sum", 0.9, "overlap", "blocks")
    inputs = read_model_inputs(["height=320"], ["x=none"], ["past=present"])
    files = ProfileFiles(("8=fast.csv",), "csv", (), 2, 1.0, 0.5)
    for problem in (
        Problem("net", "ipu", "c600", 0.1, "fp32", planning, options={"partials": "fp32", "synthetic_data": True}),
        Problem("net", "host", model_inputs=inputs, options={"device_memory_mib": 300}),
        Problem(profile=files),
    ):
        args = vars(build_parser().parse_args(["predict", *problem_words(problem)]))
        assert Problem.of(args) == problem


def test_cuts_that_really_ran_are_named() -> None:
    stages = (
        Stage(LayerRange(0, 3), 0, 100, 0, 10, 10, {}, 1000),
        Stage(LayerRange(3, 8), 1, 100, 0, 10, 10, {}, 1000),
    )
    study = summary(Knobs(n_ipu=2, memory_proportion=1.0, batch_size=8), model="net", origin="measured")
    assert study.winner is not None
    in_two = replace(study.winner, measured=Plan(stages))
    assert reproducing_command(study, in_two).endswith(" --batch-size 8 --partition 0,3,8")
    alone = [reproducing_command(study, study.winner)]
    shared = replace(in_two, knobs=in_two.knobs.with_values(stage_replicas=True))
    alone += [reproducing_command(study, shared), reproducing_command(summary(in_two.knobs, model="net"), in_two)]
    assert not any("--partition" in command for command in alone)


def test_training_has_its_arguments() -> None:
    study = summary(
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8, schedule=Order.GPIPE, recompute=True, n_micro_batches=4),
        model="net",
    )
    assert study.winner is not None
    knobs = "--n-ipu 2 --memory-proportion 0.6 --batch-size 8 --schedule gpipe --recompute on --n-micro-batches 4"
    assert reproducing_command(study, study.winner) == f"autoauto measure net --mode training {knobs}"


def test_phases_are_planned_again() -> None:
    knobs = Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8, n_micro_batches=16, strategy=Strategy.PHASED)
    phase = Phase(LayerRange(0, 3), 0, 0, 50, 10, 80, 10, {}, 1000)
    plan = PhasedPlan((phase,), 16, IoMode.IO_OVERLAPPED, (), (100,), 0, n_replicas=2)
    study = summary(knobs, model="net")
    finalist = replace(study.finalists[0], measured=plan)
    expected = "--memory-proportion 0.6 --batch-size 8 --steps 16 --io-mode io_overlapped --replicas 2"
    assert reproducing_command(study, finalist) == f"autoauto phased net {expected}"


def test_the_search_is_repeated_as_it_was_typed() -> None:
    typed = "autoauto search resnet50"
    assert commands_of(summary(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=1), command=typed))[-1] == (
        "Search again",
        typed,
    )
    assert "Search again" not in dict(
        commands_of(summary(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=1), command="python script.py"))
    )
    without_winner = replace(summary(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=1), command=typed), finalists=())
    assert commands_of(without_winner) == [("Search again", typed)]


@pytest.mark.parametrize("printing", ["--json", "--log json", "--log=json --json"])
def test_the_search_is_repeated_without_options_for_its_output(printing: str) -> None:
    typed = f"autoauto search 'my model.onnx' --n-ipu 1,2 {printing} --constraint 'n_ipu > 1' --no-such-option 3"
    again = dict(commands_of(summary(Knobs(n_ipu=1, memory_proportion=0.6, batch_size=1), command=typed)))[
        "Search again"
    ]
    assert again == "autoauto search 'my model.onnx' --n-ipu 1,2 --constraint 'n_ipu > 1' --no-such-option 3"


def test_a_pipeline_for_inference_is_exported() -> None:
    study = summary(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8), model="net")
    other = replace(study, storage=DEFAULT_STORAGE)
    exported = "--to onnx --output small-onnx"
    assert dict(commands_of(study))["Export it"] == f"autoauto export small --storage sqlite:///x.db {exported}"
    assert dict(commands_of(other))["Export it"] == f"autoauto export small {exported}"


@pytest.mark.parametrize(
    "knobs",
    [
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8),
        Knobs(n_ipu=2, memory_proportion=0.6, batch_size=8, schedule=Order.GPIPE, n_micro_batches=4),
    ],
)
def test_other_winners_are_not_exported(knobs: Knobs) -> None:
    study = summary(knobs, model="net")
    if not knobs.training:
        study = replace(study, study_name="resnet50")  # the name of a model, which `autoauto export` prefers
    assert "Export it" not in dict(commands_of(study))


def test_the_command_measures_the_winner_again(run_cli: RunCli) -> None:
    """The command prints the throughput and the partition of the search."""
    search = ("search", "resnet50", "--precision", "fp32", "--n-ipu", "1,2", "--batch-size", "1:4")
    best = json.loads(run_cli(*search, "--study-name", "small", "--json").out)["best"]
    storage = "sqlite:///studies/autoauto.db"
    study = summarise_study(load_study(storage, "small"), storage)
    study = replace(study, attributes={**study.attributes, "command": shlex.join(["autoauto", *search])})
    assert study.winner is not None
    command = shlex.split(reproducing_command(study, study.winner))
    again = json.loads(run_cli(*command[1:], "--json").out)
    assert (again["samples_per_s"], again["partition"]) == (best["samples_per_s"], best["partition"])
