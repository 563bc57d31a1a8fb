"""The meter: time and memory of sub-models measured in one worker, and the end of that worker."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autoauto.records.costs.options import SessionOptions
from autoauto.records.errors import BadInput, OutOfMemory
from autoauto.records.layers import LayerRange, Port, SubModel
from autoauto.records.units import MIB
from autoauto.targets.host.machine import cores_of
from autoauto.targets.host.measure.client import Meter
from autoauto.targets.host.measure.session import idle_model
from autoauto.targets.host.processes import Workers
from autoauto.targets.host.remote.machines import LocalMachine
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from tests.running import is_running, n_descriptors, wait_until

Models = Callable[[int, int], Any]
WHOLE = LayerRange(0, 1)
HEAP_STEP_BYTES = 132 * 1024
"""A heap step of an empty session is subtracted, while the measured session may have used memory that was free."""

pytestmark = pytest.mark.slow


@pytest.fixture
def meter() -> Iterator[Meter]:
    pytest.importorskip("onnxruntime", reason="the host target runs ONNX Runtime")
    with Meter(cores_of(0, 1), SessionOptions(1, OnnxRuntimeSession())) as meter:
        yield meter


def pids(meter: Meter) -> list[int]:
    assert isinstance(meter._machine, LocalMachine)
    return meter._machine.workers.pids


def test_an_idle_model_takes_less_time_than_a_product_and_next_to_no_memory(
    meter: Meter, residual_model: Models
) -> None:
    model = residual_model(1, 1024)
    measurement = meter.measure(idle_model(), WHOLE)
    product = meter.measure(model.source.cut(model.graph, WHOLE, 64), WHOLE)
    assert measurement.times.core_ns < product.times.core_ns / 10  # about a microsecond, and milliseconds
    assert 0 < measurement.session_bytes < 16 * MIB
    assert measurement.parameter_bytes < MIB
    assert measurement.peak_bytes < MIB


def test_parameters_are_the_weights_after_any_earlier_measurement(meter: Meter, residual_model: Models) -> None:
    model = residual_model(3, 1024)
    for layers, weight_mib in (((0, 1), 4), ((0, 6), 12), ((1, 2), 0), ((2, 3), 4)):
        measurement = meter.measure(model.source.cut(model.graph, LayerRange(*layers), 1), LayerRange(*layers))
        assert weight_mib * MIB <= measurement.parameter_bytes + HEAP_STEP_BYTES
        assert measurement.parameter_bytes <= weight_mib * MIB * 1.1 + MIB


def test_one_process_serves_all_requests_and_survives_a_model_that_fails(meter: Meter, residual_model: Models) -> None:
    model = residual_model(1, 64)
    sub_model = model.source.cut(model.graph, LayerRange(0, 1), 2)
    meter.measure(sub_model, WHOLE)
    first = pids(meter)
    broken = SubModel(sub_model.content[: len(sub_model.content) // 2], sub_model.inputs, sub_model.outputs)
    with pytest.raises(BadInput, match=r"ONNX Runtime does not read layers \[4, 7\): "):
        meter.measure(broken, LayerRange(4, 7))
    meter.measure(sub_model, WHOLE)
    assert pids(meter) == first


def test_a_tensor_that_no_machine_holds_is_out_of_memory(meter: Meter) -> None:
    size = numpy_helper.from_array(np.array([1 << 44]), "size")
    nodes = [helper.make_node("Expand", ["x", "size"], ["h"]), helper.make_node("ReduceMax", ["h"], ["y"], keepdims=1)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1,)) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], [size])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    ports = [Port(name, (1,), "float32") for name in ("x", "y")]
    large = SubModel(model.SerializeToString(), (ports[0],), (ports[1],))
    with pytest.raises(OutOfMemory, match=r"ONNX Runtime does not run layers \[4, 7\): ") as failure:
        meter.measure(large, LayerRange(4, 7))
    assert failure.value.layers == LayerRange(4, 7)
    assert failure.value.excess_bytes == 1
    meter.measure(idle_model(), WHOLE)


def test_a_measurement_beyond_the_limit_is_out_of_memory_and_the_next_within_it_is_not(residual_model: Models) -> None:
    model = residual_model(2, 1024)  # 2 x 4 MiB of weights, and 4 KiB a sample and tensor

    def sub_model(batch_size: int) -> SubModel:
        cut: SubModel = model.source.cut(model.graph, LayerRange(0, 4), batch_size)
        return cut

    with Meter(cores_of(0, 1), SessionOptions(1, OnnxRuntimeSession()), limit_bytes=48 * MIB) as meter:
        meter.measure(sub_model(1024), WHOLE)  # 8 MiB of inputs and outputs, as much in between
        first = pids(meter)
        for batch_size in (5 * 1024, 64 * 1024):  # too much between layers, and in inputs and outputs alone
            with pytest.raises(OutOfMemory, match=r"the model cannot be measured alone in the 48.0 MiB of all devices"):
                meter.measure(sub_model(batch_size), WHOLE, what="the model")
        status = Path(f"/proc/{first[0]}/status").read_text(encoding="ascii")
        meter.measure(sub_model(1024), WHOLE)
        assert pids(meter) == first
    peak_mib = int(status.partition("VmHWM:")[2].split()[0]) // 1024
    assert peak_mib < 48 + 256  # the interpreter and the runtime beside it; 512 MiB were asked for


def test_a_killed_process_is_replaced(meter: Meter) -> None:
    meter.measure(idle_model(), WHOLE)
    (first,) = pids(meter)
    os.kill(first, signal.SIGKILL)
    meter.measure(idle_model(), WHOLE)
    assert pids(meter) != [first]


def test_the_answer_to_an_interrupted_request_is_not_taken_for_the_next(
    meter: Meter, residual_model: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = residual_model(2, 64)
    first, second = (model.source.cut(model.graph, LayerRange(*layers), 1) for layers in ((0, 1), (1, 5)))
    meter.measure(first, WHOLE)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    (before,) = pids(meter)
    with monkeypatch.context() as patch:
        patch.setattr(Workers, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            meter.measure(first, WHOLE)
    assert not is_running(before)
    assert meter.measure(second, LayerRange(1, 5)).times.n_runs > 0


def test_no_process_runs_after_the_context(residual_model: Models) -> None:
    with Meter(cores_of(0, 1), SessionOptions(1, OnnxRuntimeSession())) as meter:
        meter.measure(idle_model(), WHOLE)
        (pid,) = pids(meter)
    assert not is_running(pid)


def test_a_meter_that_nobody_holds_leaves_no_process_and_no_descriptor(residual_model: Models) -> None:
    resource_tracker.ensure_running()  # multiprocessing's own descriptor, which stays
    n_before = n_descriptors()
    meter = Meter(cores_of(0, 1), SessionOptions(1, OnnxRuntimeSession()))
    meter.measure(idle_model(), WHOLE)
    (pid,) = pids(meter)
    del meter
    assert n_descriptors() == n_before  # it collects garbage
    assert not is_running(pid)


PARENT = """
import sys
from autoauto.records.costs.options import SessionOptions
from autoauto.records.layers import LayerRange
from autoauto.targets.host.machine import cores_of
from autoauto.targets.host.measure.client import Meter
from autoauto.targets.host.measure.session import idle_model
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession

if __name__ == "__main__":
    meter = Meter(cores_of(0, 1), SessionOptions(1, OnnxRuntimeSession()))
    meter.measure(idle_model(), LayerRange(0, 1))
    print(*meter._machine.workers.pids, flush=True)
    while True:
        meter.measure(idle_model(), LayerRange(0, 1))
"""


def test_the_worker_dies_with_its_parent(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the host target runs ONNX Runtime")
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    before = set(tmp_path.iterdir())
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
    wait_until(lambda: not is_running(pid), "the worker has ended")
    assert set(tmp_path.iterdir()) == before
