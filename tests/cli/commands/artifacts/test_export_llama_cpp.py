"""`export` of GGUF files: the engine comes up with what the scripts say."""

import json
import shlex
from pathlib import Path

import pytest

from autoauto.targets.host.detect import usable_cores
from tests.cli.conftest import RunCli
from tests.gguf_models import write_model


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_servers_of_a_configuration_come_up_and_answer(tmp_path: Path, run_cli: RunCli) -> None:
    pytest.importorskip("xllamacpp", reason="extra llamacpp is not installed")
    write_model(tmp_path / "tiny.gguf")
    words = ["--target", "host", "--runtime", "llamacpp", "--input-tokens", "16", "--output-tokens", "8"]
    study = ["--storage", "sqlite:///s.db", "--study-name", "tiny"]
    searched = run_cli("search", "tiny.gguf", *words, *study, "--clients", "2", "--batch-size", "2", "--json")
    best = json.loads(searched.out)["best"]
    printed = run_cli("export", "tiny", *study[:2], "--to", "llama-cpp", "--output", "art", "--check")
    assert printed.code == 0, printed
    assert "passed: llama.cpp comes up with every option and answers a request: 8 tokens" in printed.out
    in_script = shlex.split((tmp_path / "art" / "server-0.sh").read_text(encoding="utf-8"))
    started = best.get("commands", [best["command"]])[0]
    assert " ".join(started) in " ".join(in_script)
    assert "measured" in (tmp_path / "art" / "README.md").read_text(encoding="utf-8")
    refused = run_cli("export", "tiny", *study[:2], "--to", "vllm", "--output", "other")
    assert (refused.code, refused.err.count("\n")) == (2, 1)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(usable_cores() < 2, reason="two servers need two cores")
def test_servers_side_by_side_have_cores_and_ports_of_their_own(tmp_path: Path, run_cli: RunCli) -> None:
    pytest.importorskip("xllamacpp", reason="extra llamacpp is not installed")
    write_model(tmp_path / "tiny.gguf")
    words = ["--target", "host", "--runtime", "llamacpp", "--input-tokens", "16", "--output-tokens", "8"]
    words += ["--replicas", "2", "--batch-size", "4", "--clients", "4", "--to", "llama-cpp", "--output", "art"]
    printed = run_cli("export", "tiny.gguf", *words, "--check")
    assert printed.code == 0, printed
    assert "art: README.md, compose.yaml, nginx.conf, server-0.sh, server-1.sh" in printed.out
    assert printed.out.count("FAILED") == 0
    assert "estimated" in (tmp_path / "art" / "README.md").read_text(encoding="utf-8")
