"""Searches that measure on a stand-in for vLLM, by the command line."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autoauto.cli.main import main
from autoauto.records.errors import Infeasible, MeasurementsFailed
from autoauto.study.store.table import trials_dataframe
from tests.launch.engines import StandInEngine
from tests.running import wait_until

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")

pytestmark = pytest.mark.slow

COMMAND = shlex.split(
    "search Qwen/Qwen3-32B --target gpu --cluster h100_sxm-2 --engine vllm --isl 16 --osl 8 --batch-size 4 "
    "--noise 0.1 --study-name s --json"
)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInEngine:
    return StandInEngine(tmp_path, monkeypatch)


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


def searched(storage: str, capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*COMMAND, "--storage", storage, *words]) == code
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_measuring_finds_a_better_one_where_forecasts_bend(
    engine: StandInEngine, storage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In truth single GPUs are much slower than forecast, and groups of several are not."""
    engine.set(step_s=0.06, bend=-1.0)
    modelled = searched(storage, capsys)["best"]
    assert "measured" not in searched(storage, capsys)
    answer = searched(storage, capsys, "--measure", "3")
    rows, best = answer["measured"]["rows"], answer["best"]
    first, answer = rows[0], rows[answer["measured"]["answer"]]
    assert first["tensor_parallel"] == modelled["tensor_parallel"]
    assert answer["measured"]["tokens_per_s"] > 1.3 * first["measured"]["tokens_per_s"]
    assert answer["forecast"]["tokens_per_s"] < first["forecast"]["tokens_per_s"]
    assert (best["origin"], best["tokens_per_s"]) == ("measured", answer["measured"]["tokens_per_s"])
    assert best["estimated_samples_per_s"] == answer["forecast"]["tokens_per_s"]
    assert best["commands"][0]["words"][:2] == ["vllm", "serve"]
    frame = trials_dataframe("s", storage)
    both = frame[frame["tensor_parallel"] == best["tensor_parallel"]]
    assert {"modelled", "measured"} <= set(both["origin"])
    assert searched(storage, capsys)["best"]["tokens_per_s"] == best["tokens_per_s"]  # the answer of the study
    assert engine.running == []


def test_a_search_that_was_killed_goes_on_with_what_it_measured(
    engine: StandInEngine, storage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.set(step_s=0.05)
    words = [*COMMAND, "--storage", storage, "--measure", "2"]
    search = subprocess.Popen(
        [sys.executable, "-m", "autoauto", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert search.stderr is not None
    lines = iter(search.stderr.readline, "")
    assert any("measured" in line for line in lines)
    n_started = len(engine.starts)
    wait_until(lambda: len(engine.starts) > n_started, "the second configuration is started")
    os.kill(search.pid, signal.SIGKILL)
    search.communicate()
    wait_until(lambda: not engine.running, "no engine is left")
    n_started = len(engine.starts)
    rows = searched(storage, capsys, "--measure", "2")["measured"]["rows"]
    assert len(rows) == 2
    assert len(rows[0]["measured"]["turns"]) == 1
    assert len(engine.starts) - n_started == len(rows[1]["commands"])


def test_less_is_tried_where_memory_lacks(
    engine: StandInEngine, storage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.set(step_s=0.02, most=4)
    answer = searched(
        storage, capsys, "--batch-size", "2,4,8,16", "--tensor-parallel", "2", "--n-ipu", "1", "--measure", "1"
    )
    failed, *_ = rows = answer["measured"]["rows"]
    assert (failed["status"], failed["batch_size"]) == ("out of memory", 16)
    assert [row["batch_size"] for row in rows if row["status"] == "ok"] == [4]
    assert "ran out of memory" in answer["measured"]["rules"][0]
    frame = trials_dataframe("s", storage)
    assert frame[frame["status"] == "out of memory"]["state"].unique().tolist() == ["PRUNED"]


def test_a_refused_option_is_not_given_again(
    engine: StandInEngine, storage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.set(step_s=0.02, refuses="--kv-cache-dtype")
    answer = searched(storage, capsys, "--kv-cache-precision", "bf16,fp8", "--batch-size", "4", "--measure", "2")
    rows = answer["measured"]["rows"]
    assert [row["kv_cache_precision"] for row in rows if row["status"] == "ok"] == ["bf16", "bf16"]
    assert [row["kv_cache_precision"] for row in rows].count("fp8") <= 1


def test_bounds_hold_by_what_was_measured(
    engine: StandInEngine, storage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All are ten times slower than forecast."""
    engine.set(step_s=1.0)
    capsys.readouterr()
    words = ["--constraint", "tpot_s <= 0.1", "--osl", "2", "--measure", "1"]
    assert main([*COMMAND, "--storage", storage, *words]) == Infeasible.exit_code
    said = capsys.readouterr()
    assert "none of 1 measured configurations is known to keep the bounds: tpot_s <= 0.1 does not hold" in said.err
    answer = json.loads(said.out)
    assert answer["best"] is None
    assert answer["measured"]["rows"][0]["status"] == "constrained"


def test_where_nothing_comes_up_nothing_is_answered(
    storage: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main([*COMMAND, "--storage", storage, "--measure", "3"]) == MeasurementsFailed.exit_code
    assert "no configuration could be measured: it could not be started: vllm" in capsys.readouterr().err
