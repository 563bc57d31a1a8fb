"""Samples that depend on each other share no micro-batch: a request is a whole one, or is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.serve.conftest import RunningServer, request, write_folder

pytestmark = pytest.mark.slow
Start = Callable[..., RunningServer]
X = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)


def infer(server: RunningServer, x: Any) -> Any:
    given = {"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.tolist()}
    status, content = request(f"{server.url}/infer", json.dumps({"inputs": [given]}).encode())
    return np.array(content["outputs"][0]["data"]).reshape(x.shape) if status == 200 else (status, content["error"])


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("ReduceMean x > m axes=[0]; Sub x m > y", X - X.mean(0)),
        ("Softmax x > s axis=0; Neg s > y", -np.exp(X) / np.exp(X).sum(0)),
    ],
)
def test_a_request_is_exactly_one_micro_batch(
    program: str, expected: Any, replicas: int, start_server: Start, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "folder", (0, 1, 2), program=program, inputs={"x": ["n", 4]}, replicas=replicas)
    server = start_server(folder)
    refusal = "a request must hold 4 samples, because output y of a sample changes with the others"
    assert infer(server, X[:2]) == (400, f"{refusal}; got 2")
    np.testing.assert_allclose(infer(server, X), expected, rtol=1e-5, atol=1e-6)
    code, error = server.stop()
    assert (code, error.strip().removeprefix("autoauto: ")) == (0, refusal)


def test_where_they_do_not_requests_of_any_size_are_answered(start_server: Start, tmp_path: Path) -> None:
    program = "Softmax x > s axis=1; Neg s > y"
    server = start_server(write_folder(tmp_path / "folder", (0, 1, 2), program=program, inputs={"x": ["n", 4]}))
    for n in (1, 2, 3, 4):
        expected = -np.exp(X[:n]) / np.exp(X[:n]).sum(1, keepdims=True)
        np.testing.assert_allclose(infer(server, X[:n]), expected, rtol=1e-5)
    assert server.stop() == (0, "")
