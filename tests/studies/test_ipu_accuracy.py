"""Every published figure under its conditions, and the picture."""

from __future__ import annotations

import json
from statistics import mean
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from autoauto.records.installation import data_dir


@pytest.fixture(scope="module")
def figures() -> Any:
    return json.loads((data_dir() / "measurements" / "throughput.json").read_text(encoding="utf-8"))["series"]


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


def test_whole_models_are_within_eight_percent_on_average(study: ModuleType, figures: Any) -> None:
    errors = [abs(point.error) for series in figures for point in study.points(series)]
    assert len(errors) == 9
    assert mean(errors) < 0.08
    assert max(errors) < 0.2


def test_every_kernel_is_within_five_percent(study: ModuleType) -> None:
    measured = json.loads((data_dir() / "measurements" / "kernels.json").read_text(encoding="utf-8"))["kernels"]
    assert set(measured) == set(study.KERNELS)
    for errors in study.kernel_errors(measured).values():
        assert max(map(abs, errors)) < 0.05


def test_the_picture_has_a_line_a_series_and_a_dot_a_figure(study: ModuleType) -> None:
    lines = [study.Point(1, 100.0, None), study.Point(2, 150.0, None)]
    drawn = ElementTree.fromstring(study.picture([("a", lines, [study.Point(2, 150.0, 160.0)]), ("b", lines, [])]))
    tags = [element.tag.rpartition("}")[2] for element in drawn]
    assert (tags.count("polyline"), tags.count("circle")) == (2, 1)


def test_a_line_ends_where_the_model_does_not_fit(study: ModuleType, figures: Any) -> None:
    series = {**figures[0], "batch_sizes": [64], "samples_per_s": [1.0], "memory_proportion": 1.0}
    batches = [point.batch_size for point in study.line(series)]
    assert batches == [2**n for n in range(len(batches))]
    assert 4 <= len(batches) <= 8


def test_both_tables_are_printed(study: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    study.print_models([("a", [study.Point(1, 110.0, 100.0), study.Point(2, None, 100.0)])])
    study.print_kernels({"add": [0.01, -0.03]})
    printed = capsys.readouterr().out
    assert "+10.0 %" in printed
    assert "no fit" in printed
    assert "2.0 %    3.0 %" in printed


def test_the_largest_batch_fits_and_one_more_does_not(study: ModuleType, figures: Any) -> None:
    (series,) = (series for series in figures if series["name"] == "resnet50 fp32")
    largest = study.largest_batch(series)
    assert largest >= max(series["batch_sizes"]), "what ran fits"
    flow = study.flow_of(series)
    speeds = [study.samples_per_s(flow, study.knobs_of(series, n)) for n in (largest, largest + 1)]
    assert [speed is None for speed in speeds] == [False, True]


def test_what_never_fits_has_no_largest_batch(study: ModuleType, figures: Any) -> None:
    assert study.largest_batch({**figures[0], "model": "bert-large-128", "precision": "fp32"}) == 0
