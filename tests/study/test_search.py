"""One call that does what `autoauto search` does."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import autoauto
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.load import load_flow
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.installation import VERSION
from autoauto.records.knobs import DEFAULT_NOISE, Knobs, Objective, SearchSpace, Strategy
from autoauto.records.layers import LayerGraph
from autoauto.records.schedule import Order
from autoauto.records.timeline import Run
from autoauto.records.trial import FinishedTrial, Outcome, Phase
from autoauto.study.run import SearchProgress
from autoauto.study.search import (
    children_of,
    default_n_ipu,
    default_noise,
    default_space,
    default_study_name,
    fingerprint_of,
    outcome_of,
    search,
    search_flow,
)
from autoauto.study.store.study import load_study
from autoauto.targets.ipu.target import IpuTarget

SMALL = SearchSpace((1, 2), (0.6, 1.0), (1, 2, 4, 8))


@pytest.fixture(autouse=True)
def shared_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def flow(chain: Callable[..., LayerGraph]) -> Flow:
    return load_flow(chain("abcd"), "bow-2000")


def test_it_finds_what_the_command_line_finds(door: Any, tmp_path: Path) -> None:
    words = ("--n-ipu", "1,2", "--memory-proportion", "0.6,1.0", "--batch-size", "1,2,4,8", "--json")
    told = door("search", "resnet50", *words)["best"]
    best = search("resnet50", "bow-2000", SMALL)
    assert best.measured is not None
    assert best.estimate is not None
    found = (best.knobs.n_ipu, best.knobs.memory_proportion, best.knobs.batch_size, best.samples_per_s)
    assert found == (told["n_ipu"], told["memory_proportion"], told["batch_size"], told["samples_per_s"])
    assert list(best.measured.partition) == told["partition"]
    assert best.estimated_samples_per_s == told["estimated_samples_per_s"]
    assert best.fits
    assert best.timeline is not None
    assert best.timeline.source == "simulated"


@pytest.fixture
def door(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run `autoauto ...` and read the JSON that it prints."""
    import json

    from autoauto.cli.main import main

    def run(*argv: str) -> Any:
        main(argv)
        return json.loads(capsys.readouterr().out)

    return run


