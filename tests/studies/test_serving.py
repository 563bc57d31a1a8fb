"""What a server must stand, with few requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.slow
def test_a_server_stands_clients_kills_and_starts(run_script: Callable[..., list[str]]) -> None:
    for name in ("onnxruntime", "aiohttp", "prometheus_client", "tritonclient.http"):
        pytest.importorskip(name)
    first, _, killed, starts = run_script("serving", "--requests", "200", "--starts", "2")
    assert first == "200 requests of 8 clients: 200 right, 0 wrong, 0 lost"
    assert killed.endswith("; then 10 of 10 right")
    assert starts == "2 starts: 0 processes left, 0 segments of shared memory left"
