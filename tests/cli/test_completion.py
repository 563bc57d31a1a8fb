"""`autoauto completion`: what bash completes with its script, and what is said without the extra."""

import subprocess
import sys

import pytest

from tests.cli.conftest import RunCli


def completed(script: str, *words: str) -> set[str]:
    """What bash offers for the last word."""
    typed = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _shtab_autoauto; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    shell = ["bash", "--norc", "-c", f"{script}\n{ask}"]
    return set(subprocess.run(shell, capture_output=True, text=True, check=True).stdout.split())


def test_bash_completes_commands_options_models_and_choices(run_cli: RunCli) -> None:
    pytest.importorskip("shtab")
    script = run_cli("completion", "bash").out
    assert completed(script, "autoauto", "sea") == {"search"}
    assert completed(script, "autoauto", "search", "--clu") == {"--cluster"}
    assert completed(script, "autoauto", "search", "resn") == {"resnet50", "resnet50-train"}
    assert completed(script, "autoauto", "search", "--cluster", "bow-2") == {"bow-2000"}
    assert completed(script, "autoauto", "search", "--method", "gu") == {"guided"}
    assert completed(script, "autoauto", "schedule", "--or") == set()


def test_zsh_has_a_script_too(run_cli: RunCli) -> None:
    pytest.importorskip("shtab")
    out = run_cli("completion", "zsh").out
    assert out.startswith("#compdef autoauto")
    assert "_autoauto_model() { _alternative 'model:model:(" in out


def test_without_the_extra_it_is_named(run_cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    code, out, err = run_cli("completion", "bash")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "shtab" in err