def test_trials_are_kept_where_they_are_asked_to_and_nowhere_else(
    chain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # others write into the machine's at the same time
    forgotten = search(chain("abcd"), "bow-2000", SMALL)
    assert [path.name for path in tmp_path.iterdir()] == []
    storage = f"sqlite:///{tmp_path}/trials.db"
    told: list[FinishedTrial] = []
    kept = [search(chain("abcd"), "bow-2000", SMALL, storage=storage, callback=told.append) for _ in range(2)]
    assert {brief(outcome) for outcome in (*kept, forgotten)} == {brief(forgotten)}
    study = load_study(storage, "chain-bow-2000-throughput-" + study_digest(storage))
    assert [trial.number for trial in study.get_trials()] == [one.number for one in told]  # the second recalled all


def brief(outcome: Outcome) -> tuple[Knobs, float]:
    return outcome.knobs, outcome.samples_per_s


def study_digest(storage: str) -> str:
    import optuna

    [name] = optuna.get_all_study_names(storage)
    return name.rpartition("-")[2]


def test_all_that_was_found_is_there_for_a_flow(flow: Flow) -> None:
    seen: list[SearchProgress] = []
    result = search_flow(flow, SMALL, method="grid-bisect", progress=seen.append)
    assert len(result.cells) == 4
    assert result.counts.n_configurations == 16
    assert result.best is not None
    assert outcome_of(flow, result).knobs == result.best.knobs
    assert {step.phase for step in seen} == {Phase.MEASURING}
    assert seen[-1].left_s == 0.0


@pytest.mark.parametrize("method", ["guided", "grid-bisect", "exhaustive", "tpe", "random"])
def test_every_finished_trial_is_told_once_with_every_method(flow: Flow, method: str, tmp_path: Path) -> None:
    told: list[FinishedTrial] = []
    storage = f"sqlite:///{tmp_path}/trials.db"
    options = {"storage": storage, "study_name": "one", "n_measurements": 5, "callback": told.append}
    result = search_flow(flow, SMALL, method=method, **options)  # type: ignore[arg-type]
    trials = load_study(storage, "one").get_trials()
    assert [one.number for one in told] == [trial.number for trial in trials]
    assert [one.state for one in told] == [trial.state.name for trial in trials]
    assert [one.value for one in told] == [trial.value for trial in trials]
    assert len(told) == result.counts.n_tried
    assert all(one.knobs in SMALL and one.started <= one.ended for one in told)
    assert all(one.started.utcoffset() is not None for one in told)


def test_the_seeds_objective(flow: Flow) -> None:
    best = search_flow(flow, SMALL, "per-ipu").best
    assert best is not None
    assert best.value == best.measured.cost_cycles * best.knobs.n_ipu / best.knobs.batch_size


def test_phases_are_tried_where_no_pipeline_fits() -> None:
    space = SearchSpace((1,), (0.6,), (16,))
    best = search("bert-large-128", "bow-2000", space)
    assert best.knobs.strategy is Strategy.PHASED
    assert best.timeline is None
    flow = load_flow("bert-large-128", "bow-2000")
    result = search_flow(flow, space, or_phased=False)
    assert result.best is None
    with pytest.raises(Infeasible, match="no configuration fits; the smallest batch size: every stage must fit"):
        outcome_of(flow, result)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"objective": "fastest"}, "objectives are one or more of throughput, .*, got 'fastest'"),
        ({"objective": "throughput,latency"}, "several objectives have no one best configuration"),
        ({"objective": "latency,throughput", "method": "guided"}, "several objectives have no one best"),
        ({"method": "luck"}, "method is one of exhaustive, .*, got 'luck'"),
        ({"space": SearchSpace((8,))}, "n_ipu must be at most 4"),
        ({"n_workers": 0}, "workers are 1 or more, got 0"),
        ({"space": {"n_ipu": (1,)}}, "a space is a SearchSpace, got {'n_ipu'"),
        ({"n_workers": "two"}, "workers are 1 or more, got 'two'"),
        ({"objective": 3}, "objectives are one or more of throughput, .*, got 3"),
        ({"precision": "int8"}, "precision is one of .*fp16.*, got 'int8'"),
        ({"estimator": "guess"}, "estimator is one of .*, got 'guess'"),
        ({"method": "tpe", "n_measurements": 0}, "n_measurements must be a whole number from 1, got 0"),
        ({"noise": -0.1}, "noise is a share, a number from 0 to below 1, got -0.1"),
        ({"noise": "little"}, "noise is a share, .*, got 'little'"),
        ({"constraints": "n_ipus <= 2"}, "did you mean n_ipu"),
        ({"constraints": ["n_ipu > 9"]}, "no configuration of the space keeps to n_ipu > 9"),
        ({"storage": "nonsense"}, "storage must be a database URL"),
    ],
)
def test_bad_input_is_told(chain: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        search(chain("ab"), "bow-2000", **options)


def test_constraints_are_over_knobs_and_over_results(chain: Any) -> None:
    best = search(chain("abcd"), "bow-2000", SMALL)
    within = search(chain("abcd"), "bow-2000", SMALL, constraints=(f"batch_size < {best.knobs.batch_size}",))
    assert within.knobs.batch_size < best.knobs.batch_size
    quick = search(chain("abcd"), "bow-2000", SMALL, constraints=[f"latency_s < {best.latency_s!r}"])
    assert quick.latency_s < best.latency_s


def test_one_measurement_at_a_time_on_the_cores_of_a_host() -> None:
    flow = load_flow("resnet50", None, "host")
    with pytest.raises(BadInput, match="disturb each other"):
        children_of(flow, 2)
    assert children_of(flow, 1).n_hands == 1


@pytest.mark.slow
def test_several_processes_find_the_same(chain: Any) -> None:
    """Both memory proportions of the space are equally fast: which is measured first is up to the processes."""
    told: list[FinishedTrial] = []
    best = search(chain("abcd"), "bow-2000", SMALL, n_workers=2, callback=told.append)
    alone = search(chain("abcd"), "bow-2000", SMALL)
    assert brief(best) == (replace(alone.knobs, memory_proportion=best.knobs.memory_proportion), alone.samples_per_s)
    assert len({one.number for one in told}) == len(told) > 0


def test_the_room_is_the_function(chain: Any) -> None:
    best = autoauto.search(chain("ab"), "bow-2000", SMALL, objective=Objective.PER_IPU)
    assert best.fits
    assert autoauto.search.search is search  # type: ignore[attr-defined]  # for a type checker it is the function
    assert inspect.signature(autoauto.search) == inspect.signature(search)


@pytest.mark.parametrize("first", ["", "import autoauto.search.run", "from autoauto.search import run_search"])
def test_it_can_be_called_whatever_was_imported_before(first: str) -> None:
    program = f"{first}\nimport autoauto\nprint(callable(autoauto.search), autoauto.search.run_search.__name__)"
    environment = {**os.environ, "PYTHONPATH": str(Path(autoauto.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "True run_search\n"


class Real(IpuTarget):
    """A target whose devices are there."""

    __slots__ = ()

    def run(self, *_: object) -> Run:
        raise NotImplementedError


def test_the_grid_goes_as_far_as_the_cluster() -> None:
    assert [default_n_ipu(n) for n in (1, 2, 3, 4, 16)] == [(1,), (1, 2), (1, 2), (1, 2, 4), (1, 2, 4)]


def test_real_devices_have_a_smaller_space_and_noise(flow: Flow) -> None:
    assert default_space(flow) == SearchSpace()
    assert default_noise(flow) == 0.0
    real = replace(flow, target=Real())
    assert default_space(real) == SearchSpace((1, 2, 4), (1.0,), (1, 2, 4, 8, 16, 32), replicas=(1, 2, 4))
    assert default_noise(real) == DEFAULT_NOISE


def test_what_changes_a_trial_changes_the_studys_name(flow: Flow) -> None:
    training = SearchSpace(schedule=(Order.GPIPE,), n_micro_batches=(8,))
    fingerprint = fingerprint_of(flow, SearchSpace())
    assert fingerprint["autoauto"] == VERSION
    names = {
        default_study_name(flow, Objective.THROUGHPUT, fingerprint),
        default_study_name(flow, Objective.PER_IPU, fingerprint),
        default_study_name(flow, Objective.THROUGHPUT, fingerprint_of(flow, training)),
        default_study_name(flow, Objective.THROUGHPUT, fingerprint_of(replace(flow, overlap=True), SearchSpace())),
    }
    assert len(names) == 4
    assert all(name.startswith("chain-bow-2000-") for name in names)
