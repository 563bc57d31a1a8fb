"""Splits by hand and by the planner, at one price list."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autoauto.records.places import data_dir
from autoauto.records.units import Precision

STUDY = Path(__file__).parents[2] / "studies" / "handtuned.py"
ROWS = json.loads((data_dir() / "measurements" / "handtuned.json").read_text())["rows"]
GPT2_SMALL = {"n_layers": 12, "width": 768, "n_heads": 12, "sequence": 1024}


@pytest.fixture(scope="module")
def study() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("handtuned", STUDY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("row", [row for row in ROWS if row["model"]], ids=lambda row: row["id"])
def test_ours_never_costs_more_and_what_ran_fits(study: ModuleType, row: dict[str, Any]) -> None:
    theirs, ours = study.compare(row)
    assert len(theirs.partition) == len(ours.partition) == row["n_ipu"] + 1
    assert ours.cost_cycles <= theirs.cost_cycles
    assert ours.fits
    assert theirs.fits == row["fits"]


def test_rows_are_those_of_the_published_files(vectors: Callable[[str], Any]) -> None:
    for case in vectors("handtuned_splits")["cases"]:
        (row,) = (row for row in ROWS if case["id"].endswith(row["id"]))
        assert (row["mode"], row["n_ipu"]) == (case["mode"], case["ipus_per_replica"])
        assert row["batch_size"] == case.get("micro_batch_size", 1)


def test_gpt2_is_as_large_as_the_published_one(study: ModuleType) -> None:
    """124,439,808 parameters (GPT-2 small), and one number for every block's mask."""
    graph = study.graph_of(GPT2_SMALL)
    assert graph.n_weight_bytes(Precision.FP16) == 2 * (124_439_808 + 12)
    tied = [layer.name for layer in graph.layers if layer.tied]
    assert tied == ["head.MatMul", "wte.Gather"]


def test_what_is_not_modelled_is_said(study: ModuleType) -> None:
    (row,) = (row for row in ROWS if row["model"] is None)
    (line,) = study.lines(row)
    assert "mt5-small" in line
    assert "not modelled; published: does not fit" in line


def test_a_line_tells_the_layers_of_every_stage(study: ModuleType) -> None:
    first, second = study.lines(next(row for row in ROWS if row["id"] == "b16_imagenet1k"))
    assert "Graphcore 80 75 75 78" in first
    assert second.lstrip().startswith("ours")
    assert second.endswith("less")
