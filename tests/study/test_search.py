"""A search in one call: as the command line, verified, joined by workers, with every method, and refused input."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

import autoauto
from autoauto.cli.main import main
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Period
from autoauto.records.layers import LayerGraph
from autoauto.records.target import Origin
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.objectives import Objective
from autoauto.space.space import SearchSpace
from autoauto.space.trial import SearchActivity, Trial
from autoauto.study.analysis.best import summarise_study
from autoauto.study.analysis.verification import RUNNER_UP, WINNER, verifications
from autoauto.study.defaults import default_space
from autoauto.study.execution.executors import InlineExecutor
from autoauto.study.run import SearchProgress, nothing_fits
from autoauto.study.search import flow_of_study, process_executor, search, search_flow, stored
from autoauto.study.store.study import REQUEST, load_study, open_study
from autoauto.targets.clusters import builtin_clusters

SMALL = SearchSpace((1, 2), (0.6, 1.0), (1, 2, 4, 8))
TINY = SearchSpace((1,), (0.6,), (4,))
Chain = Callable[..., LayerGraph]


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def flow(chain: Chain) -> Flow:
    return load_flow(chain("abcd"), "bow-2000")


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/trials.db"


@pytest.fixture
def run_json(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run `autoauto ...` and read the JSON that it prints."""

    def run(*argv: str) -> Any:
        main(argv)
        return json.loads(capsys.readouterr().out)

    return run


def brief(trial: Trial) -> tuple[Knobs, float]:
    return trial.knobs, trial.samples_per_s


def only_study(storage: str) -> optuna.Study:
    [name] = optuna.get_all_study_names(storage)
    return load_study(storage, name)


def test_it_finds_what_the_command_line_finds(run_json: Callable[..., Any]) -> None:
    options = ("--n-ipu", "1,2", "--replicas", "1", "--memory-proportion", "0.6,1.0", "--batch-size", "1,2,4,8")
    printed = run_json("search", "resnet50", *options, "--strategy", "pipeline", "--json")["best"]
    best = search("resnet50", "bow-2000", SMALL)
    assert best.measured is not None
    assert best.estimate is not None
    knobs = (best.knobs.n_ipu, best.knobs.values["memory_proportion"], best.knobs.batch_size)
    assert knobs == (printed["n_ipu"], printed["memory_proportion"], printed["batch_size"])
    assert best.samples_per_s == printed["samples_per_s"]
    assert list(best.measured.partition) == printed["partition"]
    assert best.estimated_samples_per_s == printed["estimated_samples_per_s"]
    assert best.fits
    assert best.timeline is not None
    assert best.timeline.origin is Origin.SIMULATED


