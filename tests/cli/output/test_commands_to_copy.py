"""The command that measures the winner again, from how the search was typed."""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autoauto.cli.output.commands_to_copy import commands_of, reproducing_command
from autoauto.records.knobs import Knobs, Objective, Strategy
from autoauto.records.layers import LayerRange
from autoauto.records.phased import IoMode, Phase, PhasedPlan
from autoauto.records.plan import Plan, Stage
from autoauto.records.schedule import Order
from autoauto.records.study_summary import Contender, Findings, Tried
from autoauto.study.analysis.summary import study_findings
from autoauto.study.store.study import load_study

Door = Callable[..., Any]
PLAN = Plan((Stage(LayerRange(0, 3), 0, 100, 0, 10, 10, {}, 1000),))


def findings(knobs: Knobs, **attributes: str) -> Findings:
    winner = Contender(Tried(0, knobs, 10.0), PLAN, None)
    return Findings("small", "sqlite:///x.db", Objective.THROUGHPUT, attributes, (winner.tried,), (), (winner,))


@pytest.mark.parametrize(
    ("typed", "again"),
    [
        ("search resnet50 --study-name first", "measure resnet50"),
        ("search --study-name first --storage sqlite:///x.db --n-ipu 1,2", "measure resnet50"),
        ("search 'my model.onnx' --cluster pod.toml --batch-size 1:9", "measure 'my model.onnx' --cluster pod.toml"),
        ("search resnet50 --target host --cores-per-device 2", "measure resnet50 --target host --cores-per-device 2"),
        ("search --overlap vit-b16 --precision fp32", "measure vit-b16 --precision fp32 --overlap"),
        ("search --an-option-of-tomorrow 3 --precision fp9", "measure net --cluster pair"),
        ("pytest -q", "measure net --cluster pair"),
    ],
)
def test_model_and_place_are_as_typed(typed: str, again: str) -> None:
    found = findings(Knobs(2, 0.6, 8), command=f"autoauto {typed}", model="net", cluster="pair")
    assert found.winner is not None
    command = reproducing_command(found, found.winner)
    assert command == f"autoauto {again} --n-ipu 2 --memory-proportion 0.6 --batch-size 8"


def test_replicas_are_told() -> None:
    found = findings(Knobs(2, 0.6, 8, replicas=3), model="net", planning_proportion="None", estimator="sum")
    said = "autoauto measure net --estimator sum --n-ipu 2 --replicas 3 --memory-proportion 0.6 --batch-size 8"
    assert found.winner is not None
    assert reproducing_command(found, found.winner) == said


def test_training_is_told() -> None:
    found = findings(Knobs(2, 0.6, 8, Order.GPIPE, True, 4), model="net")
    assert found.winner is not None
    assert shlex.split(reproducing_command(found, found.winner))[-8:] == (
        ["--mode", "training", "--schedule", "gpipe", "--n-micro-batches", "4", "--recompute", "on"]
    )


def test_phases_are_planned_again() -> None:
    knobs = Knobs(2, 0.6, 8, n_micro_batches=16, strategy=Strategy.PHASED)
    phase = Phase(LayerRange(0, 3), 0, 0, 50, 10, 80, 10, {}, 1000)
    plan = PhasedPlan((phase,), 16, IoMode.IO_OVERLAPPED, (), (100,), 0, n_replicas=2)
    found = findings(knobs, model="net")
    contender = replace(found.contenders[0], measured=plan)
    said = "--memory-proportion 0.6 --batch-size 8 --steps 16 --io-mode io_overlapped --replicas 2"
    assert reproducing_command(found, contender) == f"autoauto phased net {said}"


def test_the_search_is_told_as_it_was_typed() -> None:
    typed = "autoauto search resnet50"
    assert [command for _, command in commands_of(findings(Knobs(1, 0.6, 1), command=typed))][1:] == [typed]
    assert len(commands_of(findings(Knobs(1, 0.6, 1), command="python script.py"))) == 1
    nothing = replace(findings(Knobs(1, 0.6, 1), command=typed), contenders=())
    assert commands_of(nothing) == [("Search again", typed)]


def test_the_winner_is_measured_again_as_it_was(door: Door) -> None:
    """Real: the command is run, and prints the throughput and the partition that the search found."""
    search = ("search", "resnet50", "--precision", "fp32", "--n-ipu", "1,2", "--batch-size", "1:4")
    best = json.loads(door(*search, "--study-name", "small", "--json").out)["best"]
    storage = "sqlite:///studies/autoauto.db"
    found = study_findings(load_study(storage, "small"), storage)
    found = replace(found, attributes={**found.attributes, "command": shlex.join(["autoauto", *search])})
    assert found.winner is not None
    command = shlex.split(reproducing_command(found, found.winner))
    again = json.loads(door(*command[1:], "--json").out)
    assert (again["samples_per_s"], again["partition"]) == (best["samples_per_s"], best["partition"])
