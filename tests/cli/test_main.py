"""How every command ends: Ctrl-C, a reader that has seen enough, and wrong arguments."""

import pytest

from autoauto.cli.commands import predict
from autoauto.cli.commands.studies import search
from tests.cli.conftest import RunCli


def test_ctrl_c_is_one_line_which_says_that_a_search_continues(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "open_flow", interrupt)
    monkeypatch.setattr(predict, "open_flow", interrupt)
    code, out, err = run_cli("search", "resnet50")
    hint = "a search continues from its finished trials when it is started again"
    assert (code, out, err) == (130, "", f"autoauto: interrupted; {hint}\n")
    assert run_cli("predict", "resnet50") == (130, "", "autoauto: interrupted\n")


def test_an_operating_system_error_is_one_line(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(predict, "open_flow", full_disk)
    assert run_cli("predict", "resnet50") == (2, "", "autoauto: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("words", [(), ("no-such-command",), ("predict", "--no-such-option")])
def test_wrong_arguments_are_one_line_that_names_the_help(run_cli: RunCli, words: tuple[str, ...]) -> None:
    code, out, err = run_cli(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--help" in err
