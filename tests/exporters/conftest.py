"""Small models with plans made by hand, as deployments."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from autoauto.evaluate.open import load_flow
from autoauto.exporters.exporter import Deployment, Performance
from autoauto.graph.cut import onnx_source
from autoauto.processes.signals import same_signal_stack
from autoauto.records.costs.options import Session
from autoauto.records.hardware import Cluster, MachineDevice
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.target import Origin
from autoauto.schedule.times import timeline_of
from autoauto.space.knobs import Knobs
from autoauto.targets.clusters import load_cluster
from tests.graph.conftest import make

Deploy = Callable[..., Deployment]


@pytest.fixture(autouse=True)
def megatrons_parser_is_slow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start Megatron-LM's parser, whose process loads PyTorch for five seconds, in slow tests alone."""
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr("autoauto.exporters.blocks.megatron.find_spec", lambda _: None)


def run_here(command: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
    """Run a program of Python in this process: one of its own takes half a second to import its libraries."""
    code, error, before = 0, "", sys.argv
    sys.argv = [*command[1:]]
    try:
        with same_signal_stack():  # as if the process of the program had gone with its OpenVINO
            runpy.run_path(command[1], run_name="__main__")
    except SystemExit as end:
        code, error = 1, f"{end.code}\n"
    finally:
        sys.argv = before
    return subprocess.CompletedProcess([*command], code, "", error)


@pytest.fixture(autouse=True)
def programs_run_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the programs of artifacts in this process, but in slow tests and where all formats are tested alike."""
    if request.node.get_closest_marker("slow") is None and request.module.__name__.split(".")[-1] != "test_conformance":
        monkeypatch.setattr("autoauto.exporters.onnx_stages.subprocess", SimpleNamespace(run=run_here))


def plan_of(cuts: Sequence[int], replicas: Sequence[int] = (0,), stage_replicas: int = 1) -> Plan:
    """A stage a device between every two cuts; replica r has the devices from r times the number of stages on."""
    n_devices = (len(cuts) - 1) * stage_replicas
    stages = [
        Stage(LayerRange(*layers), index * stage_replicas, 9, 0, 1, 1, {"weights": 64}, 100, 0, stage_replicas)
        for index, layers in enumerate(pairwise(cuts))
    ]
    devices = [tuple(MachineDevice(0, replica * n_devices + d) for d in range(n_devices)) for replica in replicas]
    return Plan(tuple(stages), placement=tuple(devices))


@pytest.fixture
def deploy(tmp_path: Path) -> Deploy:
    """Make a model of nodes, as `make` writes them, and its deployment with these cuts."""

    def deployed(
        program: str,
        inputs: dict[str, Sequence[Any]],
        outputs: str,
        constants: dict[str, Any] | None = None,
        *,
        plan: Plan,
        batch_size: int = 2,
        replicas: int = 1,
        cluster: Cluster | None = None,
        session: Session | None = None,
    ) -> Deployment:
        path = tmp_path / "model" / "small.onnx"
        path.parent.mkdir(exist_ok=True)
        onnx.save_model(make(program, inputs, outputs, constants), path)
        knobs = Knobs(n_ipu=len(plan.stages), batch_size=batch_size, replicas=replicas, session=session)
        flow = load_flow(str(path))
        return Deployment(
            graph=flow.graph,
            source=onnx_source(str(path)),
            cluster=cluster or load_cluster("bow-pod16"),
            precision=flow.setting.precision,
            knobs=knobs,
            plan=plan,
            schedule=timeline_of(knobs.step, plan).schedule,
            performance=Performance(1234.5, Origin.ESTIMATED),
            profile=partial(flow.profile, flow.options(knobs)),
            planning_proportion=0.85,
        )

    return deployed
