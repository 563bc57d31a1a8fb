"""The cost model against every published figure, and the picture."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any
from xml.etree import ElementTree

import pytest

from autoauto.records.installation import data_dir
from studies import ipu_accuracy
from studies.ipu_accuracy import Point


@pytest.fixture(scope="module")
def figures() -> Any:
    return json.loads((data_dir() / "measurements" / "throughput.json").read_text(encoding="utf-8"))["series"]


def built_in(figures: Any) -> list[Any]:
    return [series for series in figures if not series.get("exported")]


@pytest.mark.slow
def test_whole_models_are_within_six_percent_on_average(figures: Any) -> None:
    points = [point for series in built_in(figures) for point in ipu_accuracy.points(series)]
    errors = [abs(point.error) for point in points if point.error is not None]
    assert len(errors) == len([point for point in points if point.published]) == 70
    assert mean(errors) < 0.06
    assert sorted(errors)[-3] < 0.15
    assert max(errors) < 0.23


@pytest.mark.slow
def test_where_memory_ends_is_right_but_for_one_answer(figures: Any) -> None:
    wrong = {series["name"]: ipu_accuracy.boundary(series).wrong for series in built_in(figures)}
    assert {name: batches for name, batches in wrong.items() if batches} == {"resnet50 fp16 io": (96,)}


def test_every_kernel_is_within_five_percent() -> None:
    measured = json.loads((data_dir() / "measurements" / "kernels.json").read_text(encoding="utf-8"))["kernels"]
    assert set(measured) == set(ipu_accuracy.KERNELS)
    for errors in ipu_accuracy.kernel_errors(measured).values():
        assert max(map(abs, errors)) < 0.05


def test_the_picture_has_a_line_a_series_and_a_dot_a_figure() -> None:
    line = [Point(1, 100.0, None), Point(2, 150.0, None)]
    page = ElementTree.fromstring(ipu_accuracy.picture([("a", line, [Point(2, 150.0, 160.0)]), ("b", line, [])]))
    tags = [element.tag.rpartition("}")[2] for element in page]
    assert (tags.count("polyline"), tags.count("circle")) == (2, 1)


def test_a_line_ends_where_the_model_does_not_fit(figures: Any) -> None:
    series = {**figures[0], "batch_sizes": [64], "samples_per_s": [1.0], "memory_proportion": 1.0}
    batches = [point.batch_size for point in ipu_accuracy.line(series)]
    assert batches == [2**n for n in range(len(batches))]
    assert 4 <= len(batches) <= 8


def test_both_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    ipu_accuracy.print_models([("a", [Point(1, 110.0, 100.0), Point(2, None, 100.0)])])
    ipu_accuracy.print_kernels({"add": [0.01, -0.03]})
    printed = capsys.readouterr().out
    assert "+10.0 %" in printed
    assert "no fit" in printed
    assert "2.0 %    3.0 %" in printed


def test_the_largest_batch_fits_and_one_more_does_not(figures: Any) -> None:
    (series,) = (series for series in figures if series["name"] == "resnet50 fp32")
    largest = ipu_accuracy.largest_batch(series)
    assert 16 <= largest < 32, "what ran fits, what was out of memory does not"
    flow = ipu_accuracy.flow_of(series)
    speeds = [ipu_accuracy.samples_per_s(flow, ipu_accuracy.knobs_of(series, n)) for n in (largest, largest + 1)]
    assert [speed is None for speed in speeds] == [False, True]


def test_what_never_fits_has_no_largest_batch(figures: Any) -> None:
    assert ipu_accuracy.largest_batch({**figures[0], "model": "bert-large-128", "precision": "fp32"}) == 0


def test_a_series_of_an_exported_model_needs_its_file(figures: Any, tmp_path: Path) -> None:
    (series, *_) = (series for series in figures if series.get("exported"))
    assert ipu_accuracy.with_file(series, None) is None
    assert ipu_accuracy.with_file(series, tmp_path) is None
    path = tmp_path / f"{series['model']}-script.onnx"
    path.touch()
    assert ipu_accuracy.with_file(series, tmp_path) == {**series, "model": str(path)}
    assert ipu_accuracy.with_file(figures[0], None) == figures[0]


def test_series_of_another_file_are_evaluated_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conditions = {"cluster": "c600", "precision": "fp16", "memory_proportion": 0.6, "host": "synthetic"}
    series = {"name": "r", "model": "resnet50", **conditions, "batch_sizes": [1, 128], "samples_per_s": [3653, None]}
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"series": [series, {**series, "name": "x", "model": "none"}]}), encoding="utf-8")
    assert ipu_accuracy.main(["--rows", str(path)]) == 0
    _, fits, does_not, _, failed = capsys.readouterr().out.splitlines()
    assert fits.split() == ["r", "1", "3,628", "3,653", "-0.7", "%", "yes"]
    assert does_not.split() == ["r", "128", "no", "fit", "no", "fit", "no"]
    assert failed.startswith("x: no number, a model must be a built-in name")


@pytest.mark.slow
def test_the_tables_of_one_series_are_printed_and_drawn(run_script: Callable[..., list[str]], tmp_path: Path) -> None:
    options = ["--series", "bert-base-128 fp16", "--picture", str(tmp_path / "speed.svg")]
    models, batches, kernels = "\n".join(run_script("ipu_accuracy", *options)).split("\n\n")
    assert [line.split()[0] for line in models.splitlines()] == ["series", "bert-base-128", "mean"]
    assert [line.split()[0] for line in batches.splitlines()] == ["largest", "bert-base-128", "0"]
    assert {line.split()[0] for line in kernels.splitlines()} == {"kernel", *ipu_accuracy.KERNELS}
    assert (tmp_path / "speed.svg").read_text(encoding="utf-8").startswith("<svg ")
