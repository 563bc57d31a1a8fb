"""Files of trtexec, written by its documentation [tensorrt]: TensorRT itself could not be run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoauto.profile.importers.recorded import RecordedProfile
from autoauto.profile.importers.tensorrt import read_tensorrt
from autoauto.records.errors import BadInput
from tests.profile.importers.conftest import RECORDED

PROFILE, LAYERS = RECORDED / "engine.profile.json", RECORDED / "engine.layers.json"


def write(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def test_an_engine_passes_on_what_later_layers_read() -> None:
    layers = read_tensorrt(PROFILE, LAYERS, 8).at(8)
    image, stem = 8 * 3 * 224 * 224, 8 * 64 * 112 * 112
    assert [layer.forward_s for layer in layers] == pytest.approx([12.3e-6, 101.4e-6, 203.8e-6, 46.5e-6])
    assert [layer.input_bytes for layer in layers] == [4 * image, 2 * image, 2 * stem, 2 * 2 * stem]
    assert layers[-1].output_bytes == 8 * 1000 * 4
    assert [layer.parameter_bytes for layer in layers] == [0, 2 * (9408 + 64), 2 * (36864 + 64), 2 * 8028160]


@pytest.mark.parametrize(
    ("entry", "seconds"),
    [
        ({"timeMs": 30.0}, 3e-3),
        ({"timeMs": 30.0, "averageMs": 2.0}, 2e-3),
        ({"timeMs": 30.0, "averageMs": 2.0, "medianMs": 1.0, "percentage": 100}, 1e-3),
    ],
)
def test_medians_are_taken_before_averages(entry: dict[str, float], seconds: float, tmp_path: Path) -> None:
    profile = write(tmp_path, "profile.json", [{"count": 10}, {"name": "a", **entry}])
    layers = write(tmp_path, "layers.json", {"Layers": [{"Name": "a"}]})
    assert read_tensorrt(profile, layers).at(1)[0].forward_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("Row major linear FP32", 4),
        ("Row major linear FP16 format", 2),
        ("Thirty-two wide channel vectorized row major Int8 format.", 1),
        ("Row major linear INT64", 8),
        ("N/A due to dynamic shapes, BF16", 2),
        ("Half", 2),
        ("Row major linear FP8", 1),
        ("Row major INT4", 0.5),
    ],
)
def test_a_format_says_how_wide_elements_are(text: str, n_bytes: float, tmp_path: Path) -> None:
    output = {"Name": "x", "Dimensions": [2, 3], "Format/Datatype": text}
    layers = write(tmp_path, "layers.json", {"Layers": [{"Name": "a", "Outputs": [output]}]})
    profile = write(tmp_path, "profile.json", [{"name": "a", "averageMs": 1}])
    assert read_tensorrt(profile, layers).at(1)[0].output_bytes == 6 * n_bytes


def layers_named(*names: str) -> dict[str, Any]:
    ends = [{"Name": f"t{i}", "Dimensions": [8], "Format/Datatype": "FP32"} for i in range(len(names) + 1)]
    layers = [{"Name": name, "Inputs": [ends[i]], "Outputs": [ends[i + 1]]} for i, name in enumerate(names)]
    return {"Layers": layers}


@pytest.mark.parametrize(
    ("times", "seconds"),
    [([("a", 1), ("b", 2), ("b", 3)], [1e-3, 2e-3, 3e-3]), ([("a", 1), ("b", 5)], [1e-3, 2.5e-3, 2.5e-3])],
)
def test_layers_of_one_name_add_up_to_their_times(
    times: list[tuple[str, int]], seconds: list[float], tmp_path: Path
) -> None:
    profile = write(tmp_path, "profile.json", [{"name": name, "medianMs": each} for name, each in times])
    layers = write(tmp_path, "layers.json", layers_named("a", "b", "b"))
    assert [layer.forward_s for layer in read_tensorrt(profile, layers).at(1)] == pytest.approx(seconds)


def test_layers_without_a_time_are_counted_in_a_note(tmp_path: Path) -> None:
    profile = write(tmp_path, "profile.json", [{"name": "a", "medianMs": 1}])
    layers = write(tmp_path, "layers.json", layers_named("a", "reshape"))
    assert (
        "profile.json: 1 layers without a time count as 0 s, such as 'reshape'" in read_tensorrt(profile, layers).notes
    )


@pytest.mark.parametrize(
    ("profile", "layers", "message"),
    [
        (
            [{"name": "b", "averageMs": 1}],
            {"Layers": [{"Name": "a"}]},
            "layer 'b' is not in .*; give both files",
        ),
        ([], {"Layers": [{"Name": "a", "Weights": {"Type": "Half", "Count": 1}}]}, "layer 'a' is not in .*profile"),
        ([], {"Layers": ["a", "b"]}, "names of layers only; build the engine with --profilingVerbosity=detailed"),
        ([], {"Layers": []}, "needs a layer at least"),
        (
            [{"name": "a", "medianMs": 1}] * 2,
            layers_named("a", "a", "a"),
            "layers of one name must have a time each, or one together, 'a' has 2 for 3 layers",
        ),
        ([{}], {"Layers": []}, r"\[0\] must be a layer with a name, or how often"),
        ([{"name": "a"}], {"Layers": [{"Name": "a"}]}, r"\[0\] must have medianMs, averageMs or timeMs"),
        ([{"name": "a", "medianMs": -1}], {"Layers": [{"Name": "a"}]}, r"\[0\]: the time of a layer .* from 0"),
        (
            [{"name": "a", "averageMs": 1, "medianMs": 10}],
            {"Layers": [{"Name": "a"}]},
            r"\[0\]: a median of times is at most twice their mean, got 10 ms and 1 ms",
        ),
        (
            [{"name": "a", "averageMs": 1}],
            {"Layers": [{"Name": "a", "Inputs": [{"Name": "x", "Dimensions": [8, 3], "Format/Datatype": "FP32"}]}]},
            r"an input must have an axis of the batch size 1, got \[8, 3\]; give the batch size",
        ),
        ({"count": 1}, {"Layers": []}, "the top level must be a list"),
        (
            [],
            {"Layers": [{"Name": "a", "Inputs": [{"Name": "x", "Dimensions": [1], "Format/Datatype": "odd"}]}]},
            "layer 'a': a format has FP32, FP16, INT8 or another type, got 'odd'",
        ),
        (
            [],
            {"Layers": [{"Name": "a", "Inputs": [{"Name": "x", "Dimensions": [-1], "Format/Datatype": "FP32"}]}]},
            r"\[0\].Inputs\[0\].Dimensions\[0\] must be a whole number from 0",
        ),
    ],
)
def test_files_that_do_not_fit_are_refused(profile: Any, layers: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        read_tensorrt(write(tmp_path, "profile.json", profile), write(tmp_path, "layers.json", layers))


def tensor(name: str, *dimensions: int) -> dict[str, Any]:
    return {"Name": name, "Dimensions": [*dimensions], "Format/Datatype": "FP32"}


def layer(name: str, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"Name": name, "Inputs": inputs, "Outputs": outputs}


def of_layers(folder: Path, *layers: dict[str, Any], batch_size: int | None = None) -> RecordedProfile:
    """The profile of layers, of which each takes as many milliseconds as its place in the alphabet."""
    times = [{"name": each["Name"], "medianMs": ord(each["Name"]) - ord("a") + 1} for each in layers]
    files = write(folder, "profile.json", times), write(folder, "layers.json", {"Layers": layers})
    return read_tensorrt(*files, batch_size)


def test_an_engine_without_an_axis_of_samples_is_read_with_a_note(tmp_path: Path) -> None:
    scores = layer("a", [tensor("x", 128, 768)], [tensor("scores", 12, 128, 128)])
    profile = of_layers(tmp_path, scores)
    assert "layers.json: batch size 1 is assumed, although 2 of 2 shapes have no axis of it" in profile.notes
    with pytest.raises(BadInput, match=r"must have an axis of the batch size 1, got \[128, 768\]"):
        of_layers(tmp_path, layer("a", [tensor("x", 128, 768)], [tensor("y", 128, 1, 768), tensor("z", 128, 5)]))


CHAIN = [
    layer(name, [tensor(f"t{i}", 1, 10**i)], [tensor(f"t{i + 1}", 1, 10 ** (i + 1))]) for i, name in enumerate("abc")
]


@pytest.mark.parametrize("order", [(2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_layers_are_put_behind_those_that_write_what_they_read(order: tuple[int, ...], tmp_path: Path) -> None:
    straight, shuffled = of_layers(tmp_path, *CHAIN), of_layers(tmp_path, *(CHAIN[i] for i in order))
    assert shuffled.at(1) == straight.at(1)
    assert [each.output_bytes for each in shuffled.at(1)] == [40, 400, 4000]
    said = "layers.json: layers are put in an order in which each reads what earlier ones write"
    assert said in shuffled.notes
    assert said not in straight.notes


def test_parts_of_a_concatenation_are_one_tensor(tmp_path: Path) -> None:
    both = [
        *(layer("a", [tensor("x", 1, 4)], [tensor("y", 1, 2)]), layer("b", [tensor("x", 1, 4)], [tensor("y", 1, 3)])),
        layer("c", [tensor("y", 1, 5)], [tensor("z", 1, 1)]),
    ]
    assert of_layers(tmp_path, *both).at(1)[2].input_bytes == 20
    assert [each.name for each in of_layers(tmp_path, *reversed(both)).at(1)][-1] == "c"


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (
            [
                layer("a", [tensor("x", 1, 4)], [tensor("y", 1, 4)]),
                layer("b", [tensor("y", 1, 4)], [tensor("x", 1, 4)]),
            ],
            "a layer must read what earlier ones write, got a circle through '[ab]' and '[ab]'; write the file again",
        ),
        (
            [layer("a", [tensor("x", 1, 4)], [tensor("y", 1, 4)]), layer("b", [tensor("y", 1, 5)], [])],
            r"the same dimensions in all layers, 'y' has \[1, 4\] and \[1, 5\], the latter in layer 'b'",
        ),
        (
            [layer("a", [tensor("x", 1, 4)], []), layer("b", [tensor("x", 1, 4, 1)], [])],
            r"the same dimensions in all layers, 'x' has \[1, 4\] and \[1, 4, 1\]",
        ),
    ],
)
def test_tensors_that_contradict_each_other_are_refused(
    layers: list[dict[str, Any]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=message):
        of_layers(tmp_path, *layers)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([{"count": 10}, {"name": "a", "timeMs": 30.0, "averageMs": 0.3}], r"got 0.3 ms and 30 / 10 = 3 ms; which is"),
        ([{"count": 10}, {"name": "a", "timeMs": 30.0, "averageMs": 30.0}], "averageMs must be timeMs divided by the"),
        ([{"name": "a", "timeMs": 30.0}], "timeMs is that of all runs, and the file must say how many they were"),
    ],
)
def test_times_that_contradict_each_other_are_refused(
    entries: list[dict[str, Any]], message: str, tmp_path: Path
) -> None:
    files = write(tmp_path, "profile.json", entries), write(tmp_path, "layers.json", {"Layers": [{"Name": "a"}]})
    with pytest.raises(BadInput, match=message):
        read_tensorrt(*files)


def test_rounded_averages_are_read(tmp_path: Path) -> None:
    entries = [{"count": 1000}, {"name": "a", "timeMs": 0.04, "averageMs": 0.0001}]
    files = write(tmp_path, "profile.json", entries), write(tmp_path, "layers.json", {"Layers": [{"Name": "a"}]})
    assert read_tensorrt(*files).at(1)[0].forward_s == pytest.approx(1e-7)


def test_times_alone_do_not_suffice() -> None:
    with pytest.raises(BadInput, match="has times only; give the sizes of tensors, too: --profile-details FILE"):
        read_tensorrt(PROFILE)
