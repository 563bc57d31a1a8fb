import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from autoauto.cli.commands.search import typed_command
from autoauto.targets.clusters import builtin_clusters

Door = Callable[..., Any]
SMALL = ("search", "resnet50", "--batch-size", "1:8", "--memory-proportion", "0.6,1.0", "--n-ipu", "1,2", "--json")


def test_the_best_is_found_and_kept(door: Door) -> None:
    found = json.loads(door(*SMALL).out)
    best = found["best"]
    assert found["n_configurations"] == 2 * 2 * 8
    assert 1 <= found["n_measured"] <= found["n_tried"] <= 12
    assert best["partition"][0] == 0
    assert len(best["partition"]) == best["n_ipu"] + 1
    study = optuna.load_study(study_name=found["study_name"], storage=found["storage"])
    assert len(study.trials) == found["n_tried"]
    assert study.best_trial.params == {name: best[name] for name in ("n_ipu", "memory_proportion", "batch_size")}
    assert study.best_value == best["samples_per_s"]
    trials = study.trials_dataframe()
    assert {"params_n_ipu", "params_memory_proportion", "params_batch_size", "user_attrs_stages"} <= set(trials.columns)


def test_a_second_search_measures_nothing_again(door: Door) -> None:
    first, second = json.loads(door(*SMALL).out), json.loads(door(*SMALL).out)
    assert second == first
    study = optuna.load_study(study_name=first["study_name"], storage=first["storage"])
    assert len(study.trials) == first["n_tried"]


def test_another_precision_is_another_study(door: Door) -> None:
    names = {json.loads(door(*SMALL, "--precision", p).out)["study_name"] for p in ("fp16", "fp32")}
    assert len(names) == 2


def test_per_ipu_prefers_fewer_devices_at_equal_speed(door: Door) -> None:
    throughput = json.loads(door(*SMALL).out)["best"]
    per_ipu = json.loads(door(*SMALL, "--objective", "per-ipu").out)["best"]
    assert per_ipu["n_ipu"] <= throughput["n_ipu"]
    assert per_ipu["value"] == per_ipu["cost_cycles"] * per_ipu["n_ipu"] / per_ipu["batch_size"]


def test_people_get_the_best_its_stages_and_what_was_measured(door: Door) -> None:
    out = door(*SMALL[:-1]).out
    for words in ("Best configuration", "Stages, measured", "of 32 configurations", "study resnet50-bow-2000"):
        assert words in out


def test_nothing_fits(door: Door) -> None:
    large = ("search", "bert-large-128", "--n-ipu", "1", "--batch-size", "64,128", "--memory-proportion", "0.6")
    code, out, err = door(*large, "--strategy", "pipeline", "--json")
    assert code == 3
    assert json.loads(out)["best"] is None
    assert "no configuration fits" in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_what_fits_no_pipeline_runs_in_phases(door: Door) -> None:
    large = ("search", "bert-large-128", "--n-ipu", "1", "--batch-size", "16,32", "--memory-proportion", "0.6")
    told = json.loads(door(*large, "--study-name", "large", "--json").out)
    best = told["best"]
    assert (best["strategy"], best["n_micro_batches"]) == ("phased", 16)
    assert [cell["strategy"] for cell in told["cells"]] == ["pipeline", "phased"]
    assert best["cost_cycles"] == sum(phase["cycles"] for phase in best["phases"])
    assert best["naive_cycles"] > 2 * best["cost_cycles"]
    shown = door("report", "large").out
    assert "phased, 16 steps" in shown
    assert "Phases, measured" in shown
    assert "strategy" in door("trials", "large", "--csv").out.splitlines()[0]


def test_training_searches_schedules(door: Door) -> None:
    words = ("search", "resnet50", "--mode", "training", "--schedule", "gpipe,1f1b", "--recompute", "off,on")
    bisect = ("--method", "grid-bisect")  # tells the largest batch of every cell
    small = ("--n-ipu", "4", "--batch-size", "8,24", "--memory-proportion", "0.6", "--study-name", "train")
    told = json.loads(door(*words, *bisect, *small, "--json").out)
    largest = {(cell["schedule"], cell["recompute"]): cell["batch_size"] for cell in told["cells"]}
    assert largest["1f1b", False] == 24  # 16 micro-batches in flight are too many there, 4 are not
    assert largest["gpipe", False] != 24
    assert told["best"]["makespan_cycles"] > 16 * told["best"]["cost_cycles"] / 2
    assert "1f1b fits batches of 24, which gpipe" in door("report", "train").out
    refused = door("search", "resnet50", *small)
    assert refused.code == 2
    assert "mode" in refused.err


