"""Profiles as JSON files, and errors that name the field."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoauto.profile.codec import layer_to_json, profile_record, read_profile_record, save_profile
from autoauto.records.costs.options import CompileOptions, PlainSession, Session
from autoauto.records.costs.profile import LayerProfile, ModelProfile
from autoauto.records.errors import BadInput
from autoauto.records.files.json import read_json
from autoauto.records.units import Precision
from autoauto.targets.host.runtimes.openvino.session import OpenVinoSession
from autoauto.targets.ipu.session import IpuSession

LAYER = LayerProfile(10, 21, {"vertexCode_k": 5}, {"parameter": 7}, 11, 1, 2, 3, 4, 9, 2)


@pytest.mark.parametrize(
    "options", [None, CompileOptions(4, Precision.FP16), CompileOptions(4, Precision.FP16, training=True)]
)
def test_a_saved_profile_comes_back_equal(tmp_path: Path, options: CompileOptions | None) -> None:
    profile = ModelProfile("m", "ipu bow", options, ("a", "b"), ("k", "k"), (None, "w"), (LAYER, LAYER))
    save_profile(profile, tmp_path / "p.json")
    assert read_profile_record(read_json(tmp_path / "p.json"), "p.json") == profile


@pytest.mark.parametrize(
    ("session", "written"),
    [
        (PlainSession(), {}),
        (IpuSession(0.3), {"memory_proportion": 0.3, "io_tiles": 0}),
        (
            OpenVinoSession(2, Precision.BF16, streams=2),
            {"runtime": "openvino", "cores_per_device": 2, "precision": "bf16", "streams": 2},
        ),
    ],
)
def test_a_session_is_written_but_not_read(session: Session, written: dict[str, object]) -> None:
    options = CompileOptions(4, Precision.FP16, session=session)
    profile = ModelProfile("m", "ipu bow", options, ("a", "b"), ("k", "k"), (None, "w"), (LAYER, LAYER))
    assert profile_record(profile)["options"] == {
        "batch_size": 4,
        "precision": "fp16",
        "training": False,
        "session": written,
    }
    read = read_profile_record(profile_record(profile), "p.json")
    assert read == replace(profile, options=CompileOptions(4, Precision.FP16))


def test_keys_of_stored_layers_do_not_change() -> None:
    assert list(stored()["layers"][0]) == [
        "forward_cycles",
        "backward_cycles",
        "shared",
        "exclusive",
        "temporary_bytes",
        "carried_bytes",
        "input_bytes",
        "output_bytes",
        "activation_bytes",
        "weight_cycles",
        "kept_input_bytes",
        "checkpoint_bytes",
    ]


@pytest.mark.parametrize("record", [None, [], {}, {"schema": 99}])
def test_what_is_no_profile_is_refused_in_one_line(record: object) -> None:
    with pytest.raises(BadInput) as refusal:
        read_profile_record(record, "p.json")
    assert "\n" not in str(refusal.value)


def test_an_unwritable_path_is_refused(tmp_path: Path) -> None:
    profile = ModelProfile("m", "ipu bow", None, ("a",), ("k",), (None,), (LAYER,))
    with pytest.raises(BadInput, match="a file must be writable"):
        save_profile(profile, tmp_path / "no" / "p.json")


def stored() -> dict[str, Any]:
    options = CompileOptions(4, Precision.FP16, session=IpuSession(0.6))
    profile = ModelProfile("m", "ipu bow", options, ("a", "b"), ("k", "k"), (None, "w"), (LAYER, LAYER))
    fresh: dict[str, Any] = json.loads(json.dumps(profile_record(profile)))
    return fresh


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("model",), ..., "the top level must have the field model"),
        (("target",), 7, "target must be a text, got 7"),
        (("schema",), ..., "schema must be 9, got none"),
        (("schema",), 1, "schema must be 9, got 1"),
        (("schema",), 8, "schema must be 9, got 8"),
        (("schema",), 99, "schema must be 9, got 99"),
        (("options",), 7, "options must be an object with the fields batch_size, .* got 7"),
        (("options", "batch_size"), 0, r"options.batch_size must be a whole number from 1 to 2\*\*53, got 0"),
        (("options", "precision"), "fp4", "options.precision must be one of fp16, fp32, fp8, bf16, tf32, got 'fp4'"),
        (("options", "training"), "yes", "options.training must be true or false, got 'yes'"),
        (("names",), ["a"], r"names, kinds, tied and layers of one length, at least 1, got \[1, 2, 2, 2\]"),
        (("names",), "ab", "names must be a list, got 'ab'"),
        (("names", 1), None, r"names\[1\] must be a text, got None"),
        (("tied", 1), 3, r"tied\[1\] must be a text, got 3"),
        (("layers",), ..., "the top level must have the field layers"),
        (("layers", 0), [], r"layers\[0\] must be an object with the fields forward_cycles, .* got \[\]"),
        (("layers", 1, "input_bytes"), ..., r"layers\[1\] must have the field input_bytes"),
        (("layers", 1, "kept_input_bytes"), ..., r"layers\[1\] must have the field kept_input_bytes"),
        (("layers", 1, "forward_cycles"), "many", r"layers\[1\].forward_cycles must be .* got 'many'"),
        (("layers", 1, "backward_cycles"), -1, r"layers\[1\].backward_cycles must be .* got -1"),
        (("layers", 1, "weight_cycles"), ..., r"layers\[1\] must have the field weight_cycles"),
        (("layers", 0, "exclusive", "parameter"), 0.5, r"layers\[0\].exclusive.parameter must be .* got 0.5"),
    ],
)
def test_a_wrong_field_is_named_in_one_line(path: tuple[str | int, ...], value: object, named: str) -> None:
    record = stored()
    parent: Any = record
    for key in path[:-1]:
        parent = parent[key]
    if value is ...:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    with pytest.raises(BadInput, match=named) as refusal:
        read_profile_record(record, "p.json")
    assert str(refusal.value).startswith("p.json: ")
    assert "\n" not in str(refusal.value)


def test_whole_numbers_may_have_a_point() -> None:
    record = stored()
    record["layers"][1]["forward_cycles"] = 10.0
    assert repr(read_profile_record(record, "p.json").layers[1].forward_cycles) == "10"


def test_half_cycles_are_not_stored() -> None:
    layer = replace(LAYER, forward_cycles=0.5)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"^a LayerProfile: forward_cycles must be a whole number .* got 0.5"):
        layer_to_json(layer)


def test_a_profile_without_layers_is_refused() -> None:
    with pytest.raises(BadInput, match="at least 1"):
        read_profile_record(stored() | {"names": [], "kinds": [], "tied": [], "layers": []}, "p.json")
