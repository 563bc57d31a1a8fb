"""What every target with a name keeps, from its options to the wording of its numbers."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from autoauto.cli.options.model import add_target
from autoauto.evaluate.flow import Flow
from autoauto.evaluate.open import load_flow, open_problem, read_cluster
from autoauto.records.errors import BadInput
from autoauto.records.hardware import Period
from autoauto.records.plans.timeline import Runner
from autoauto.records.schedule import Order
from autoauto.records.target import Origin, studied_origin
from autoauto.report.tables.plans import stages_table
from autoauto.space.objectives import Objective
from autoauto.space.requests.problem import Planning, Problem
from autoauto.space.space import SearchSpace
from autoauto.study.defaults import baseline_of, default_space
from autoauto.study.search import search_flow
from autoauto.study.store.study import load_study
from autoauto.targets.registry import DEFAULT_TARGET, TARGETS, default_options, target_named
from autoauto.targets.target import NamedTarget, TargetOption
from studies.custom_target import model_of
from tests.decoders import decoder_folder

ENTRIES = pytest.mark.parametrize("entry", TARGETS.values(), ids=TARGETS)
VALUES: dict[type, Any] = {bool: True, int: 1, float: 0.5, str: "Gelu"}


@pytest.fixture(autouse=True, scope="module")
def no_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One for all tests, so that the links of this machine are measured once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "products.onnx"
    onnx.save(model_of(n_layers=3, width=32), path)
    return path


def model_for(entry: NamedTarget, model: Path) -> Path:
    """A model that the target reads."""
    return decoder_folder(model.parent / "decoder") if entry.serves_decoders else model


def opened(model: Path, entry: NamedTarget) -> Flow:
    return load_flow(model_for(entry, model), None, entry.name)


def value_of(option: TargetOption) -> object:
    """A value that is not the default."""
    return next((choice for choice in option.choices if choice != option.default), VALUES[option.kind])


def test_names_are_those_of_the_registry_and_no_two_targets_have_an_option_of_one_name() -> None:
    assert list(TARGETS) == [entry.name for entry in TARGETS.values()]
    assert target_named(DEFAULT_TARGET) is next(iter(TARGETS.values()))
    assert len(default_options()) == sum(len(entry.options) for entry in TARGETS.values())
    assert not set(default_options()) & {
        *Problem.__dataclass_fields__,
        *Planning.__dataclass_fields__,
        "shape",
        "batch_axis",
        "state",
    }


def test_the_registry_loads_nothing_heavy() -> None:
    program = "import sys; from autoauto.targets.registry import TARGETS; list(TARGETS); print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert not {"onnx", "onnxruntime", "optuna", "scipy"} & set(loaded)
    of_targets = {name for name in loaded if any(name.startswith(f"autoauto.targets.{target}.") for target in TARGETS)}
    assert of_targets >= {f"autoauto.targets.{target}.entry" for target in TARGETS}


@ENTRIES
def test_its_options_are_parsed_and_reach_it(entry: NamedTarget) -> None:
    parser = argparse.ArgumentParser()
    add_target(parser)
    assert Problem.of({"model": "m"} | vars(parser.parse_args([]))) == Problem("m")
    for option in entry.options:
        if not option.help:
            continue  # another option of the command line sets it
        value = value_of(option)
        words = [option.flag] if option.kind is bool else [option.flag, str(value)]
        problem = Problem.of({"model": "m"} | vars(parser.parse_args(["--target", entry.name, *words])))
        assert (problem.target, problem.options) == (entry.name, {option.name: value})
        assert entry.read_options(problem.options)[option.name] == value
        assert Problem.read(problem.plain, "a problem") == problem


@ENTRIES
def test_values_that_an_option_cannot_have_are_refused(entry: NamedTarget) -> None:
    assert entry.read_options({}) == {option.name: option.default for option in entry.options}
    for option in entry.options:
        wrong = "no-such" if option.choices or option.kind is not str else 7
        with pytest.raises(BadInput, match=f"{option.flag} must be .*, got {wrong!r}"):
            entry.read_options({option.name: wrong})


@ENTRIES
def test_options_and_clusters_of_other_targets_are_refused_in_one_line(entry: NamedTarget, model: Path) -> None:
    for other in TARGETS.values():
        if other is entry:
            continue
        for option in other.options:
            problem = Problem(str(model), entry.name, options={option.name: value_of(option)})
            with pytest.raises(BadInput, match=f"^--target {entry.name} has no {option.flag}; leave them out, or try"):
                open_problem(problem)
        with pytest.raises(BadInput, match=f"is for '{other.name}'; try --target {other.name}$"):
            load_flow(model, read_cluster(other.default_cluster), entry.name)


@ENTRIES
def test_it_opens_on_its_default_cluster_with_its_default_precision(entry: NamedTarget, model: Path) -> None:
    flow = opened(model, entry)
    assert flow.cluster == read_cluster(entry.default_cluster)
    assert (flow.cluster.target, flow.setting.precision) == (entry.name, entry.default_precision)
    assert flow.target.version
    assert flow.traits.runs_plans == isinstance(flow.target, Runner)
    assert flow.traits.period in entry.periods
    for period in Period:
        if period in entry.periods:
            assert load_flow(model_for(entry, model), None, entry.name, period=period).setting.period is period
        else:
            with pytest.raises(BadInput, match=f"^the period of --target {entry.name} is .*, got {period}; leave it"):
                load_flow(model_for(entry, model), None, entry.name, period=period)


@ENTRIES
def test_a_search_on_it_has_defaults_that_it_allows(entry: NamedTarget, model: Path) -> None:
    flow = opened(model, entry)
    space = default_space(flow)
    space = flow.checked(space)
    session = baseline_of(flow, Objective.THROUGHPUT, space)
    assert (session is not None) == flow.traits.runs_plans
    assert session is None or session in space
    assert 0 <= flow.traits.noise < 1
    assert flow.traits.n_repeats > 0
    if not flow.traits.trains:
        with pytest.raises(BadInput, match=f"the {entry.name} target runs inference"):
            flow.checked(space.with_values(schedule=(Order.POPART,), n_micro_batches=(8,), replicas=(1,), n_ipu=(1,)))


@ENTRIES
@pytest.mark.slow
def test_the_origin_of_its_numbers_is_the_same_from_the_target_to_the_report(
    entry: NamedTarget, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from autoauto.report.tables.table import show

    flow, storage = opened(model, entry), f"sqlite:///{tmp_path}/trials.db"
    if entry.serves_decoders:
        pytest.skip("nothing is profiled or run on GPUs: tests/evaluate/test_generation.py")
    session = flow.traits.sessions[0]
    values: dict[str, Any] = {knob.name: (knob.default,) for knob in session.knobs}
    if session.runtime is not None:
        values["runtime"] = (session.runtime,)
    space = flow.checked(SearchSpace((1,), batch_size=(2,), **values))
    [[knobs]] = space.cells
    profile = flow.profile(flow.options(knobs))
    assert len(profile) == len(flow.graph)
    run = flow.measure(knobs, flow.pipelines.plan_to_measure(knobs))
    assert run.origin is (Origin.MEASURED if flow.traits.runs_plans else Origin.SIMULATED)
    result = search_flow(flow, space, storage=storage, n_repeats=0)
    study = load_study(storage, result.study_name)
    assert studied_origin(study.user_attrs) is flow.traits.origin
    show(stages_table(run.plan, flow.setting.names, studied_origin(study.user_attrs)))
    assert capsys.readouterr().out.splitlines()[0].rstrip() == f"Stages, {flow.traits.origin}"
