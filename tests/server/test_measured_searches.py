"""Searches of a server that measure on engines: a stop ends the measurement that is under way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.launch.engines import StandInEngine
from tests.running import wait_until
from tests.server.conftest import Start

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")

pytestmark = pytest.mark.slow

MEASURED = {
    **{"model": "Qwen/Qwen3-32B", "target": "gpu", "cluster": "h100_sxm-2", "measure": 3, "noise": 0.1},
    "space": {
        "engine": ["vllm"],
        "tensor_parallel": [2],
        "input_tokens": [16],
        "output_tokens": [8],
        "batch_size": [2, 4],
    },
}


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInEngine:
    return StandInEngine(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "truth", [{"late": True}, {"step_s": 1e6}], ids=["while the engine starts", "while it is under load"]
)
def test_a_stop_ends_the_measurement_that_is_under_way(
    engine: StandInEngine, start: Start, sqlite_storage: str, truth: dict[str, Any]
) -> None:
    """Neither would end by itself for hours; what was forecast is the answer."""
    engine.set(**truth)
    server = start(sqlite_storage, "--launch", "local")
    api = server.caller("mary")
    search_id = api("POST", "/v1/searches", MEASURED).body["id"]
    path = f"/v1/searches/{search_id}"
    wait_until(lambda: engine.running, "an engine is started")

    def activity() -> str:
        progress = api("GET", path).body["progress"]
        return str(progress and progress["activity"])

    wait_until(lambda: activity() == "measuring on engines", "the search says that it measures")
    assert api("POST", f"{path}/stop").status == 200
    wait_until(lambda: not engine.running, "the engine has ended")
    wait_until(lambda: api("GET", path).body["answer"], "the best so far is described")
    ended = api("GET", path).body
    assert (ended["state"], ended["answer"]["ended_by"]) == ("stopped", "stop")
    assert ended["best"]["tokens_per_s"] > 0
    assert len(engine.starts) == 1, "nothing further was started"
