"""Every command explains itself, with an example that it understands."""

import argparse
import shlex

import pytest

from autoauto.cli.main import COMMANDS, GROUPS, build_parser, main, module_of

MAX_SUMMARY = 60  # characters of a command's line: it fits a terminal of 80 columns


def help_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *argv: str) -> str:
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit) as done:
        main([*argv, "--help"])
    assert done.value.code == 0
    return capsys.readouterr().out


def test_help_lists_every_command_in_its_group_with_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_of(capsys, monkeypatch)
    for title, commands in GROUPS.items():
        section = text.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        lines = dict(line.split(maxsplit=1) for line in section.splitlines())
        assert list(lines) == list(commands)
        assert max(map(len, lines.values())) <= MAX_SUMMARY


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_shows_an_example_that_parses(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_of(capsys, monkeypatch, name)
    example = next(line for line in text.splitlines() if line.startswith("example: autoauto "))
    arguments, _, _ = example.removeprefix("example: autoauto ").partition(" > ")
    assert arguments.split()[0] == name
    assert build_parser().parse_args(shlex.split(arguments)).run is module_of(name).run


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    parser = argparse.ArgumentParser()
    module_of(name).add_arguments(parser)
    assert [action.dest for action in parser._actions if not action.help] == []
