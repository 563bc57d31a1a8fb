"""Exported folders of small models with plans made by hand, and a server of one as its own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from autoauto.exporters import onnx_stages
from autoauto.exporters.exporter import Deployment, Performance
from autoauto.graph.cut import onnx_source
from autoauto.records.costs.options import Session
from autoauto.records.hardware import Cluster, Device, Link, MachineDevice
from autoauto.records.layers import LayerRange
from autoauto.records.plans.plan import Plan, Stage
from autoauto.records.target import Origin
from autoauto.records.units import MIB, Array, Precision
from autoauto.schedule.times import timeline_of
from autoauto.serve.protocol import ServedTensor
from autoauto.space.knobs import Knobs
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from tests.graph.conftest import make
from tests.running import PATIENCE_S, children_of, command_line, is_running, wait_until

ROOT = Path(__file__).parents[2]
WIDTH = 8
TABLE = np.random.default_rng(5).standard_normal((10, WIDTH)).astype(np.float32)
PROGRAM = "Gather table ids > e axis=0; Relu e > r; MatMul r w > z; Add x z > y"
"""A model that refuses ids that are not in its table; x is carried past the first stage."""
W = np.eye(WIDTH, dtype=np.float32) * 2


def expected(ids: Array, x: Array) -> Array:
    """What the model computes."""
    outputs: Array = x + 2 * np.maximum(TABLE[ids], 0)
    return outputs


def port(name: str, *shape: int, batch_size: int, dtype: str = "float32", axis: int | None = 0) -> ServedTensor:
    return ServedTensor(name, shape, dtype, axis, batch_size)


def write_folder(
    folder: Path,
    cuts: Sequence[int] = (0, 2, 4),
    batch_size: int = 4,
    replicas: int = 1,
    program: str = PROGRAM,
    inputs: dict[str, Sequence[Any]] | None = None,
    session: Session | None = None,
) -> Path:
    """Export the model as a plan whose processes all share the first core, so that it runs on any machine."""
    folder.mkdir(parents=True)
    path = folder.parent / "lookup.onnx"
    onnx.save_model(make(program, inputs or {"int:ids": ["n"], "x": ["n", WIDTH]}, "y", {"table": TABLE, "w": W}), path)
    source, device = onnx_source(str(path)), Device("core", 1e9, 256 * MIB, 1, 256 * MIB)
    stages = tuple(
        Stage(LayerRange(*layers), index, 9, 0, 1, 1, {"parameter": 64}, 256 * MIB)
        for index, layers in enumerate(pairwise(cuts))
    )
    plan = Plan(stages, placement=((MachineDevice(0, 0),) * len(stages),) * replicas)
    knobs = Knobs(len(stages), batch_size, replicas, session=session or OnnxRuntimeSession())
    cluster = Cluster("host", "host", (device,), (Link(1e9, 1),), (Link(1e9, 1),))
    onnx_stages.write(
        Deployment(
            graph=source.graph,
            source=source,
            cluster=cluster,
            precision=Precision.FP32,
            knobs=knobs,
            plan=plan,
            schedule=timeline_of(knobs.step, plan).schedule,
            performance=Performance(1000.0, Origin.MEASURED),
            profile=lambda: pytest.fail("nothing is profiled"),
            planning_proportion=0.85,
        ),
        folder,
    )
    return folder


class RunningServer(AbstractContextManager["RunningServer"]):
    """`autoauto serve STUDY|FOLDER` on a free port; `url` is that of its model."""

    def __init__(self, study: str | Path, *options: str) -> None:
        command = [sys.executable, "-m", "autoauto", "serve", str(study), "--listen", "127.0.0.1:0", *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "http://" in line, self.process.communicate()[1]
        self.url = next(word for word in line.replace(",", " ").split() if word.startswith("http://"))
        self.base = self.url.partition("/v2")[0]

    def get(self, path: str) -> Any:
        """The status and the content of a path."""
        return request(f"{self.base}{path}")

    def infer(self, ids: Sequence[int], x: Array | None = None) -> Any:
        """The status and the content of a request in JSON."""
        values = np.zeros((len(ids), WIDTH), np.float32) if x is None else x
        return request(f"{self.url}/infer", request_body(ids, values))

    def children(self) -> list[int]:
        """The process numbers of the stages."""
        return stage_processes(self.process.pid)

    def descriptors(self) -> list[str]:
        """The files, rings and connections that it has open."""
        return os.listdir(f"/proc/{self.process.pid}/fd")

    def stop(self) -> tuple[int, str]:
        """End it by SIGTERM; the exit code and what it wrote to stderr after its first line, which says what starts."""
        children = self.children()
        self.process.send_signal(signal.SIGTERM)
        _, error = self.process.communicate(timeout=PATIENCE_S)
        wait_until(lambda: not any(map(is_running, children)), "the end of all stages")
        first, _, rest = error.partition("\n")
        assert first.startswith("autoauto: starting "), error
        return self.process.returncode, rest

    def __exit__(self, *_: object) -> None:
        """Kill it if it still runs."""
        self.process.kill()
        self.process.communicate()


def request_body(ids: Sequence[int], x: Array) -> bytes:
    """An inference request in JSON."""
    inputs = [
        {"name": "ids", "shape": [len(ids)], "datatype": "INT64", "data": list(ids)},
        {"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.tolist()},
    ]
    return json.dumps({"inputs": inputs}).encode()


def need_libraries() -> None:
    """Skip a test where a server cannot run."""
    for name in ("onnxruntime", "aiohttp", "prometheus_client"):
        pytest.importorskip(name)


def stage_processes(pid: int) -> list[int]:
    """The processes that a server has started, but for what watches its signals, and multiprocessing's tracker."""
    own = command_line(pid)  # that of what watches its signals, too: a fork
    commands = children_of(pid).items()
    return [child for child, command in commands if command != own and b"resource_tracker" not in command]


def request(url: str, body: bytes | None = None) -> Any:
    """The status and the content of an answer, read as JSON where it is."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=PATIENCE_S) as response:
            status, content = response.status, response.read()
    except urllib.error.HTTPError as error:
        status, content = error.code, error.read()
    try:
        return status, json.loads(content)
    except ValueError:
        return status, content.decode()


@pytest.fixture
def start_server() -> Iterator[Callable[..., RunningServer]]:
    """Start servers, which end with the test."""
    need_libraries()
    with ExitStack() as stack:
        yield lambda study, *options: stack.enter_context(RunningServer(study, *options))