def test_bad_input_is_one_line_and_makes_no_database(door: Door, tmp_path: Path) -> None:
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
        code, out, err = door("search", *more)
        assert (code, out, err.count("\n")) == (2, "", 1), more
    assert [path.name for path in tmp_path.iterdir()] == ["foreign.toml"]


@pytest.mark.slow
def test_methods_find_alike(door: Door) -> None:
    found = {}
    for method in ("exhaustive", "guided", "grid-bisect", "tpe", "random"):
        told = json.loads(door(*SMALL, "--method", method, "--study-name", method, "--n-measurements", "8").out)
        found[method] = told
    best = {method: told["best"]["samples_per_s"] for method, told in found.items()}
    assert found["exhaustive"]["n_tried"] == 32
    assert found["tpe"]["n_measured"] == found["random"]["n_measured"] == 8
    assert best["guided"] >= 0.995 * best["exhaustive"]
    assert all(value <= 1.01 * best["exhaustive"] for value in best.values())
    study = optuna.load_study(study_name="tpe", storage=found["tpe"]["storage"])
    assert study.user_attrs["method"] == "tpe"


def test_a_dry_run_tells_and_makes_nothing(door: Door, tmp_path: Path) -> None:
    out = door(*SMALL[:-1], "--dry-run").out
    assert "Cells, best first, estimated" in out
    assert "of 32 configurations" in out
    assert "nothing was measured" in out
    told = json.loads(door(*SMALL, "--dry-run").out)
    assert len(told["cells"]) == 4
    assert sum(cell["n_tries"] for cell in told["cells"]) == told["n_tried"]
    assert list(tmp_path.iterdir()) == []


def test_ties_within_the_noise_go_to_fewer_devices(door: Door) -> None:
    words = ("search", "resnet50", "--batch-size", "4,8", "--memory-proportion", "0.6", "--n-ipu", "1,2,4", "--json")
    strict, lax = (
        json.loads(door(*words, "--noise", noise, "--study-name", f"noise{noise}").out)["best"]
        for noise in ("0", "0.9")
    )
    assert strict["n_ipu"] > lax["n_ipu"] == 1
    assert "n_ipu              1" in door("report", "noise0.9").out
    assert door(*words, "--noise", "1").code == 2


def test_ctrl_c_speaks_of_a_search_where_there_is_one(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("autoauto.cli.main.commands.search.open_flow", interrupt)
    monkeypatch.setattr("autoauto.cli.main.commands.predict.open_flow", interrupt)
    errs = [door(command, "resnet50").err for command in ("search", "predict")]
    assert errs[0] == ("autoauto: interrupted; a search goes on from its finished trials when it is started again\n")
    assert errs[1] == "autoauto: interrupted\n"


def test_no_password_is_kept_or_printed() -> None:
    """A quote in it is written in another way on a command line."""
    storage = "postgresql://me:it's-secret@host/trials"
    command = typed_command(["search", "--storage", storage, f"--storage={storage}"], storage)
    assert (
        command
        == "autoauto search --storage 'postgresql://me:***@host/trials' '--storage=postgresql://me:***@host/trials'"
    )


def test_where_to_read_on_is_told(door: Door) -> None:
    small = ("search", "resnet50", "--n-ipu", "1", "--batch-size", "1,2", "--memory-proportion", "0.6")
    first = door(*small, "--study-name", "of two").out
    assert first.splitlines()[-1] == "why, cell by cell: autoauto explain 'of two'"
    other = door(*small, "--study-name", "s", "--storage", "sqlite:///x.db").out
    assert other.splitlines()[-1] == "why, cell by cell: autoauto explain s --storage sqlite:///x.db"


def test_a_better_one_outside_the_space_is_told(door: Door) -> None:
    small = ("search", "resnet50", "--n-ipu", "1", "--memory-proportion", "0.6", "--study-name", "s")
    assert "outside this space" not in door(*small, "--batch-size", "1:8").out
    assert "the study knows a better one outside this space" in door(*small, "--batch-size", "1:4").out
