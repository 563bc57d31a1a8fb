"""What ONNX Runtime writes with profiling on, as times of nodes."""

import json

import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

from autoauto.records.costs.profile import NodeTime
from autoauto.targets.host.runtimes.onnxruntime.runtime import recorded_times


def event(name: str, start_us: int, took_us: int, category: str = "Node") -> dict[str, object]:
    return {"cat": category, "name": name, "ts": start_us, "dur": took_us, "args": {"op_name": "Conv"}}


def test_a_record_that_is_broken_says_nothing() -> None:
    assert recorded_times(b'[{"cat": "Node", "name": "a\\') == recorded_times(b"") == ()


def test_a_node_has_the_shortest_of_its_runs() -> None:
    events = [
        event("session_initialization", 0, 900, "Session"),
        *(event(f"{name}_fence_before", 0, 0) for name in "ab"),
        *(event("a_kernel_time", 1000 * run, took) for run, took in enumerate((500, 20, 30))),
        *(event("b_kernel_time", 1000 * run + 500, 100) for run in range(3)),
        event("model_run", 0, 3000, "Session"),
    ]
    times = recorded_times(json.dumps(events).encode())
    assert times == (NodeTime(("a",), 20e-6), NodeTime(("b",), 100e-6))
