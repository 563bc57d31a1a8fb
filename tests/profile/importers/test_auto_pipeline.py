"""Documents of Graphcore's auto_pipeline: read, written, and errors that name the field."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoauto.estimate.memory import memory_limit_bytes
from autoauto.exporters.graphcore.auto_pipeline import (
    cluster_to_auto_pipeline,
    planning_proportion_to_auto_pipeline,
    profile_to_auto_pipeline,
)
from autoauto.profile.codec import save_profile
from autoauto.profile.importers.auto_pipeline import (
    cluster_from_auto_pipeline,
    planning_proportion_from_auto_pipeline,
    profile_from_auto_pipeline,
    read_profile,
)
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Link

LAYER = {
    "cycle": {"forward": 70, "backward": 130, "total": 200},
    "memory": {
        "shared": {"vertexCode_1": 5},
        "exclusive": {"parameter": 11, "controlCode": 2},
        "inputs": 6,
        "outputs": 8,
        "curActivation": 4,
        "maxTemporary": 9,
        "curCarryOver": 3,
    },
}
MODEL = {"layerName": ["a", "b", "a"], "layerType": ["t", "u", "t"], "layerInfo": [LAYER, LAYER, LAYER]}
CLUSTER = {
    "clock": 1850000000,
    "memory": 894,
    "connection": [
        {"sendGBps": 70, "sendIdleCycle": 3000, "recvGBps": 7, "recvIdleCycle": 50000},
        {"sendGBps": 7.5, "sendIdleCycle": 50000, "recvGBps": 70, "recvIdleCycle": 3000},
    ],
}


def test_reads_every_field_of_a_layer() -> None:
    profile = profile_from_auto_pipeline(MODEL)
    assert profile.layers[1] == LayerProfile(
        70, 130, {"vertexCode_1": 5}, {"parameter": 11, "controlCode": 2}, 9, 3, 6, 8, 4
    )
    assert (profile.names, profile.kinds) == (("a", "b", "a"), ("t", "u", "t"))
    assert profile.tied == ("a", None, "a")


def test_missing_fields_of_training_are_0() -> None:
    info: dict[str, Any] = deepcopy(MODEL)
    del info["layerType"]
    for layer in info["layerInfo"]:
        layer["cycle"] = {"forward": 70}
        layer["memory"].pop("curActivation", None)
    profile = profile_from_auto_pipeline(info)
    assert profile.kinds == profile.names
    assert (profile.layers[0].backward_cycles, profile.layers[0].activation_bytes) == (0, 0)


def test_writes_a_profile_back_as_it_was_read() -> None:
    assert profile_to_auto_pipeline(profile_from_auto_pipeline(MODEL)) == MODEL


def test_all_upstream_profiles_survive_the_round_trip(
    vectors: Callable[[str], Any], expand_profile: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> None:
    cases = vectors("auto_pipeline_partition")
    for case in (*cases["upstream"], *cases["random"]):
        info = expand_profile(case["profile"])
        assert profile_to_auto_pipeline(profile_from_auto_pipeline(info)) == info
        assert cluster_to_auto_pipeline(cluster_from_auto_pipeline(case["cluster"])) == case["cluster"]


def test_ties_of_our_own_become_equal_names_and_nothing_else_does() -> None:
    layer = profile_from_auto_pipeline(MODEL).layers[0]
    names = ("x", "x", "y", "x", "x#1", "z")
    tied = ("w", None, "v", "w", None, "v")
    ours = ModelProfile("m", "t", None, names, ("k",) * 6, tied, (layer,) * 6)
    written = profile_to_auto_pipeline(ours)
    assert written["layerName"] == ["x", "x#1", "y", "x", "x#1#4", "y"]
    back = profile_from_auto_pipeline(json.loads(json.dumps(written)))
    assert back.layers == ours.layers
    assert back.tied == ("x", None, "y", "x", None, "y")


def test_a_cluster_has_links_in_both_directions_and_mk2_tiles() -> None:
    cluster = cluster_from_auto_pipeline(CLUSTER)
    assert len(cluster) == 2
    assert cluster.devices[0].memory_bytes == 894 * 1024**2
    assert cluster.devices[0].n_tiles * cluster.devices[0].tile_memory_bytes == 940572672
    assert cluster.receive_links == (Link(7 * 1024**3, 50000), Link(70 * 1024**3, 3000))
    assert cluster.send_links == (Link(70 * 1024**3, 3000), Link(7.5 * 1024**3, 50000))
    assert cluster_to_auto_pipeline(cluster) == CLUSTER


@pytest.mark.parametrize("memory", [126.6, 0.1, 89.8, 1 / 3, 894, 894.0])
@pytest.mark.parametrize("proportion", [0.85, 0.3, 1.0])
def test_memory_is_rounded_after_the_proportion(memory: float, proportion: float) -> None:
    info = CLUSTER | {"memory": memory}
    cluster = cluster_from_auto_pipeline(info)
    assert list(memory_limit_bytes(cluster, proportion)) == [int(memory * proportion * 1024**2)] * 2
    assert cluster_to_auto_pipeline(cluster) == info


def test_whole_bytes_are_written_as_such() -> None:
    assert repr(cluster_from_auto_pipeline(CLUSTER).devices[0].memory_bytes) == "937426944"


def test_unequal_devices_and_free_links_cannot_be_written() -> None:
    cluster = cluster_from_auto_pipeline(CLUSTER)
    slow = replace(cluster.devices[1], clock_hz=1e9)
    with pytest.raises(BadInput, match="one clock and memory, upstream has 2 kinds"):
        cluster_to_auto_pipeline(replace(cluster, devices=(cluster.devices[0], slow)))
    with pytest.raises(BadInput, match="finite speed"):
        cluster_to_auto_pipeline(cluster.with_synthetic_data())


def test_a_planning_proportion_survives_the_round_trip() -> None:
    assert planning_proportion_from_auto_pipeline({"memoryProportion": 0.85, "usePoplarEstimation": False}) == 0.85
    assert planning_proportion_from_auto_pipeline(planning_proportion_to_auto_pipeline(0.5)) == 0.5
    with pytest.raises(BadInput, match="memoryProportion"):
        planning_proportion_from_auto_pipeline({})


def changed(info: Mapping[str, Any], path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """`info` with another value at `path`; without it when the value is `...`."""
    copy: dict[str, Any] = json.loads(json.dumps(info))
    parent: Any = copy
    for key in path[:-1]:
        parent = parent[key]
    if value is ...:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("layerName",), ..., r"ModelInfo: the top level must have the field layerName"),
        (("layerName",), "abc", r"ModelInfo: layerName must be a list, got 'abc'"),
        (("layerName",), ["a"], r"lists of one length, at least 1, got layerName 1, layerType 3, layerInfo 3"),
        (
            ("layerInfo", 1),
            None,
            r"layerInfo\[1\] must be an object with the fields cycle, memory, got None",
        ),
        (("layerInfo", 1, "memory"), ..., r"ModelInfo: layerInfo\[1\] must have the field memory"),
        (("layerInfo", 2, "cycle", "forward"), -1, r"layerInfo\[2\].cycle.forward must be a whole number .* got -1"),
        (("layerInfo", 2, "cycle", "backward"), "7", r"layerInfo\[2\].cycle.backward must be .* got '7'"),
        (("layerInfo", 0, "cycle"), 7, r"layerInfo\[0\].cycle must be an object with the fields forward, got 7"),
        (("layerInfo", 0, "memory", "inputs"), float("nan"), r"layerInfo\[0\].memory.inputs must be .* got nan"),
        (("layerInfo", 0, "memory", "outputs"), float("inf"), r"layerInfo\[0\].memory.outputs must be .* got inf"),
        (("layerInfo", 0, "memory", "outputs"), 1.5, r"layerInfo\[0\].memory.outputs must be .* got 1.5"),
        (("layerInfo", 0, "memory", "outputs"), 10**400, r"layerInfo\[0\].memory.outputs must be .* got 1000"),
        (("layerInfo", 0, "memory", "maxTemporary"), True, r"layerInfo\[0\].memory.maxTemporary must be .* got True"),
        (("layerInfo", 0, "memory", "curCarryOver"), ..., r"layerInfo\[0\].memory .* field curCarryOver"),
        (("layerInfo", 0, "memory", "shared"), [], r"layerInfo\[0\].memory.shared must be an object .* got \[\]"),
        (("layerInfo", 0, "memory", "exclusive", "parameter"), -3, r"memory.exclusive.parameter must be .* got -3"),
    ],
)
def test_a_bad_profile_is_one_line_that_names_the_field(path: tuple[str | int, ...], value: object, named: str) -> None:
    with pytest.raises(BadInput, match=named) as raised:
        profile_from_auto_pipeline(changed(MODEL, path, value))
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 250


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("clock",), ..., r"field clock"),
        (("clock",), 0, r"IPUClusterInfo: clock must be a number from 1e\+06 to"),
        (("memory",), -894, r"IPUClusterInfo: memory must be a number above 0, at most 2\*\*53.* got -894"),
        (("connection",), [], r"connection needs one entry per device, at least 1"),
        (("connection", 1, "recvGBps"), 0, r"connection\[1\].recvGBps must be a number from 1e-09 to"),
        (("connection", 1, "sendIdleCycle"), -1, r"connection\[1\].sendIdleCycle must be a whole number"),
        (("connection", 0), "fast", r"connection\[0\] must be an object with the fields sendGBps, .*, got 'fast'"),
    ],
)
def test_a_bad_cluster_is_one_line_that_names_the_field(path: tuple[str | int, ...], value: object, named: str) -> None:
    with pytest.raises(BadInput, match=named):
        cluster_from_auto_pipeline(changed(CLUSTER, path, value))


@pytest.mark.parametrize("info", [None, 7, [], "text", {}])
def test_another_document_is_refused(info: object) -> None:
    with pytest.raises(BadInput):
        profile_from_auto_pipeline(info)
    with pytest.raises(BadInput):
        cluster_from_auto_pipeline(info)


def test_profiles_are_read_in_both_forms(tmp_path: Path) -> None:
    profile = profile_from_auto_pipeline(MODEL)
    theirs, ours = tmp_path / "theirs.json", tmp_path / "ours.json"
    theirs.write_text(json.dumps(MODEL))
    save_profile(profile, ours)
    assert read_profile(theirs) == read_profile(ours) == profile
