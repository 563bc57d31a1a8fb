"""Every command explains itself, with an example that it understands."""

import argparse
import shlex
from types import ModuleType

import pytest

from autoauto.cli.main import COMMANDS, build_parser, main


def name(command: ModuleType) -> str:
    return command.__name__.rpartition(".")[2]


def help_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *argv: str) -> str:
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as done:
        main([*argv, "--help"])
    assert done.value.code == 0
    return capsys.readouterr().out


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first_words = {line.split()[0] for line in help_of(capsys, monkeypatch).splitlines() if line.startswith("    ")}
    assert {name(command) for command in COMMANDS} <= first_words


@pytest.mark.parametrize("command", COMMANDS, ids=name)
def test_a_command_shows_an_example_that_parses(
    command: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_of(capsys, monkeypatch, name(command))
    example = next(line for line in text.splitlines() if line.startswith("example: autoauto "))
    arguments, _, _ = example.removeprefix("example: autoauto ").partition(" > ")
    assert arguments.split()[0] == name(command)
    assert build_parser().parse_args(shlex.split(arguments)).run is command.run


@pytest.mark.parametrize("command", COMMANDS, ids=name)
def test_every_option_is_explained(command: ModuleType) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert [action.dest for action in parser._actions if not action.help] == []
