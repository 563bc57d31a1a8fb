"""README's target of one's own: it is short, it is what README shows, and it really runs."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import onnx
import pytest

import autoauto
from autoauto.records.layers import LayerRange
from autoauto.records.profile import CompileOptions, Target
from autoauto.records.timeline import Runner
from autoauto.records.units import Precision

ROOT = Path(__file__).parents[2]


def test_readme_shows_it_in_forty_lines(study: ModuleType) -> None:
    shown = inspect.getsource(study.NumpyTarget)
    assert shown in (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(shown.splitlines()) <= 40


def test_it_is_what_the_protocol_asks_for(study: ModuleType) -> None:
    asked = {name for name in vars(Target) if not name.startswith("_")}
    assert asked <= set(dir(study.NumpyTarget))
    assert not issubclass(study.NumpyTarget, Runner)


def test_it_times_what_numpy_computes(study: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "products.onnx"
    onnx.save(study.model_of(4, 64), path)
    graph, target = autoauto.load_graph(path), study.NumpyTarget(str(path))
    options = CompileOptions(8, 1.0, Precision.FP32)
    device = study.cluster().devices[0]
    compiled = target.compile(graph, LayerRange(1, 3), device, options)
    assert compiled.forward_cycles > 0
    assert compiled.memory_bytes == {"parameter": 2 * 64 * 64 * 4, "temporary": 2 * 8 * 64 * 4}
    assert [target.profiled(n) for n in (1, 8, 9)] == [(1,), (8,), (8, 16)]


@pytest.mark.slow
def test_a_search_on_it_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "AUTOAUTO_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, str(ROOT / "studies" / "custom_target.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    *trials, best, stages = done.stdout.splitlines()
    assert trials
    assert all(line.startswith(("COMPLETE n_ipu", "PRUNED n_ipu")) for line in trials)
    assert best.startswith("best: n_ipu ")
    assert stages.endswith("samples/s, measured")
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
