"""A package's target whose session has knobs: searches vary them, read them back, and disturb no other target.

The package is a file beside its metadata, as pip would leave it; it is not installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """
from dataclasses import dataclass
from typing import ClassVar

from autoauto.plugin import PARAMETER, Cluster, CompiledRange, Device, Knob, Link, NamedTarget, Origin, Period
from autoauto.plugin import Precision, ProgramStep, Session, TargetTraits, whole

WIDTH = Knob("width", whole(1024), 64, "bytes that move in a cycle", "32,64", ("64", "32,64"), searched=(32, 64))
FOLD = Knob("fold", whole(8), 1, "sheets on each other", "1,2", ("1", "1"))


@dataclass(frozen=True, slots=True)
class PaperSession(Session):
    knobs: ClassVar[tuple[Knob, ...]] = (FOLD, WIDTH)
    fold: int = 1
    width: int = 64


class PaperTarget:
    traits = TargetTraits(origin=Origin.MODELLED, trains=False, sessions=(PaperSession,))
    version = "paper"

    def profiled(self, batch_size):
        return (batch_size,)

    def depends_on(self, device, options):
        return options.batch_size, options.precision, options.session

    def compile(self, graph, layers, device, options):
        rate = options.session.width * options.session.fold
        size = [tensor.n_bytes(options.batch_size, options.precision) for tensor in graph.tensors]
        part = graph.layers[slice(*layers)]
        moved = [sum(size[each] for each in {*layer.inputs, *layer.outputs, *layer.weights}) for layer in part]
        steps = (ProgramStep(each.name, n // rate, n) for each, n in zip(part, moved))
        weights = {weight for layer in part for weight in layer.weights}
        return CompiledRange(tuple(steps), 0, shared={}, exclusive={PARAMETER: sum(size[each] for each in weights)})


def devices(given, options):
    device, link = Device("sheet", 1e9, 2**30, 1, 2**30), Link(1e10, 1000)
    return given or Cluster("desk", "paper", (device,) * 2, (link,) * 2, (link,) * 2)


PAPER = NamedTarget(
    name="paper",
    summary="devices that only move bytes",
    default_cluster="desk",
    default_precision=Precision.FP16,
    options=(),
    sessions=(PaperSession,),
    periods=(Period.BARRIER,),
    devices=devices,
    open=lambda request: (PaperTarget(), request.cluster),
)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the package."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "autoauto_paper.py").write_text(PROGRAM)
    metadata = folder / "autoauto_paper-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: autoauto-paper\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[autoauto.targets]\npaper = autoauto_paper:PAPER\n")
    return folder


def search(folder: Path | None, home: Path, *words: str) -> dict[str, Any]:
    """The answer of a search with a new database; with the package in `folder`."""
    path = os.pathsep.join([str(ROOT), *([str(folder)] if folder else [])])
    done = subprocess.run(
        [sys.executable, "-m", "autoauto", "search", *words, "--storage", f"sqlite:///{home}/studies.db", "--json"],
        cwd=home,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    del answer["storage"]
    return answer


@pytest.mark.slow
@pytest.mark.parametrize("method", ["guided", "tpe", "random"])
def test_every_method_varies_its_knobs_and_reads_them_back(package: Path, tmp_path: Path, method: str) -> None:
    words = ("resnet50", "--target", "paper", "--batch-size", "1,2", "--n-ipu", "2", "--method", method)
    answer = search(package, tmp_path, *words, "--n-measurements", "8")
    again = search(package, tmp_path, *words, "--n-measurements", "8")
    assert (answer["best"]["width"], answer["best"]["batch_size"]) == (64, 2)
    assert again["best"] == answer["best"]
    assert again["n_tried"] == answer["n_tried"] >= 1
    narrow = search(package, tmp_path, *words, "--width", "32", "--fold", "2")
    assert (narrow["best"]["width"], narrow["best"]["fold"]) == (32, 2)


@pytest.mark.slow
def test_a_search_of_another_target_is_as_without_it(package: Path, tmp_path: Path) -> None:
    words = ("resnet50", "--batch-size", "1:4", "--n-ipu", "2")
    (tmp_path / "alone").mkdir()
    beside, alone = search(package, tmp_path, *words), search(None, tmp_path / "alone", *words)
    assert beside["best"] == {**alone["best"], "fold": 1, "width": 64}
    assert beside["n_configurations"] == alone["n_configurations"]
