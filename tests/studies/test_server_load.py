"""The load test of the server of searches, on a small size: nothing is lost, doubled or seen by others."""

from __future__ import annotations

import re

import pytest

from tests.studies.conftest import RunScript


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_clients_lose_and_double_nothing_and_every_part_prints_its_figures(run_script: RunScript) -> None:
    options = "--clients 3 --searches 3 --common 2 --kill-s 4 --trials 60 --others 9 --gets 3 --requests 80"
    lines = run_script("server_load", *options.split())
    assert re.match(r"3 clients x 3 searches, 5 distinct, in \d+ s; .*; lost 0, doubled 0, seen by others 0$", lines[0])
    assert [line.partition(":")[0] for line in lines[1:]] == [
        "GET /health",
        "GET /v1/searches/ID",
        "GET /v1/searches/ID/trials?limit=50&first=30",
        "GET /v1/searches",
        "memory of the server over 80 requests, MiB",
        "GET /v1/searches of a user with 5, 9 of others",
        "GET /v1/searches of an administrator, 9 of others",
    ]
