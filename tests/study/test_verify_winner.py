"""The best of a search measured again: what is measured, which configuration wins, and how often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import optuna
import pytest

from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.records.layers import LayerGraph
from autoauto.records.plans.timeline import Run
from autoauto.records.target import RUNS_PLANS
from autoauto.space.knobs import Knobs
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.trial import Trial
from autoauto.study.analysis.best import summarise_study
from autoauto.study.analysis.comparisons import asks_auto_pipeline
from autoauto.study.analysis.verification import ONE_SESSION, RUNNER_UP, WINNER, verifications
from autoauto.study.execution.executors import InlineExecutor
from autoauto.study.run import SearchResult, run_search
from autoauto.study.store.study import note_space, open_study
from autoauto.study.verify_winner import (
    n_verification_measurements,
    verify_winner,
    with_auto_pipeline,
)
from autoauto.targets.ipu.target import IpuTarget

SPACE = SearchSpace((1, 2), (1.0,), (1, 2, 4, 8))


@pytest.fixture
def flow(chain: Callable[..., LayerGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flow:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    return load_flow(chain("abcd"), "bow-2000")


@pytest.fixture
def study(storage: str) -> optuna.Study:
    return open_study(storage, "bow", Objective.THROUGHPUT, {})


@pytest.fixture
def result(flow: Flow, study: optuna.Study) -> SearchResult:
    result = run_search(SPACE, flow.evaluate, study, Objective.THROUGHPUT)
    assert result.best is not None
    return result


@dataclass
class Measurer:
    """Measures with a flow, some configurations with a factor on their throughput; records the configurations."""

    flow: Flow
    factors: dict[Knobs, float] = field(default_factory=dict)
    calls: list[Knobs] = field(default_factory=list)

    def __call__(self, knobs: Knobs) -> Trial:
        self.calls.append(knobs)
        trial = self.flow.evaluate(knobs)
        return trial.with_values(samples_per_s=trial.samples_per_s * self.factors.get(knobs, 1.0))

    def executor(self) -> InlineExecutor:
        return InlineExecutor(self)


def test_a_cost_model_measures_nothing_again(flow: Flow, study: optuna.Study, result: SearchResult) -> None:
    measurer = Measurer(flow)
    assert verify_winner(flow, study, result, Objective.THROUGHPUT, 1, measurer.executor) == result
    assert n_verification_measurements(flow, 1) == len(measurer.calls) == 0
    [verification] = verifications(study)
    assert [row.name for row in verification.repeated] == [WINNER, RUNNER_UP]
    assert all(row.speed is not None and row.speed.error is None for row in verification.repeated)
    assert verification.auto_pipeline is None


def test_what_auto_pipeline_would_choose_is_found_when_a_report_asks_and_stored(
    flow: Flow, study: optuna.Study, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = run_search(SPACE.with_values(batch_size=(1, 2)), flow.evaluate, study, Objective.THROUGHPUT)
    note_space(study, SPACE)
    verify_winner(flow, study, small, Objective.THROUGHPUT, 1, Measurer(flow).executor)
    summary = summarise_study(study, storage)
    assert asks_auto_pipeline(summary)
    asked = with_auto_pipeline(flow, study, summary)
    [verification] = verifications(study)
    assert asked.verification == verification
    largest = [max(filter(flow.fits, cell), key=lambda knobs: knobs.batch_size) for cell in SPACE.cells]
    best = max(map(flow.forecast, largest), key=lambda trial: trial.samples_per_s)
    assert verification.auto_pipeline is not None
    assert verification.auto_pipeline[:2] == (best.knobs, best.samples_per_s)
    monkeypatch.setattr(Flow, "forecast", None)
    again = summarise_study(study, storage)
    assert not asks_auto_pipeline(again)
    assert with_auto_pipeline(flow, study, again) == again


def test_with_several_turns_all_are_measured(flow: Flow, study: optuna.Study, result: SearchResult) -> None:
    measurer, progress = Measurer(flow), list[tuple[int, int]]()
    verify_winner(flow, study, result, Objective.THROUGHPUT, 2, measurer.executor, lambda *now: progress.append(now))
    assert len(measurer.calls) == n_verification_measurements(flow, 2) == 4
    assert {measurer.calls.count(knobs) for knobs in measurer.calls} == {2}
    assert progress == [(n_done, 4) for n_done in range(4)]
    [verification] = verifications(study)
    assert all(row.speed is not None and row.speed.error == 0.0 for row in verification.repeated)


def test_a_runner_up_that_is_better_in_the_turns_becomes_the_best(
    flow: Flow, study: optuna.Study, result: SearchResult
) -> None:
    assert result.best is not None
    measurer = Measurer(flow, {result.best.knobs: 0.1})
    after = verify_winner(flow, study, result, Objective.THROUGHPUT, 2, measurer.executor)
    [verification] = verifications(study)
    assert after.best is not None
    assert after.best.knobs == verification.repeated[1].knobs != result.best.knobs
    assert replace(after, best=result.best) == result


def test_nothing_is_measured_again_where_all_others_are_slower_by_their_intervals(
    flow: Flow, study: optuna.Study, result: SearchResult
) -> None:
    assert result.best is not None
    real, measurer, best = flow.with_setting(target=RealTarget()), Measurer(flow), result.best.knobs
    trials = {
        knobs: trial.with_values(**_around(trial.samples_per_s * (1.0 if knobs == best else 0.5)))
        for knobs, trial in result.trials.items()
    }
    sure = replace(result, trials=trials, best=result.best.with_values(**_around(result.best.samples_per_s)))
    assert verify_winner(real, study, sure, Objective.THROUGHPUT, 3, measurer.executor) == sure
    assert (measurer.calls, verifications(study)) == ([], [])


def _around(samples_per_s: float) -> dict[str, float]:
    return {"low_samples_per_s": 0.97 * samples_per_s, "high_samples_per_s": 1.03 * samples_per_s}


def test_nothing_is_measured_without_turns_or_without_a_best(
    flow: Flow, study: optuna.Study, result: SearchResult
) -> None:
    measurer = Measurer(flow)
    assert verify_winner(flow, study, result, Objective.THROUGHPUT, 0, measurer.executor) == result
    several = replace(result, best=None)
    both = (Objective.THROUGHPUT, Objective.LATENCY)
    assert verify_winner(flow, study, several, both, 1, measurer.executor) == several
    assert (measurer.calls, verifications(study)) == ([], [])


class RealTarget(IpuTarget):
    """A target with real devices, none of which a test uses."""

    __slots__ = ()
    traits = RUNS_PLANS

    def run(self, *_: object) -> Run:
        raise AssertionError("no test runs it")


def test_real_devices_measure_a_session_too_in_every_turn(
    flow: Flow, study: optuna.Study, result: SearchResult
) -> None:
    real, measurer = flow.with_setting(target=RealTarget()), Measurer(flow)
    narrower = replace(result, space=SPACE.with_values(batch_size=(1, 2, 4)))  # the session is not the runner-up
    verify_winner(real, study, narrower, Objective.THROUGHPUT, 1, measurer.executor)
    [verification] = verifications(study)
    assert [row.name for row in verification.repeated] == [WINNER, RUNNER_UP, ONE_SESSION]
    assert measurer.calls == [row.knobs for row in verification.repeated]
    assert len(measurer.calls) == 3
    assert n_verification_measurements(real, 1) == 4  # a third has turns where it may be as good
