"""The layout of messages, and the rows that a stage records."""

from collections.abc import Mapping
from time import perf_counter_ns
from types import SimpleNamespace

import numpy as np
import pytest

from autoauto.records.costs.options import SessionOptions
from autoauto.records.layers import LayerRange, Port
from autoauto.records.units import Array
from autoauto.targets.host.memory_budget import data_bytes
from autoauto.targets.host.run.stage import ROWS_PER_BLOCK, SharedRowLog, StageResources, StageTask, _stream
from autoauto.targets.host.runtimes.onnxruntime.session import OnnxRuntimeSession
from autoauto.targets.host.runtimes.registry import runtime_named
from autoauto.targets.host.transport.shared_memory import ALIGNMENT, Ring, SubModelFile, arrays, message_bytes

PORTS = [
    Port("mask", (3,), "bool"),
    Port("x", (2, 2), "float32"),
    Port("scalar", (), "int64"),
    Port("h", (5,), "float16"),
]


def test_tensors_of_a_message_lie_side_by_side_and_aligned() -> None:
    message = memoryview(bytearray(message_bytes(PORTS)))
    views = arrays(message, PORTS)
    for number, port in enumerate(PORTS):
        assert (views[port.name].shape, views[port.name].dtype) == (port.shape, np.dtype(port.dtype))
        views[port.name][...] = number
    starts = [views[port.name].__array_interface__["data"][0] for port in PORTS]
    assert all((start - starts[0]) % ALIGNMENT == 0 for start in starts)
    again = arrays(message, PORTS)
    assert [np.unique(again[port.name].astype(int)).tolist() for port in PORTS] == [[0], [1], [2], [3]]


@pytest.mark.parametrize(("ports", "n_bytes"), [([], 0), (PORTS[:1], 3), (PORTS[:2], 64 + 16), (PORTS, 192 + 10)])
def test_a_message_is_as_long_as_its_last_tensor_needs(ports: list[Port], n_bytes: int) -> None:
    assert message_bytes(ports) == n_bytes


def test_any_number_of_rows_is_returned_in_order_and_does_not_count_as_private_memory() -> None:
    rows = SharedRowLog(2)
    assert rows.array().shape == (0, 2)
    grown_bytes, logs = [], [rows, SharedRowLog(2), SharedRowLog(2)]
    for rows in logs:  # the allocator takes more than requested now and then, but not three times in a row
        before = data_bytes()
        for number in range(2 * ROWS_PER_BLOCK + 3):
            rows.append((number, -number))
        grown_bytes.append(data_bytes() - before)
    assert min(grown_bytes) < 64 * 1024  # of 128 KiB
    expected = np.arange(2 * ROWS_PER_BLOCK + 3)
    np.testing.assert_array_equal(rows.array(), np.stack([expected, -expected], axis=1))


class MovingModel:
    """A model whose runs take 2 ms, of which 1 ms moves tensors to a GPU and back."""

    def __init__(self) -> None:
        self.n_runs = 0

    def run(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        stop_ns = perf_counter_ns() + 2_000_000
        while perf_counter_ns() < stop_ns:
            pass
        self.n_runs += 1

    def moved_ns(self) -> int:
        return self.n_runs * 1_000_000

    def cpu_time_ns(self) -> int:
        return self.n_runs * 1_000_000


def test_what_a_run_moves_to_a_gpu_counts_as_copied_not_as_computed() -> None:
    receive, send = Ring.create(4, 4), Ring.create(4, 4)
    port = Port("x", (1,), "float32")
    for _ in range(2):
        receive.reserve()
        receive.commit(4)
    receive.finish()
    pytest.importorskip("onnxruntime")
    resources, layers = StageResources((0,), SessionOptions(1, OnnxRuntimeSession()), 1), LayerRange(0, 1)
    file = SubModelFile()
    task = StageTask(layers, file, file, (port,), (port,), (port,), (port,), (receive,), (send,), resources)
    session = SimpleNamespace(model=MovingModel(), runtime=runtime_named("onnxruntime"))
    spans = _stream(session, task, SimpleNamespace(factor=lambda: 1.0))  # type: ignore[arg-type]
    copied, computed, _ = np.diff(spans.times, axis=1).T
    assert copied.min() >= 1_000_000
    assert computed.min() >= 1_000_000
    assert spans.compute_ns == 2_000_000
    assert np.diff(spans.times, axis=1).min() >= 0
    for opened in (receive, send, file):
        opened.close()
