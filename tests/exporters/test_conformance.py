"""What every exporter keeps: it writes the same files each time and passes its checks, or refuses in one line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from autoauto.evaluate.export import deployment
from autoauto.evaluate.load import load_flow
from autoauto.exporters.deployment import Deployment
from autoauto.exporters.registry import FORMATS, exporter_named, write_artifact
from autoauto.records.errors import BadInput
from autoauto.records.knobs import Knobs
from tests.graph.conftest import make

PROGRAM = (
    "MatMul x w0 > a; Relu a > b; MatMul b w1 > c; Tanh c > d; MatMul d w1 > e; Add e a > f; "
    "Reshape f s > g; Neg g > h; Flatten h > i; MatMul i w2 > j; Relu j > k; Add k x > y"
)
"""`a` and `x` skip stages, two layers have the weight w1, Reshape and Flatten are views."""
CASES = [(n, replicas, batch_size) for n in (1, 2, 4) for replicas in (1, 2) for batch_size in (1, 4)]
QUICK = {(1, 1, 1), (2, 2, 1), (4, 2, 4)}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The best plan of the model, by its stages, replicas and batch size."""
    folder = tmp_path_factory.mktemp("conformance")
    path = folder / "residual.onnx"
    rng = np.random.default_rng(3)
    weights = {f"w{i}": rng.standard_normal((8, 8)).astype(np.float32) for i in range(3)}
    onnx.save_model(make(PROGRAM, {"x": ["n", 8]}, "y", {**weights, "s": [-1, 2, 4]}), path)

    @cache
    def best(n: int, replicas: int, batch_size: int) -> Deployment:
        flow = load_flow(str(path), "bow-pod16")
        return deployment(flow, str(path), flow.expect(Knobs(n, 0.6, batch_size, replicas=replicas)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOAUTO_CACHE_DIR", str(folder / "cache"))
        yield best


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES], ids=str
)
def test_a_format_writes_and_checks_a_plan_or_refuses_it(
    to: str, case: tuple[int, int, int], deployed: Any, tmp_path: Path
) -> None:
    plan = deployed(*case)
    assert len(plan.plan.stages) == case[0]
    refusal, checks = "", []
    try:
        checks = write_artifact(plan, to, tmp_path / "new" / "artifact", check=True)
    except BadInput as error:
        refusal = str(error)
    if refusal:
        assert "\n" not in refusal
        assert "; try " in refusal
        assert [*tmp_path.iterdir()] == []
        return
    assert checks
    assert [each for each in checks if each.passed is False] == []
    write_artifact(plan, to, tmp_path / "again")
    assert {path.name for path in tmp_path.iterdir()} == {"new", "again"}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["artifact"]
    assert contents(tmp_path / "again") == contents(tmp_path / "new" / "artifact")
    head, block, *rest = (tmp_path / "again" / "README.md").read_text(encoding="utf-8").split("```")
    assert head.startswith(f"# residual for {exporter_named(to).summary}\n")
    assert 1 <= len(block.strip().splitlines()) <= 3
    assert len(rest) == 1


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("to", FORMATS)
def test_a_format_is_named_and_summarised(to: str) -> None:
    exporter = exporter_named(to)
    assert exporter.name == to
    assert exporter.summary
    assert len(exporter.apply) <= 3


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(BadInput, match=r"a format is one of onnx, .*, got 'tflite'"):
        exporter_named("tflite")
