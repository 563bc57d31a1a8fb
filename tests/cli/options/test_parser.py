"""The parser of commands: help in two lengths, and what an unknown word may mean."""

import argparse
import shlex

import pytest

from autoauto.cli.main import build_parser
from autoauto.cli.options.parser import Parser
from autoauto.space.table import KNOBS
from autoauto.targets.registry import TARGETS
from tests.cli.conftest import RunCli


def commands() -> dict[str, Parser]:
    [action] = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(action.choices)


COMMANDS = commands()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("sarch", "there is no command 'sarch'; did you mean 'search'? see autoauto --help"),
        ("xyz", "there is no command 'xyz'; one of search, rank, explain, "),
        ("search --clustr x", "there is no option '--clustr'; did you mean '--cluster'? see autoauto search --help"),
        ("search --clustr=x", "there is no option '--clustr'; did you mean '--cluster'?"),
        ("search --max-lat 1", "there is no option '--max-lat'; did you mean '--max-latency-s'?"),
        ("search --memory 1", "did you mean '--memory-proportion' or '--memory-limit'?"),
        ("--versio", "there is no option '--versio'; did you mean '--version'?"),
        ("search --xyzzy", "there is no option '--xyzzy'; see autoauto search --help"),
        ("search a b", "there is one argument too many, 'b'; see autoauto search --help"),
        ("search --method guidd", "one of exhaustive, grid-bisect, guided, tpe, random, got 'guidd'; did you mean 'g"),
        ("search --schedule gpip", "got 'gpip'; did you mean 'gpipe'?"),
        ("search --constraint n_ipus<=2", "there is no n_ipus; did you mean 'n_ipu'?"),
        ("search resnet51", "got 'resnet51', which is neither; did you mean 'resnet50'?"),
        ("search --cluster bow-200", "got 'bow-200'; did you mean 'bow-2000'?"),
    ],
)
def test_the_nearest_word_is_offered(run_cli: RunCli, words: str, hint: str) -> None:
    code, out, err = run_cli(*words.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert hint in err


def test_the_short_help_has_few_options_and_names_the_long_one() -> None:
    short, whole = (COMMANDS["search"].format_help(show_all) for show_all in (False, True))
    for words in ("--cluster", "--max-latency-s", "--n-ipu", "MODEL", "autoauto search --help-all shows"):
        assert words in short
    assert "--float-operators" not in short
    assert "--float-operators" in whole
    assert len(short.splitlines()) < len(whole.splitlines()) / 2


OF_TRAINING = {"--mode", "--schedule", "--n-micro-batches", "--steps"}
OF_TEXT = {"--engine", "--tensor-parallel", "--expert-parallel", "--input-tokens", "--output-tokens", "--measured"}
OF_HOST = {"--runtime", "--cores-per-device", "--device", "--inputs", "--dask"}


@pytest.mark.parametrize(
    ("words", "shown", "hidden"),
    [
        ("", OF_TRAINING, OF_TEXT | OF_HOST),
        ("--target ipu", OF_TRAINING, OF_TEXT | OF_HOST),
        ("--target gpu", OF_TEXT, OF_TRAINING | OF_HOST | {"--shape"}),
        ("--target=host", OF_HOST | {"--shape"}, OF_TRAINING | OF_TEXT),
    ],
)
def test_the_short_help_has_what_the_target_uses(
    run_cli: RunCli, capsys: pytest.CaptureFixture[str], words: str, shown: set[str], hidden: set[str]
) -> None:
    for argv in (["search", "--help", *words.split()], ["search", *words.split(), "--help"]):
        with pytest.raises(SystemExit):
            run_cli(*argv)
        options = {
            line.split(maxsplit=1)[0].rstrip(",") for line in capsys.readouterr().out.splitlines() if "--" in line
        }
        assert shown <= options
        assert not hidden & options
        assert {"--cluster", "--precision", "--n-ipu", "--batch-size", "--objective"} <= options


def test_targets_that_train_show_it_in_their_help() -> None:
    assert {name: entry.trains and not entry.serves_decoders for name, entry in TARGETS.items()} == {
        "ipu": True,
        "gpu": False,
        "host": False,
    }


def test_a_command_with_few_options_shows_them_all() -> None:
    assert COMMANDS["explain"].format_help() == COMMANDS["explain"].format_help(show_all=True)


def test_help_all_is_printed(run_cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_cli("search", "--help-all")
    assert (ended.value.code, "--float-operators" in capsys.readouterr().out) == (0, True)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_the_long_help_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    parser = COMMANDS[name]
    lines = parser.format_help(show_all=True).splitlines()
    for action in parser._actions:
        for option in action.option_strings[:1]:
            n_lines = sum(line.strip().startswith((f"{option} ", f"{option},")) for line in lines)
            assert n_lines == (action.help != argparse.SUPPRESS), option  # not shown: an earlier spelling


def test_the_long_help_of_a_search_has_the_groups_in_order() -> None:
    text = COMMANDS["search"].format_help(show_all=True)
    titles = [line[:-1] for line in text.splitlines() if line.endswith(":") and not line.startswith((" ", "example"))]
    groups = ["model and cluster", "space, or one configuration of it", "objective and constraints", "measuring"]
    assert titles[:6] == [*groups, "storage", "output"]
    assert titles[-1] == "options"
    assert text.index("options:") < text.index("--help-all")
    space = text[text.index("space, or") : text.index("objective and")]
    assert all((f"{knob.option} " in space) == (knob.name != "precision") for knob in KNOBS)
    assert "--precision " in text[: text.index("space, or")]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_the_help_can_be_copied(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    example = COMMANDS[name].format_help().rpartition("example:")[2].replace("\\\n", " ")
    assert shlex.split(example)[:2] == ["autoauto", name]
    assert len(example.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "option", ["--n-ipu", "--replicas", "--schedule", "--recompute", "--n-micro-batches", "--batch-size", "--storage"]
)
def test_an_option_takes_the_same_in_every_command(option: str) -> None:
    """One value or, for a search, several; `schedule` has orders that no search tries, `measured` what was started."""
    parsers = [parser for name, parser in COMMANDS.items() if name not in {"schedule", "measured"}]
    actions = [action for parser in parsers for action in parser._actions if option in action.option_strings]
    assert len({(type(action), action.nargs, getattr(action.type, "__qualname__", None)) for action in actions}) == 1
    assert len(actions) > 1
