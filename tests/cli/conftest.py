"""`run_cli` runs a command in an empty folder."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from autoauto.cli.main import main


class Printed(NamedTuple):
    code: int
    out: str
    err: str


RunCli = Callable[..., Printed]


@pytest.fixture
def run_cli(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> RunCli:
    """Run `autoauto ...` in an empty folder."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)

    def run(*argv: str) -> Printed:
        code = main(argv)
        printed = capsys.readouterr()
        return Printed(code, printed.out, printed.err)

    return run
