"""Configurations on a stand-in for vLLM: what is measured, and why not."""

from pathlib import Path

import pytest

from autoauto.evaluate.engine_runs import EngineRun, EngineRuns
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.launch.faults import EngineFault, FaultKind
from autoauto.launch.launcher import launcher_of
from autoauto.records.errors import BadInput
from autoauto.records.target import Origin
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.targets.gpu.session import GpuSession
from tests.launch.engines import StandInEngine

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")

MODEL = "Qwen/Qwen3-32B"


@pytest.fixture(scope="module")
def flow() -> Flow:
    return load_flow(MODEL, "h100_sxm-8+8", "gpu")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInEngine:
    return StandInEngine(tmp_path, monkeypatch)


def knobs(n_ipu: int = 1, replicas: int = 1, tensor_parallel: int = 2) -> Knobs:
    mode = Generation(input_tokens=16, output_tokens=8)
    return Knobs(n_ipu, 4, replicas=replicas, session=GpuSession("vllm", tensor_parallel), mode=mode)


def runs_on(flow: Flow, way: str = "local", limit_s: float = 60.0) -> EngineRuns:
    return EngineRuns(flow, MODEL, launcher_of(way), limit_s, half_width=0.5)


def test_a_configuration_is_started_as_it_is_exported(flow: Flow) -> None:
    run = runs_on(flow).run_of(knobs(n_ipu=2, replicas=2))
    first, second = run.commands
    assert first.words[:5] == ("vllm", "serve", MODEL, "--host", "0.0.0.0")
    assert {"--tensor-parallel-size", "--max-num-seqs"} < run.options
    assert first.words[first.words.index("--port") + 1] == "{port}"
    assert (first.gpus, second.gpus, run.n_clients) == ((0, 1, 2, 3), (4, 5, 6, 7), 16)
    forecast = run.forecast
    assert forecast.tokens_per_s.low < forecast.tokens_per_s.middle < forecast.tokens_per_s.high
    assert forecast.tpot_s.low < forecast.tpot_s.middle < forecast.tpot_s.high


def test_a_way_starts_engines_on_its_machines_only(flow: Flow) -> None:
    with pytest.raises(BadInput, match="local starts engines on 1 of 2 machines; try --launch ssh:HOST1,HOST2"):
        runs_on(flow).run_of(knobs(replicas=8))
    assert len(runs_on(flow, "ssh:a,b").run_of(knobs(replicas=8)).starts) == 8


@pytest.mark.slow
def test_replicas_share_a_load(flow: Flow, engine: StandInEngine) -> None:
    runs = runs_on(flow)
    run = runs.run_of(knobs(replicas=2))
    measured = runs.measure(run, 0)
    assert measured.n_failed == 0
    assert measured.n_requests >= 32
    assert measured.server is not None
    assert measured.server.running > 4  # more than one of them has
    assert [most for _, most in engine.starts] == [4, 4]
    assert engine.running == []
    trial = runs.trial(run, measured.tokens_per_s, measured.tpot_s.mean, measured.ttft_s.mean, measured.latency_s.mean)
    assert trial.origin is Origin.MEASURED
    assert trial.samples_per_s == measured.tokens_per_s
    assert trial.estimated_samples_per_s == run.modelled.samples_per_s


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "kind", "reason"),
    [
        ({"most": 3}, FaultKind.MEMORY, "ran out of memory: torch.OutOfMemoryError: CUDA out of memory"),
        ({"refuses": "--max-num-seqs"}, FaultKind.REFUSED, "the engine refuses --max-num-seqs"),
        ({"dies_after": 40}, FaultKind.ENDED, "exit code 1: RuntimeError: CUDA error: an illegal memory access"),
        ({"wrong_tokens": 1}, FaultKind.WRONG, "answers have 9 tokens in the mean, asked were 8"),
        ({"names": "another"}, FaultKind.WRONG, "the model must be one of another, got 'Qwen/Qwen3-32B'"),
        ({"late": True}, FaultKind.TIME, "did not answer /health within 3 s"),
    ],
)
def test_a_failure_has_its_reason(
    truth: dict[str, object], kind: FaultKind, reason: str, flow: Flow, engine: StandInEngine
) -> None:
    engine.set(**truth)
    runs = runs_on(flow, limit_s=3.0 if "late" in truth else 60.0)
    run: EngineRun = runs.run_of(knobs())
    with pytest.raises(EngineFault) as raised:
        runs.measure(run, 0)
    assert reason in raised.value.reason
    assert (raised.value.kind, raised.value.option) == (kind, truth.get("refuses", ""))
    assert engine.running == []


def test_an_engine_that_is_not_installed_says_so(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    runs = runs_on(flow)
    with pytest.raises(EngineFault, match="it could not be started: vllm: No such file") as raised:
        runs.measure(runs.run_of(knobs()), 0)
    assert raised.value.kind is FaultKind.MISSING
