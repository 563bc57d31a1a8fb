"""The study that options name."""

from pathlib import Path

import pytest

from tests.cli.conftest import Prepare, RunCli
from tests.drawn import daily

COMMANDS = ("report", "explain", "trials", "dashboard")


@pytest.mark.parametrize("command", daily(COMMANDS, 2))
def test_an_unknown_study_is_one_line(run_cli: RunCli, prepare: Prepare, command: str) -> None:
    prepare("search", "resnet50", "--n-ipu", "1", "--batch-size", "1", "--study-name", "small")
    code, out, err = run_cli(command, "nope")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "there is no study 'nope' in sqlite:///studies/autoauto.db; `autoauto studies` lists what there is" in err


@pytest.mark.parametrize("command", COMMANDS)
def test_reading_makes_no_database(run_cli: RunCli, tmp_path: Path, command: str) -> None:
    code, out, err = run_cli(command, "nope")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert list(tmp_path.iterdir()) == []
