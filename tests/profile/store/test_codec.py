"""Profiles as JSON files, and errors that name the field."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoauto.profile.store.codec import Field, load_profile, profile_record, read_json, save_profile, write_json
from autoauto.records.errors import BadInput
from autoauto.records.profile import CompileOptions, LayerProfile, ModelProfile
from autoauto.records.units import Precision


def test_a_nested_value_has_its_path() -> None:
    field = Field({"a": [{"b": 7}]}, "root")["a"].entries()[0]["b"]
    assert field == Field(7, "root.a[0].b")


def test_a_missing_field_has_the_default() -> None:
    assert Field({}, "root").get("a", 3) == Field(3, "root.a")
    assert Field({"a": 4}, "root").get("a", 3) == Field(4, "root.a")


def test_values_of_every_kind_are_read() -> None:
    assert Field("", "root").text() == ""
    assert Field("fp16", "root").choice(Precision) is Precision.FP16
    assert Field(2**53, "root").whole() == 2**53
    assert Field({"x": 1, "y": 2.0}, "root").whole_by_name() == {"x": 1, "y": 2}
    assert Field(0.5, "root").positive() == 0.5
    assert Field(True, "root").truth() is True


@pytest.mark.parametrize(
    ("value", "read", "message"),
    [
        (None, lambda f: f["a"], "root must be an object with a field a, got None; add the field"),
        ({"b": 1, "c": 2}, lambda f: f["a"], "root must be .* a field a, got an object with b, c; add the field"),
        ([], lambda f: f.get("a", 0), r"root must be an object with a field a, got \[\]"),
        ({}, lambda f: f.entries(), "root must be a list, got an object with no field"),
        (1, lambda f: f.truth(), "root must be true or false, got 1"),
        (7, lambda f: f.text(), "root must be a text, got 7"),
        ("fp4", lambda f: f.choice(Precision), "root must be one of fp16, fp32, fp8, got 'fp4'"),
        ([], lambda f: f.choice(Precision), r"root must be one of fp16, fp32, fp8, got \[\]"),
        (0, lambda f: f.whole(minimum=1), r"root must be a whole number from 1 to 2\*\*53, got 0"),
        (0.5, lambda f: f.whole(), "root must be a whole number .* got 0.5"),
        (float("inf"), lambda f: f.whole(), "root must be a whole number .* got inf"),
        (False, lambda f: f.whole(), "root must be a whole number .* got False"),
        ("7", lambda f: f.whole(), "root must be a whole number .* got '7'"),
        (2**53 + 1, lambda f: f.whole(), "root must be a whole number .* got 9007199254740993"),
        ([1], lambda f: f.whole_by_name(), r"root must be an object of names and bytes, got \[1\]"),
        ({"x": -1}, lambda f: f.whole_by_name(), r"root\.x must be a whole number .* got -1"),
        (0, lambda f: f.positive(), "root must be a number above 0.* got 0"),
        (float("nan"), lambda f: f.positive(), "root must be a number above 0.* got nan"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(value: object, read: Callable[[Field], object], message: str) -> None:
    with pytest.raises(BadInput, match=message) as refusal:
        read(Field(value, "root"))
    assert "\n" not in str(refusal.value)


def test_a_long_value_is_cut() -> None:
    with pytest.raises(BadInput) as refusal:
        Field("x" * 10_000, "root").whole()
    assert len(str(refusal.value)) < 150


LAYER = LayerProfile(10, 21, {"vertexCode_k": 5}, {"parameter": 7}, 11, 1, 2, 3, 4, 9, 2)


@pytest.mark.parametrize(
    "options", [None, CompileOptions(4, 0.6, Precision.FP16), CompileOptions(4, 0.6, Precision.FP16, training=True)]
)
def test_a_saved_profile_comes_back_equal(tmp_path: Path, options: CompileOptions | None) -> None:
    profile = ModelProfile("m", "ipu bow", options, ("a", "b"), ("k", "k"), (None, "w"), (LAYER, LAYER))
    save_profile(profile, tmp_path / "p.json")
    assert load_profile(tmp_path / "p.json") == profile


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
    ]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 99}', "{"])
def test_a_file_that_is_no_profile_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(BadInput) as refusal:
        load_profile(path)
    assert "\n" not in str(refusal.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere"):
        load_profile(tmp_path / "nowhere.json")


def test_an_unwritable_path_is_refused(tmp_path: Path) -> None:
    profile = ModelProfile("m", "ipu bow", None, ("a",), ("k",), (None,), (LAYER,))
    with pytest.raises(BadInput, match="written"):
        save_profile(profile, tmp_path / "no" / "p.json")


def stored() -> dict[str, Any]:
    options = CompileOptions(4, 0.6, Precision.FP16)
    profile = ModelProfile("m", "ipu bow", options, ("a", "b"), ("k", "k"), (None, "w"), (LAYER, LAYER))
    fresh: dict[str, Any] = json.loads(json.dumps(profile_record(profile)))
    return fresh


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("model",), ..., "profile must be an object with a field model"),
        (("target",), 7, "profile.target must be a text, got 7"),
        (("schema",), ..., "profile must be an object with a field schema"),
        (("schema",), 99, "profile.schema must be 2, got 99"),
        (("options",), 7, "profile.options must be an object with a field batch_size, got 7"),
        (("options", "batch_size"), 0, r"profile.options.batch_size must be a whole number from 1 to 2\*\*53, got 0"),
        (("options", "memory_proportion"), "all", "profile.options.memory_proportion must be a number .* got 'all'"),
        (("options", "precision"), "fp4", "profile.options.precision must be one of fp16, fp32, fp8, got 'fp4'"),
        (("options", "training"), "yes", "profile.options.training must be true or false, got 'yes'"),
        (("names",), ["a"], r"names, kinds, tied and layers of one length, at least 1, got \[1, 2, 2, 2\]"),
        (("names",), "ab", "profile.names must be a list, got 'ab'"),
        (("names", 1), None, r"profile.names\[1\] must be a text, got None"),
        (("tied", 1), 3, r"profile.tied\[1\] must be a text, got 3"),
        (("layers",), ..., "profile must be an object with a field layers"),
        (("layers", 0), [], r"profile.layers\[0\] must be an object with a field forward_cycles, got \[\]"),
        (("layers", 1, "input_bytes"), ..., r"profile.layers\[1\] must be an object with a field input_bytes"),
        (("layers", 1, "forward_cycles"), "many", r"profile.layers\[1\].forward_cycles must be .* got 'many'"),
        (("layers", 1, "backward_cycles"), -1, r"profile.layers\[1\].backward_cycles must be .* got -1"),
        (("layers", 1, "weight_cycles"), ..., r"profile.layers\[1\] must be an object with a field weight_cycles"),
        (("layers", 0, "exclusive", "parameter"), 0.5, r"profile.layers\[0\].exclusive.parameter must be .* got 0.5"),
    ],
)
def test_a_wrong_field_is_named_in_one_line(
    tmp_path: Path, path: tuple[str | int, ...], value: object, named: str
) -> None:
    record = stored()
    parent: Any = record
    for key in path[:-1]:
        parent = parent[key]
    if value is ...:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    write_json(record, tmp_path / "p.json")
    with pytest.raises(BadInput, match=named) as refusal:
        load_profile(tmp_path / "p.json")
    assert str(tmp_path / "p.json") in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_profile_without_layers_is_refused(tmp_path: Path) -> None:
    write_json(stored() | {"names": [], "kinds": [], "tied": [], "layers": []}, tmp_path / "p.json")
    with pytest.raises(BadInput, match="at least 1"):
        load_profile(tmp_path / "p.json")


def test_written_json_is_read(tmp_path: Path) -> None:
    write_json({"a": [1, None, "\u00e9"]}, tmp_path / "a.json")
    assert read_json(tmp_path / "a.json") == {"a": [1, None, "\u00e9"]}


@pytest.mark.parametrize("content", [None, b"{", b"", b"\xff\xfe", b"[" * 100_000])
def test_an_unreadable_file_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "profile.json"
    if content is not None:
        path.write_bytes(content)
    for read in (read_json, load_profile):
        with pytest.raises(BadInput, match="JSON") as refusal:
            read(path)
        assert "\n" not in str(refusal.value)
