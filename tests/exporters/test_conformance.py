"""What every exporter keeps: it writes the same files each time and passes its checks, or refuses in one line.

The model has blocks and the plans cut between them, so that every format can express every plan here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from autoauto.evaluate.export import deployment
from autoauto.evaluate.open import load_flow
from autoauto.exporters.exporter import Deployment
from autoauto.exporters.registry import FORMATS, exporter_named, write_artifact
from autoauto.records.errors import BadInput
from autoauto.records.plans.plan import side_by_side
from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs
from tests.graph.conftest import make

PROGRAM = (
    "MatMul x w0 > a; Relu a > b; MatMul b w1 > c; Tanh c > d; MatMul d w1 > e; Add e a > f; "
    "Reshape f s > g; Neg g > h; Flatten h > i; MatMul i w2 > j; Relu j > k; Add k x > y"
)
"""`a` and `x` skip stages, two layers have the weight w1, Reshape and Flatten are views."""
BLOCKS = (0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3)
"""The block of every node."""
QUICK = [(1, 1, 1), (2, 2, 1), (4, 2, 4)]
SLOW = [(1, 2, 4), (2, 1, 4), (4, 1, 1)]
"""Stages, replicas and the batch size of plans; together they hold every pair of two of their values."""


OF_LAYERS = [to for to, exporter in FORMATS.items() if not exporter.serves_decoders]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The best plan of the model, by its stages, replicas and batch size."""
    folder = tmp_path_factory.mktemp("conformance")
    path = folder / "residual.onnx"
    rng = np.random.default_rng(3)
    weights = {f"w{i}": rng.standard_normal((8, 8)).astype(np.float32) for i in range(3)}
    model = make(PROGRAM, {"x": ["n", 8]}, "y", {**weights, "s": [-1, 2, 4]})
    for block, node in zip(BLOCKS, model.graph.node, strict=True):
        node.name = f"/layers.{block}/{node.name}"
    onnx.save_model(model, path)

    @cache
    def best(n: int, replicas: int, batch_size: int) -> Deployment:
        flow = load_flow(str(path), "bow-pod16", cut_at="blocks")
        return deployment(
            flow,
            str(path),
            flow.expect(Knobs(n_ipu=n, memory_proportion=0.6, batch_size=batch_size, replicas=replicas)),
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOAUTO_CACHE_DIR", str(folder / "cache"))
        yield best


@pytest.mark.parametrize("to", OF_LAYERS)
@pytest.mark.parametrize("case", [*QUICK, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)], ids=str)
def test_a_format_writes_and_checks_a_plan(to: str, case: tuple[int, int, int], deployed: Any, tmp_path: Path) -> None:
    plan = deployed(*case)
    assert len(plan.plan.stages) == case[0]
    steps: list[tuple[int, int, str]] = []
    checks = write_artifact(
        plan, to, tmp_path / "new" / "artifact", check=True, progress=lambda *now: steps.append(now)
    )
    checked = [(2 + number, 3 + number) for number in range(len(checks))]
    assert [step[:2] for step in steps] == [(0, 2), (1, 2), *checked]
    assert any(each.passed for each in checks)
    assert [each for each in checks if each.passed is False] == []
    write_artifact(plan, to, tmp_path / "again")
    assert {path.name for path in tmp_path.iterdir()} == {"new", "again"}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["artifact"]
    assert contents(tmp_path / "again") == contents(tmp_path / "new" / "artifact")
    head, block, *rest = (tmp_path / "again" / "README.md").read_text(encoding="utf-8").split("```")
    assert head.startswith(f"# residual for {exporter_named(to).summary}\n")
    assert 1 <= len(block.strip().splitlines()) <= 3
    assert len(rest) == 1


@pytest.mark.parametrize("to", [to for to in OF_LAYERS if to not in ("onnx", "triton")])  # these hold stages to outputs
def test_an_artifact_of_another_plan_fails(to: str, deployed: Any, tmp_path: Path) -> None:
    write_artifact(deployed(4, 1, 1), to, tmp_path / "a")
    checks = [*exporter_named(to).check(deployed(2, 1, 1), tmp_path / "a")]
    assert [each for each in checks if each.passed is False]


@pytest.mark.parametrize("to", [to for to in OF_LAYERS if to != "onnx"])
def test_different_replicas_are_refused_in_one_line_that_leaves_nothing(to: str, deployed: Any, tmp_path: Path) -> None:
    short, long = deployed(2, 2, 1), deployed(4, 1, 1)
    unlike = replace(short, plan=side_by_side([short.plan, long.plan]))
    with pytest.raises(BadInput, match=r"^this format has one plan .*; try --to onnx$"):
        write_artifact(unlike, to, tmp_path / "a")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("to", [to for to in OF_LAYERS if not exporter_named(to).trains])
def test_training_is_refused_where_a_format_has_none(to: str, deployed: Any, tmp_path: Path) -> None:
    plan = deployed(2, 1, 1)
    with pytest.raises(BadInput, match="is for inference, got a plan for training; try --mode inference"):
        write_artifact(replace(plan, knobs=plan.knobs.with_values(schedule=Order.GPIPE)), to, tmp_path / "a")


@pytest.mark.parametrize("to", [to for to in FORMATS if to not in OF_LAYERS])
def test_an_engine_that_loads_a_decoder_refuses_layers(to: str, deployed: Any, tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=rf"^--to {to} starts an engine .*, got the layers of residual; try the decoder's"
    ):
        write_artifact(deployed(2, 1, 1), to, tmp_path / "a")
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_cannot_be_made_is_refused(deployed: Any) -> None:
    with pytest.raises(BadInput, match="a folder that can be written, got /proc; try another"):
        write_artifact(deployed(1, 1, 1), "auto-pipeline", Path("/proc/new"))


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("to", FORMATS)
def test_a_format_is_named_and_summarised(to: str) -> None:
    exporter = exporter_named(to)
    assert exporter.name == to
    assert exporter.summary
    assert len(exporter.apply) <= 3


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(BadInput, match=r"a format is one of auto-pipeline, .*, got 'tflite'"):
        exporter_named("tflite")
