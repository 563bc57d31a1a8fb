"""`run_cli` runs a command in an empty folder; `prepare` gives a test what a command leaves in one."""

from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import NamedTuple

import pytest

from autoauto.cli.main import main


class Printed(NamedTuple):
    code: int
    out: str
    err: str


RunCli = Callable[..., Printed]
Prepare = Callable[..., None]


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


@pytest.fixture(scope="session")
def left_by() -> dict[tuple[str, ...], Path]:
    """The folders in which commands ran, by their words."""
    return {}


@pytest.fixture
def prepare(
    run_cli: RunCli, left_by: dict[tuple[str, ...], Path], tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> Prepare:
    """Have in the folder what a command leaves there that is not itself tested; equal commands of tests run once.

    It fits commands that name no path, as they answer the same in every empty folder.
    """

    def prepared(*argv: str) -> None:
        if argv not in left_by:
            folder = tmp_path_factory.mktemp("left")
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                assert run_cli(*argv).code == 0
            left_by[argv] = folder
        copytree(left_by[argv], tmp_path, dirs_exist_ok=True)

    return prepared
