"""The comparison with FastAPI runs, with few requests; how long they take is not asserted."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.slow
def test_a_server_is_measured(run_script: Callable[..., list[str]]) -> None:
    for name in ("onnxruntime", "aiohttp", "prometheus_client"):
        pytest.importorskip(name)
    lines = run_script("serving_overhead", "--requests", "20", "--seconds", "0.2", "--turns", "1")
    assert lines[0].startswith("measured")
    assert lines[1].startswith("autoauto serve ")
