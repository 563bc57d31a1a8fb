"""The configuration of a flow: to JSON and back, opened for both targets, refused when options do not go together."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from autoauto.evaluate.flow_config import FlowConfig
from autoauto.evaluate.load import load_flow
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Period
from autoauto.records.units import MIB, Precision
from autoauto.space.constraint import Constraint
from autoauto.targets.clusters import builtin_clusters
from autoauto.targets.host.target import HostTarget
from autoauto.targets.ipu.target import IpuTarget


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_an_opened_flow_is_that_of_load_flow() -> None:
    config = FlowConfig("resnet50", cluster="bow-2000", planning_proportion=0.9, period="duplex")
    flow, loaded = config.open(), load_flow("resnet50", "bow-2000", planning_proportion=0.9, period="duplex")
    assert flow.fingerprint() == loaded.fingerprint()
    assert (flow.setting.period, flow.target) == (Period.DUPLEX, loaded.target)


def test_the_default_cluster_is_that_of_the_target() -> None:
    assert FlowConfig("resnet50").open().cluster.name == "bow-2000"


def test_the_same_flow_is_opened_from_json_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(builtin_clusters()["bow-2000"], tmp_path / "mine.toml")
    config = FlowConfig("resnet50", cluster="mine.toml", options={"partials": "fp32", "overlap_io": True})
    text, fingerprint = config.to_json(), config.open().fingerprint()
    assert json.loads(text)["cluster"] == str(tmp_path / "mine.toml")
    assert json.loads(text)["model"] == "resnet50"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert FlowConfig.from_json(text).open().fingerprint() == fingerprint


def test_fields_can_be_changed_when_they_are_read() -> None:
    config = FlowConfig.from_json(FlowConfig("resnet50").to_json(), model="vit-b16", cluster="c600")
    assert (config.model, config.cluster, config.target) == ("vit-b16", "c600", "ipu")


def test_a_missing_field_is_named() -> None:
    values = json.loads(FlowConfig("resnet50").to_json())
    del values["precision"], values["target"]
    with pytest.raises(BadInput, match="must hold target, precision; search anew by another name"):
        FlowConfig.from_json(json.dumps(values))


def test_a_wrong_value_is_named() -> None:
    text = FlowConfig("resnet50").to_json().replace('"headroom":0.0', '"headroom":"much"')
    with pytest.raises(BadInput, match=r"^the configuration of a flow: headroom must be a number, got 'much'"):
        FlowConfig.from_json(text)


def test_values_of_other_names_are_left_out() -> None:
    assert FlowConfig.of({"model": "resnet50", "batch_size": 4}) == FlowConfig("resnet50")


def test_constraints_over_results_reach_the_flow_and_each_counts_once() -> None:
    texts = ("samples_per_s > 1", "latency_s <= 0.5", "n_ipu < 3")
    config = FlowConfig("resnet50", constraints=texts, max_latency_s=0.5)
    assert [constraint.text for constraint in config.all_constraints] == list(texts)
    assert config.open().setting.constraints == tuple(map(Constraint, texts[:2]))
    again = FlowConfig.from_json(config.to_json())
    assert again.all_constraints == config.all_constraints


def test_headroom_is_left_free_on_every_device() -> None:
    whole, half = (FlowConfig("resnet50", headroom=share).open().cluster.devices for share in (0.0, 0.5))
    assert [device.memory_bytes for device in half] == [0.5 * device.memory_bytes for device in whole]


def test_settings_of_the_cost_model_reach_the_target() -> None:
    target = FlowConfig("resnet50", options={"partials": "fp32", "float_operators": "Gelu,Conv"}).open().target
    assert isinstance(target, IpuTarget)
    assert target.settings.partials is Precision.FP32
    assert target.settings.float_operators == {"Gelu", "Conv"}


@pytest.mark.parametrize(("gib", "mib"), [(0.5, 512), (24 / 1024, 24), (1e-300, 1), (1e300, 2**42)])
def test_the_memory_of_a_host_is_typed_in_gib_and_stored_in_mib(gib: float, mib: int) -> None:
    config = FlowConfig.of({"model": "resnet50", "target": "host", "device_memory_gib": gib})
    assert config == FlowConfig("resnet50", target="host", options={"device_memory_mib": mib})


def test_a_host_has_cores_and_memory_of_its_own() -> None:
    flow = FlowConfig("resnet50", target="host", options={"device_memory_mib": 300}).open()
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
        ({"target": "host", "precision": "fp16"}, "in the formats of its file, got --precision fp16"),
        ({"float_operators": "Gelo"}, "--float-operators takes ONNX operators, got 'Gelo'"),
        ({"model": "resnet51"}, "resnet51"),
        ({"cluster": "nowhere.toml"}, "nowhere.toml"),
    ],
)
def test_values_that_do_not_go_together_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        FlowConfig.of({"model": "resnet50"} | values).open()
