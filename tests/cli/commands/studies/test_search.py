import json
from pathlib import Path

import optuna
import pytest

from autoauto.cli.commands.studies.search import typed_command
from autoauto.targets.clusters import builtin_clusters
from tests.cli.conftest import RunCli

SMALL = (
    "search",
    "resnet50",
    "--batch-size",
    "1:8",
    "--memory-proportion",
    "0.6,1.0",
    "--n-ipu",
    "1,2",
    "--replicas",
    "1",
    "--strategy",
    "pipeline",
    "--json",
)


def test_the_best_configuration_is_printed_and_its_trials_are_stored_and_not_measured_again(run_cli: RunCli) -> None:
    result = json.loads(run_cli(*SMALL).out)
    best = result["best"]
    assert result["n_configurations"] == 2 * 2 * 8
    assert 1 <= result["n_measured"] <= result["n_tried"] <= 12
    assert best["partition"][0] == 0
    assert len(best["partition"]) == best["n_ipu"] + 1
    study = optuna.load_study(study_name=result["study_name"], storage=result["storage"])
    assert len(study.trials) == result["n_tried"]
    assert study.best_trial.params == {name: best[name] for name in ("n_ipu", "memory_proportion", "batch_size")}
    assert study.best_value == best["samples_per_s"]
    trials = study.trials_dataframe()
    names = {"params_n_ipu", "params_memory_proportion", "params_batch_size", "user_attrs_partition"}
    assert names | {"system_attrs_stages"} <= set(trials.columns)
    assert json.loads(run_cli(*SMALL).out) == result
    tables = run_cli(*SMALL[:-1]).out
    for words in ("Best configuration", "Stages, modelled", "of 32 configurations", "study resnet50-bow-2000"):
        assert words in tables
    assert len(study.get_trials()) == result["n_tried"]


@pytest.mark.slow
def test_what_fits_no_pipeline_runs_in_phases(run_cli: RunCli) -> None:
    large = ("search", "bert-large-128", "--n-ipu", "1", "--batch-size", "16,32", "--memory-proportion", "0.6")
    result = json.loads(run_cli(*large, "--study-name", "large", "--json").out)
    best = result["best"]
    assert (best["strategy"], best["n_micro_batches"]) == ("phased", 16)
    assert {cell["strategy"] for cell in result["cells"]} == {"phased"}  # by the estimate no pipeline fits
    assert best["cost_cycles"] == sum(phase["cycles"] for phase in best["phases"])
    assert best["naive_cycles"] > 2 * best["cost_cycles"]
    shown = run_cli("report", "large").out
    facts = [line.split() for line in shown.splitlines()]
    assert ["strategy", "phased"] in facts
    assert ["n_micro_batches", "16"] in facts
    assert "Phases, modelled" in shown
    assert "strategy" in run_cli("trials", "large", "--csv").out.splitlines()[0]


def test_a_search_for_training_compares_schedules(run_cli: RunCli) -> None:
    words = ("search", "resnet50", "--mode", "training", "--schedule", "gpipe,1f1b", "--recompute", "off,on")
    bisect = ("--method", "grid-bisect")  # finds the largest batch of every cell
    small = ("--n-ipu", "4", "--batch-size", "8,24", "--memory-proportion", "0.6", "--study-name", "train")
    result = json.loads(run_cli(*words, *bisect, *small, "--json").out)
    largest = {(cell["schedule"], cell["recompute"]): cell["batch_size"] for cell in result["cells"]}
    assert largest["1f1b", False] == 24  # 16 micro-batches in flight are too many there, 4 are not
    assert largest["gpipe", False] != 24
    assert result["best"]["makespan_cycles"] > 16 * result["best"]["cost_cycles"] / 2
    assert "1f1b fits batches of 24, which gpipe" in run_cli("report", "train").out
    refused = run_cli("search", "resnet50", *small)
    assert refused.code == 2
    assert "mode" in refused.err


def test_bad_input_is_one_line_and_makes_no_database(run_cli: RunCli, tmp_path: Path) -> None:
    bow = builtin_clusters()["bow-2000"].read_text()
    (tmp_path / "foreign.toml").write_text(bow.replace('target = "ipu"', 'target = "host"'))
    for more in (
        ("no-such-model",),
        ("--cluster", "no-such-cluster"),
        ("--n-ipu", "8"),
        ("--n-ipu", "0"),
        ("--batch-size", "8:1"),
        ("--memory-proportion", "0"),
        ("--planning-proportion", "2"),
        ("--storage", "nonsense"),
        ("--batch-size", "one"),
        ("--batch-size", "99999999999999"),
        ("--no-such-option",),
        ("--cluster", "foreign.toml"),
    ):
        code, out, err = run_cli("search", *more)
        assert (code, out, err.count("\n")) == (2, "", 1), more
    assert [path.name for path in tmp_path.iterdir()] == ["foreign.toml"]


@pytest.mark.slow
def test_all_methods_find_about_the_best_throughput(run_cli: RunCli) -> None:
    methods = ("exhaustive", "guided", "grid-bisect", "tpe", "random")
    results = {
        method: json.loads(run_cli(*SMALL, "--method", method, "--study-name", method, "--n-measurements", "8").out)
        for method in methods
    }
    best = {method: result["best"]["samples_per_s"] for method, result in results.items()}
    assert results["exhaustive"]["n_tried"] == 32
    assert {results[method]["n_measured"] for method in ("tpe", "random")} <= {8, 9}
    assert best["guided"] >= 0.995 * best["exhaustive"]
    assert all(value <= 1.01 * best["exhaustive"] for value in best.values())
    study = optuna.load_study(study_name="tpe", storage=results["tpe"]["storage"])
    assert study.user_attrs["method"] == "tpe"


def test_ties_within_the_noise_go_to_fewer_devices(run_cli: RunCli) -> None:
    words = ("search", "resnet50", "--batch-size", "4,8", "--memory-proportion", "0.6", "--n-ipu", "1,2,4", "--json")
    strict, lax = (
        json.loads(run_cli(*words, "--replicas", "1", "--noise", noise, "--study-name", f"noise{noise}").out)["best"]
        for noise in ("0", "0.9")
    )
    assert strict["n_ipu"] > lax["n_ipu"] == 1
    assert "n_ipu              1" in run_cli("report", "noise0.9").out
    assert run_cli(*words, "--noise", "1").code == 2


def test_the_stored_command_has_no_password() -> None:
    """Also not one with a quote, which a shell command writes in another way."""
    storage = "postgresql://me:it's-secret@host/trials"
    command = typed_command(["search", "--storage", storage, f"--storage={storage}"], storage)
    assert (
        command
        == "autoauto search --storage 'postgresql://me:***@host/trials' '--storage=postgresql://me:***@host/trials'"
    )


def test_the_last_line_is_the_command_that_explains_the_study(run_cli: RunCli) -> None:
    small = ("search", "resnet50", "--n-ipu", "1", "--batch-size", "1,2", "--memory-proportion", "0.6")
    in_default_storage = run_cli(*small, "--study-name", "of two").out
    assert in_default_storage.splitlines()[-1] == "why the others lost: autoauto explain 'of two'"
    elsewhere = run_cli(*small, "--study-name", "s", "--storage", "sqlite:///x.db").out
    assert elsewhere.splitlines()[-1] == "why the others lost: autoauto explain s --storage sqlite:///x.db"
