"""What of a trial is exported."""

from dataclasses import replace
from pathlib import Path

import onnx

from autoauto.evaluate.export import deployment
from autoauto.evaluate.open import load_flow
from autoauto.records.costs.options import DeviceSession, SessionOptions
from autoauto.records.units import MIB
from autoauto.space.knobs import Knobs
from autoauto.targets.clusters import cluster_toml
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from tests.targets.host.conftest import residual, unlike_of


def test_a_plan_names_the_devices_of_this_machine_where_they_are_unlike(tmp_path: Path) -> None:
    model, cluster = str(tmp_path / "residual.onnx"), tmp_path / "unlike.toml"
    onnx.save(residual(2, 64), model)
    cluster.write_text(cluster_toml(unlike_of(256 * MIB), "a test"), encoding="utf-8")
    on_ipus, on_host = load_flow(model), load_flow(model, str(cluster), "host")
    trial = on_ipus.expect(Knobs(1, 4))
    assert deployment(on_ipus, model, trial).devices == ()
    trial = replace(trial, knobs=Knobs(1, 4, session=OnnxRuntimeSession()), made_for=())
    assert deployment(on_host, model, trial).devices == (
        DeviceSession("cpu:1", SessionOptions(1, OnnxRuntimeSession())),
    )
    assert deployment(load_flow(model, target="host"), model, trial).devices == ()
