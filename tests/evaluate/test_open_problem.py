"""Problems opened for both targets, in another folder too, and refused when options do not go together."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from autoauto.evaluate.open import load_flow, open_problem
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Period
from autoauto.records.units import MIB, Precision
from autoauto.space.constraint import Constraint
from autoauto.space.requests.problem import Planning, Problem
from autoauto.targets.clusters import builtin_clusters
from autoauto.targets.host.target import HostTarget
from autoauto.targets.ipu.target import IpuTarget


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_an_opened_flow_is_that_of_load_flow() -> None:
    problem = Problem("resnet50", cluster="bow-2000", planning=Planning(planning_proportion=0.9, period="duplex"))
    flow, loaded = open_problem(problem), load_flow("resnet50", "bow-2000", planning_proportion=0.9, period="duplex")
    assert flow.fingerprint() == loaded.fingerprint()
    assert (flow.setting.period, flow.target) == (Period.DUPLEX, loaded.target)


def test_the_default_cluster_is_that_of_the_target() -> None:
    assert open_problem(Problem("resnet50")).cluster.name == "bow-2000"


def test_the_same_flow_is_opened_from_json_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(builtin_clusters()["bow-2000"], tmp_path / "mine.toml")
    problem = Problem("resnet50", cluster="mine.toml", options={"partials": "fp32", "synthetic_data": True})
    stored, fingerprint = problem.plain, open_problem(problem).fingerprint()
    assert (stored["model"], stored["cluster"]) == ("resnet50", str(tmp_path / "mine.toml"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert open_problem(Problem.read(stored, "a problem")).fingerprint() == fingerprint


def test_constraints_over_results_reach_the_flow_and_each_counts_once() -> None:
    texts = ("samples_per_s > 1", "latency_s <= 0.5", "n_ipu < 3")
    problem = Problem.of({"model": "resnet50", "constraints": texts, "max_latency_s": 0.5})
    assert open_problem(problem).setting.constraints == tuple(map(Constraint, texts[:2]))


def test_headroom_is_left_free_on_every_device() -> None:
    whole, half = (open_problem(Problem("resnet50", headroom=share)).cluster.devices for share in (0.0, 0.5))
    assert [device.memory_bytes for device in half] == [0.5 * device.memory_bytes for device in whole]


def test_settings_of_the_cost_model_reach_the_target() -> None:
    problem = Problem("resnet50", options={"partials": "fp32", "float_operators": "Gelu,Conv"})
    target = open_problem(problem).target
    assert isinstance(target, IpuTarget)
    assert target.settings.partials is Precision.FP32
    assert target.settings.float_operators == {"Gelu", "Conv"}


def test_a_host_has_cores_and_memory_of_its_own() -> None:
    flow = open_problem(Problem("resnet50", target="host", options={"device_memory_mib": 300}))
    assert isinstance(flow.target, HostTarget)
    assert {device.memory_bytes for device in flow.cluster.devices} == {300 * MIB}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"device_memory_mib": 20}, "--target ipu has no --device-memory-mib"),
        ({"target": "host", "overlap": True}, "the period of --target host is serial, got overlap; leave it out"),
        (
            {"overlap": True, "period": "serial"},
            "--overlap is --period overlap, got --period serial too; leave one out",
        ),
        ({"target": "host", "partials": "fp32"}, "--target host has no --partials; leave"),
        (
            {"target": "host", "precision": "fp16"},
            "in the formats of its file, got --precision fp16",
        ),
        ({"float_operators": "Gelo"}, "--float-operators takes ONNX operators, got 'Gelo'"),
        ({"model": "resnet51"}, "resnet51"),
        ({"cluster": "nowhere.toml"}, "nowhere.toml"),
    ],
)
def test_values_that_do_not_go_together_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        open_problem(Problem.of({"model": "resnet50"} | values))