def test_trials_are_stored_in_the_given_database_and_nowhere_else(
    chain: Chain, storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other processes write into the machine's meanwhile
    without_storage = search(chain("abcd"), "bow-2000", SMALL)
    assert list(tmp_path.iterdir()) == []
    trials: list[Trial] = []
    results = [search(chain("abcd"), "bow-2000", SMALL, storage=storage, callback=trials.append) for _ in range(2)]
    assert {brief(result) for result in results} == {brief(without_storage)}
    study = only_study(storage)
    assert study.study_name.startswith("chain-bow-2000-throughput-")
    assert [trial.number for trial in study.get_trials()] == [trial.number for trial in trials]  # once, not twice


def test_a_temporary_database_is_deleted_with_its_folder() -> None:
    with stored(None) as url:
        open_study(url, "bow", Objective.THROUGHPUT, {})
        folder = Path(url.removeprefix("sqlite:///")).parent
        assert folder.is_dir()
    assert not folder.exists()


def test_the_best_is_verified(chain: Chain, storage: str) -> None:
    space = SearchSpace((1, 2), (1.0,), (1, 2, 4, 8))
    best = search(chain("abcd"), "bow-2000", space, storage=storage)
    [verification] = verifications(only_study(storage))
    assert verification.winner.knobs == best.knobs
    assert verification.n_repeats == 1  # a cost model
    assert [row.name for row in verification.repeated] == [WINNER, RUNNER_UP]
    assert all(row.speed is not None for row in verification.repeated)


def test_the_throughput_of_what_has_turns_is_their_mean(flow: Flow) -> None:
    factors = iter((1.0, 0.5))  # in the search, then in the turns

    def make_executor() -> InlineExecutor:
        factor = next(factors)

        def evaluate(knobs: Knobs) -> Trial:
            trial = flow.evaluate(knobs)
            return trial.with_values(samples_per_s=factor * trial.samples_per_s)

        return InlineExecutor(evaluate)

    result = search_flow(flow, SMALL, make_executor=make_executor, n_repeats=2)
    assert result.best is not None
    assert result.best.measured is not None
    assert result.summary is not None
    assert result.summary.verification is not None
    assert len(result.summary.verification.repeated) == 2
    for row in result.summary.verification.repeated:
        assert result.trials[row.knobs].samples_per_s == pytest.approx(0.5 * flow.evaluate(row.knobs).samples_per_s)
    assert result.best.samples_per_s == result.trials[result.best.knobs].samples_per_s


def test_a_search_without_turns_is_not_verified(chain: Chain, storage: str) -> None:
    search(chain("abcd"), "bow-2000", TINY, storage=storage, n_repeats=0)
    assert verifications(only_study(storage)) == []


def test_workers_can_join_a_search_of_names(storage: str, tmp_path: Path) -> None:
    cluster = tmp_path / "mine.toml"
    cluster.write_text(builtin_clusters()["bow-2000"].read_text())
    constraints = ("samples_per_s > 1", "n_ipu < 3")
    options: dict[str, Any] = {"planning_proportion": 0.9, "period": "overlap", "constraints": constraints}
    best = search("resnet50", "mine.toml", TINY, storage=storage, **options)
    flow = flow_of_study(only_study(storage), storage)
    assert flow.setting.period is Period.OVERLAP
    assert flow.setting.constraints == (Constraint("samples_per_s > 1"),)  # those over knobs belong to the space
    first = load_flow(
        "resnet50", cluster, "ipu", None, 0.9, "overlap", storage=storage, constraints=flow.setting.constraints
    )
    assert flow.fingerprint() == first.fingerprint()
    assert flow.evaluate(best.knobs).samples_per_s == best.samples_per_s


def test_a_search_of_objects_cannot_be_joined(chain: Chain, storage: str) -> None:
    search(chain("abcd"), "bow-2000", TINY, storage=storage)
    study = only_study(storage)
    assert REQUEST not in study.user_attrs
    with pytest.raises(BadInput, match="does not store its model and cluster, so no worker can join it"):
        flow_of_study(study, storage)


def test_another_model_or_cluster_cannot_join(storage: str) -> None:
    search("resnet50", "bow-2000", TINY, storage=storage, study_name="small")
    study = load_study(storage, "small")
    with pytest.raises(BadInput, match=r"^study 'small' has model 'resnet50', this machine has 'vit-b16'"):
        flow_of_study(study, storage, model="vit-b16")
    with pytest.raises(BadInput, match=r"^study 'small' has cluster 'bow-2000', this machine has 'c600'"):
        flow_of_study(study, storage, cluster="c600")


def test_a_stored_flow_that_cannot_be_read_is_refused(storage: str) -> None:
    study = open_study(
        storage,
        "small",
        Objective.THROUGHPUT,
        {},
        {REQUEST: json.dumps({"problem": {"model": "resnet50"}, "study": {}})},
    )
    with pytest.raises(
        BadInput, match=r"^study 'small': the problem of a search: the top level must have the field target"
    ):
        flow_of_study(study, storage)


def test_a_result_holds_every_cell_and_progress_reaches_the_end(flow: Flow) -> None:
    seen: list[SearchProgress] = []
    result = search_flow(flow, SMALL, method="grid-bisect", progress=seen.append)
    assert len(result.cells) == 4
    assert result.counts.n_configurations == 16
    assert result.best is not None
    assert {progress.activity for progress in seen} == {SearchActivity.MEASURING}
    assert seen[-1].left_s == 0.0


def test_a_result_has_the_summary_of_its_space(flow: Flow, storage: str) -> None:
    first = search_flow(flow, TINY, storage=storage, study_name="one")
    result = search_flow(flow, SMALL, method="exhaustive", storage=storage, study_name="one")
    other = search_flow(flow, SearchSpace((4,), (0.6,), (4,)), storage=storage, study_name="one")
    for now, n_trials, n_outside in ((first, 1, 0), (result, 16, 0), (other, 1, 16)):
        assert now.summary is not None
        assert len(now.summary.trials) == len(now.trials) == n_trials
        assert now.summary.left_out.n_outside == len(now.others) == n_outside
    assert other.summary == summarise_study(load_study(storage, "one"), storage, n_finalists=1)
    assert other.summary is not None
    assert other.summary.space == SearchSpace((4,), (0.6,), (4,))
    assert result.summary is not None
    assert result.summary.winner == result.best
    assert result.summary.verification == verifications(load_study(storage, "one"))[1]


@pytest.mark.parametrize("method", ["guided", "grid-bisect", "exhaustive", "tpe", "random"])
def test_the_callback_gets_every_finished_trial_once_with_every_method(flow: Flow, method: str, storage: str) -> None:
    finished: list[Trial] = []
    options = {"storage": storage, "study_name": "one", "n_measurements": 5, "callback": finished.append}
    result = search_flow(flow, SMALL, method=method, **options)  # type: ignore[arg-type]
    trials = load_study(storage, "one").get_trials()
    assert [trial.number for trial in finished] == [trial.number for trial in trials]
    assert [trial.fits for trial in finished] == [trial.state is TrialState.COMPLETE for trial in trials]
    assert not any(trial.failed for trial in finished)
    assert [trial.value for trial in finished] == [trial.value for trial in trials]
    assert len(finished) == result.counts.n_tried
    for trial in finished:
        assert trial.started is not None
        assert trial.ended is not None
        assert trial.knobs in SMALL
        assert trial.started <= trial.ended
        assert trial.started.tzinfo is trial.ended.tzinfo is UTC


def test_per_device_is_the_cost_of_auto_pipeline(flow: Flow) -> None:
    best = search_flow(flow, SMALL, "per-device").best
    assert best is not None
    assert best.value == best.plan.cost_cycles * best.knobs.n_ipu / best.knobs.batch_size


@pytest.mark.slow
def test_a_default_space_has_phases_where_they_can_run() -> None:
    flow = load_flow("bert-large-128", "bow-2000")
    space = default_space(flow, {"n_ipu": (1,), "memory_proportion": (0.6,), "batch_size": (16,)})
    assert space["strategy"] == (Strategy.PIPELINE, Strategy.PHASED)
    best = search_flow(flow, space).best
    assert best is not None
    assert best.knobs.mode.strategy is Strategy.PHASED
    assert best.timeline is None
    pipelines = default_space(flow, {"n_ipu": (1,), "batch_size": (16,), "strategy": (Strategy.PIPELINE,)})
    result = search_flow(flow, pipelines)
    assert result.best is None
    reason = "no configuration fits; the smallest batch size: every stage must fit"
    assert str(nothing_fits(result)).startswith(reason)
    for model, cluster, cut_at in (("resnet50", "c600", "layers"), ("bert-large-128", "bow-2000", "blocks")):
        other = load_flow(model, cluster, cut_at=cut_at)
        assert other.setting.cut_at != "layers" or other.cluster.streaming_memory is None
        assert default_space(other)["strategy"] == (Strategy.PIPELINE,)


def test_layers_that_share_a_weight_are_the_reason_and_not_that_phases_are_needless() -> None:
    flow = load_flow("gpt2-small", "bow-2000")
    result = search_flow(flow, default_space(flow, {"n_ipu": (4,), "memory_proportion": (0.6,), "batch_size": (1,)}))
    with pytest.raises(Infeasible, match="must stay together, as an embedding and a head that share a table; try"):
        raise nothing_fits(result)


def test_where_nothing_fits_the_error_has_the_reason(chain: Chain) -> None:
    reason = r"no configuration fits; the nearest that was tried is n_ipu .* samples_per_s > 9999999 does not hold"
    with pytest.raises(Infeasible, match=reason):
        search(chain("ab"), "bow-2000", TINY, constraints=("samples_per_s > 9999999",))


def test_where_no_constraint_holds_the_error_has_the_nearest_configuration(flow: Flow) -> None:
    bounded = flow.with_setting(constraints=(Constraint("latency_s <= 1e-9"),))
    result = search_flow(bounded, SMALL)
    nearest = min((trial for trial in result.trials.values() if trial.runs), key=lambda trial: trial.latency_s)
    assert len({trial.latency_s for trial in result.trials.values()}) > 1
    assert str(nothing_fits(result)).endswith(nearest.reason)
    assert f"batch_size {nearest.knobs.batch_size}: latency_s <= 1e-09 does not hold" in str(nothing_fits(result))


def test_an_executor_is_made_for_the_search_and_for_its_verification(flow: Flow) -> None:
    executors: list[InlineExecutor] = []

    def make_executor() -> InlineExecutor:
        executors.append(InlineExecutor(flow.evaluate))
        return executors[-1]

    progress: list[tuple[int, int]] = []
    search_flow(flow, TINY, make_executor=make_executor, verification_progress=lambda *now: progress.append(now))
    assert len(executors) == 2
    assert progress == [(0, 1)]  # nothing else fits


def test_a_changed_space_is_reported(flow: Flow, storage: str) -> None:
    lines: list[str] = []
    for space in (TINY, SMALL):
        search_flow(flow, space, storage=storage, study_name="one", on_space_change=lines.append)
    [line] = lines
    assert "n_ipu was 1, is 1,2; memory_proportion was 0.6, is 0.6,1.0; batch_size was 4, is 1,2,4,8" in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "fastest"}, "objectives are one or more of throughput, .*, got 'fastest'"),
        ({"objective": "throughput,latency"}, "several objectives have no single best configuration"),
        ({"objective": "latency,throughput", "method": "guided"}, "several objectives have no single best"),
        ({"method": "luck"}, "method is one of exhaustive, .*, got 'luck'"),
        ({"space": SearchSpace((8,))}, "n_ipu must be at most 4"),
        ({"n_workers": 0}, "workers are 1 or more, got 0"),
        ({"space": [1, 2]}, "a space is a SearchSpace or values by the names of knobs, got \\[1, 2"),
        ({"space": {"n_ipus": [1]}}, "there is no knob 'n_ipus'; did you mean 'n_ipu'"),
        ({"n_workers": "two"}, "workers are 1 or more, got 'two'"),
        ({"objective": 3}, "objectives are one or more of throughput, .*, got 3"),
        ({"precision": "int8"}, "precision is one of .*fp16.*, got 'int8'"),
        ({"estimator": "guess"}, "estimator is one of .*, got 'guess'"),
        ({"method": "tpe", "n_measurements": 0}, "n_measurements must be a whole number from 1, got 0"),
        ({"noise": -0.1}, "noise is a share, a number from 0 to below 1, got -0.1"),
        ({"noise": "little"}, "noise is a share, .*, got 'little'"),
        ({"constraints": "n_ipus <= 2"}, "did you mean 'n_ipu'"),
        ({"constraints": ["n_ipu > 9"]}, "no configuration of the space .* n_ipu > 9"),
        ({"storage": "nonsense"}, "storage must be a database URL"),
    ],
)
def test_bad_input_is_refused(chain: Chain, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        search(chain("ab"), "bow-2000", **options)


def test_constraints_are_over_knobs_and_over_results(chain: Chain) -> None:
    best = search(chain("abcd"), "bow-2000", SMALL)
    within = search(chain("abcd"), "bow-2000", SMALL, constraints=(f"batch_size < {best.knobs.batch_size}",))
    assert within.knobs.batch_size < best.knobs.batch_size
    quick = search(chain("abcd"), "bow-2000", SMALL, constraints=[f"latency_s < {best.latency_s!r}"])
    assert quick.latency_s < best.latency_s


def test_one_process_measures_on_the_cores_of_a_host() -> None:
    flow = load_flow("resnet50", None, "host")
    with pytest.raises(BadInput, match="disturb each other"):
        process_executor(flow, 2)
    assert process_executor(flow, 1).n_slots == 1


@pytest.mark.slow
def test_several_processes_find_what_one_finds(chain: Chain) -> None:
    """No two configurations of the space tie: of a tie the older trial wins, and processes finish in any order."""
    space = SearchSpace((1, 2), (0.6,), (1, 2, 4, 8))
    finished: list[Trial] = []
    best = search(chain("abcd"), "bow-2000", space, n_workers=2, callback=finished.append)
    alone = search(chain("abcd"), "bow-2000", space)
    assert brief(best) == brief(alone)
    assert len({trial.number for trial in finished}) == len(finished) > 0


def test_the_function_is_public_whatever_was_imported_before() -> None:
    assert autoauto.search is search
