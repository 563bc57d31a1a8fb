import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Prepare, RunCli
from tests.drawn import daily


def test_report_and_page_show_the_best_configuration_of_the_search(run_cli: RunCli) -> None:
    result = json.loads(run_cli("search", "resnet50", "--n-ipu", "1,2", "--batch-size", "1:4", "--json").out)
    assert json.loads(run_cli("report", result["study_name"], "--json").out)["best"] == result["best"]
    out = run_cli("report", result["study_name"], "--html", "page.html").out
    assert "Best configuration" in out
    assert "Trials by throughput" in out
    page = Path("page.html").read_text(encoding="utf-8")
    assert f"{result['best']['samples_per_s']:,.1f}" in page
    assert 'id="timeline"' in page
    assert result["study_name"] in page


def test_search_report_page_and_explanation_exit_with_3_where_nothing_fits(run_cli: RunCli) -> None:
    search = ("search", "bert-large-128", "--n-ipu", "1", "--batch-size", "128", "--strategy", "pipeline")
    code, out, err = run_cli(*search, "--study-name", "too-large", "--json")
    assert (code, json.loads(out)["best"], err.count("\n")) == (3, None, 1)
    assert "no configuration fits" in err
    code, out, err = run_cli("report", "too-large")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert run_cli("report", "too-large", "--html", "page.html").code == 3
    assert "Nothing fits" in Path("page.html").read_text(encoding="utf-8")
    code, out, err = run_cli("explain", "too-large")
    assert (code, err.count("\n")) == (3, 1)
    assert "batch 128 does not fit: layers" in " ".join(out.split())
    assert "[0, 635) need" in out
    assert "Why this one" not in out
    code, out, _ = run_cli("explain", "too-large", "--json")
    assert (code, json.loads(out)["best"]) == (3, None)


def test_a_page_of_phases(run_cli: RunCli) -> None:
    search = ("search", "bert-large-128", "--n-ipu", "1", "--batch-size", "16", "--memory-proportion", "0.6")
    assert run_cli(*search, "--strategy", "phased", "--study-name", "phases").code == 0
    assert run_cli("report", "phases", "--html", "page.html").code == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert "autoauto phased" in page.replace("</span> <span>", " ")
    assert "of all phases" in page.replace("\xa0", " ")
    assert 'id="timeline"' not in page


def test_a_file_that_cannot_be_written_is_one_line(run_cli: RunCli, prepare: Prepare) -> None:
    prepare("search", "resnet50", "--n-ipu", "1", "--batch-size", "1", "--study-name", "small")
    code, out, err = run_cli("report", "small", "--html", "missing/page.html")
    assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("objectives", daily(["throughput,latency", "throughput"]))
def test_a_study_whose_trials_are_gone_has_no_page(objectives: str, run_cli: RunCli, prepare: Prepare) -> None:
    search = ("search", "resnet50", "--n-ipu", "1", "--batch-size", "1", "--study-name", "bare")
    prepare(*search, "--objective", objectives)
    with closing(sqlite3.connect("studies/autoauto.db")) as database, database:
        database.execute("DELETE FROM trials")
    for command in (("report", "bare", "--html", "page.html"), ("dashboard", "bare")):
        code, out, err = run_cli(*command)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "a page needs a finished trial, study 'bare' has none" in err
    assert not Path("page.html").exists()


@pytest.mark.slow
def test_a_browser_shows_a_real_study(run_cli: RunCli, browser: Any, tmp_path: Path) -> None:
    train = ("search", "bert-base-128", "--mode", "training", "--schedule", "popart,1f1b", "--n-ipu", "4")
    run_cli(*train, "--memory-proportion", "0.6", "--batch-size", "4:16", "--study-name", "train")
    run_cli("report", "train", "--html", "page.html")
    page = (tmp_path / "page.html").as_uri()
    for scheme in ("light", "dark"):
        browser.open(page, 1280, scheme)
        assert browser.ask("document.querySelectorAll('#timeline .do-backward rect').length") == 4 * 16
        assert browser.ask("document.querySelectorAll('#cells tbody tr').length") == 2
        assert (browser.requests, browser.errors) == ([page], [])


@pytest.mark.parametrize(
    ("change", "commands"),
    daily(
        [
            ("UPDATE study_user_attributes SET value_json = '3' WHERE key = 'space'", ("report", "explain")),
            ("UPDATE study_user_attributes SET value_json = '\"{\"' WHERE key = 'space'", ("report", "explain")),
            ("DELETE FROM study_user_attributes WHERE key = 'target'", ("report", "explain", "trials")),
            ("UPDATE trial_system_attributes SET value_json = '[1]' WHERE key = 'stages'", ("report", "explain")),
        ],
        2,
        several=True,
    ),
)
def test_damaged_rows_are_one_line(
    run_cli: RunCli, prepare: Prepare, tmp_path: Path, change: str, commands: tuple[str, ...]
) -> None:
    small = ("resnet50", "--n-ipu", "1", "--memory-proportion", "0.6", "--batch-size", "1,2", "--study-name", "s")
    prepare("search", *small)
    with closing(sqlite3.connect(tmp_path / "studies/autoauto.db")) as database, database:
        database.execute(change)
    for command in commands:
        code, _, err = run_cli(command, *(small if command == "search" else ("s",)))
        assert (code, err.count("\n")) == (2, 1), command
        assert "--study-name" in err


@pytest.mark.parametrize(
    ("change", "expected_code"),
    daily(
        [
            ("UPDATE trial_user_attributes SET value_json = 'x'", 3),
            ("DELETE FROM trial_user_attributes", 3),
            ("DELETE FROM trial_params", 3),
            ("DELETE FROM trial_values", 3),
        ],
        2,
        several=True,
    ),
)
def test_trials_whose_rows_were_edited_do_not_count(
    run_cli: RunCli, prepare: Prepare, tmp_path: Path, change: str, expected_code: int
) -> None:
    small = ("resnet50", "--n-ipu", "1", "--memory-proportion", "0.6", "--batch-size", "1,2", "--study-name", "s")
    prepare("search", *small)
    with closing(sqlite3.connect(tmp_path / "studies/autoauto.db")) as database, database:
        database.execute(change)
    for command in ("report", "explain"):
        code, out, err = run_cli(command, "s")
        assert (code, err.count("\n")) == (3, 1), command
    assert "1 trial is left out: of another program, or edited" in out
    code, _, err = run_cli("search", *small)
    assert code == expected_code
    assert "another --study-name" in err
