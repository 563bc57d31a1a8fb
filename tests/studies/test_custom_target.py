"""The example of a target of your own is short, is the one that the documents show, and runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

import autoauto
from autoauto.records.costs.memory import compiled_bytes
from autoauto.records.costs.options import CompileOptions
from autoauto.records.layers import LayerRange
from autoauto.records.plans.timeline import Runner
from autoauto.records.target import Target
from autoauto.records.units import Precision
from studies import custom_target

ROOT = Path(__file__).parents[2]


def test_the_documents_show_it_in_forty_lines() -> None:
    source = inspect.getsource(custom_target.NumpyTarget)
    assert len(source.splitlines()) <= 40
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert any(source in document.read_text(encoding="utf-8") for document in documents)


def test_it_has_the_members_of_a_target_and_not_those_of_a_runner() -> None:
    members = {name for name in vars(Target) if not name.startswith("_")}
    assert members <= set(dir(custom_target.NumpyTarget))
    assert not issubclass(custom_target.NumpyTarget, Runner)


def test_a_compiled_range_has_a_time_and_the_bytes_of_its_tensors(tmp_path: Path) -> None:
    path = tmp_path / "products.onnx"
    onnx.save(custom_target.model_of(4, 64), path)
    graph, target = autoauto.load_graph(path), custom_target.NumpyTarget(str(path))
    options = CompileOptions(8, Precision.FP32)
    device = custom_target.cluster().devices[0]
    compiled = target.compile(graph, LayerRange(1, 3), device, options)
    assert compiled.forward_cycles > 0
    assert compiled_bytes(compiled) == {"parameter": 2 * 64 * 64 * 4, "temporary": 2 * 8 * 64 * 4}
    assert [target.profiled(n) for n in (1, 8, 9)] == [(1,), (8,), (8, 16)]


@pytest.mark.slow
def test_a_search_on_it_leaves_nothing(run_script: Callable[..., list[str]], tmp_path: Path) -> None:
    *trials, best, stages = run_script("custom_target")
    assert trials
    assert all(line.startswith(("ok: n_ipu", "infeasible: n_ipu", "out of memory: n_ipu")) for line in trials)
    assert best.startswith("best: n_ipu ")
    assert stages.endswith("samples/s, measured")
    assert list(tmp_path.iterdir()) == []
