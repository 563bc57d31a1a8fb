"""An engine of another package, from one file of its own, is searched, predicted, exported and checked like ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.decoders import decoder_folder

pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")

PROGRAM = '''
"""Tortoise: as quick as the kernels of another engine, with a host CPU that is slow."""

from autoauto.engines.command import Command, CommandOption, CommandSyntax, Launch, Launcher, Limits, option_words
from autoauto.engines.engine import Engine, EngineMemory, HostCosts, ConstantShare

SYNTAX = CommandSyntax(
    ("tortoise",),
    (
        CommandOption("--listen", int),
        CommandOption("--gpus", int),
        CommandOption("--stages"),
        CommandOption("--slots", int),
        CommandOption("--step", int),
        CommandOption("--length", int),
        CommandOption("--share", float),
    ),
)


def command(launch: Launch, port: int) -> Command:
    words = option_words(
        [
            ("--listen", port),
            ("--gpus", launch.split.tensor_parallel),
            ("--stages", ",".join(map(str, launch.blocks))),
            ("--slots", launch.n_in_flight),
            ("--step", launch.max_batched_tokens),
            ("--length", launch.max_length),
            ("--share", launch.memory_share),
        ]
    )
    return Command(("tortoise", launch.model, *words), {})


def limits(command: Command) -> Limits:
    given = SYNTAX.parse(command.words)
    blocks = tuple(map(int, given["--stages"].split(",")))
    return Limits(
        given["model"],
        blocks if len(blocks) > 1 else (),
        given["--gpus"] * len(blocks),
        given["--slots"],
        given["--step"],
        given["--length"],
        given["--share"],
        port=given["--listen"],
    )


def even_heads(decoder, split, weights):
    return f"heads must be even, got {decoder.n_heads}" if split.tensor_parallel == 4 else None


ENGINE = Engine(
    name="tortoise",
    title="Tortoise",
    kernel_times="vllm",
    mixes=True,
    memory=EngineMemory(ConstantShare(0.5), {1: 11.0}, 1 << 20),
    host=HostCosts(0.1, 0.0, 0.0, 0.0, 0.0),
    rules=(even_heads,),
    launcher=Launcher(
        to="tortoise-shell",
        source="a test",
        image="tortoise:1",
        syntax=SYNTAX,
        command=command,
        limits=limits,
        makes={},
        own_options=("--listen",),
        ready_path="/awake",
    ),
)
'''
COMMANDS = """
import sys
from autoauto.cli.main import main

for line in sys.stdin.read().splitlines():
    code = main(line.split())
    print(f"exit code {code}")
"""
ON_GPUS = "small --target gpu --cluster h100_sxm-4 --engine tortoise --input-tokens 512 --output-tokens 128"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of one module with its entry point, and a decoder."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "tortoise.py").write_text(PROGRAM)
    installed = folder / "tortoise-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: tortoise\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[autoauto.engines]\ntortoise = tortoise:ENGINE\n")
    decoder_folder(folder / "small")
    return folder


def run(folder: Path, *commands: str) -> tuple[list[str], str]:
    """What commands print, one process for all; a text a command."""
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        input="\n".join(commands),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    printed = done.stdout.removesuffix("exit code 0\n").split("exit code 0\n")
    return printed, done.stderr


def test_it_is_searched_predicted_exported_and_checked(folder: Path) -> None:
    shape = "--tensor-parallel 2 --n-ipu 2 --batch-size 8"
    printed, errors = run(
        folder,
        f"search {ON_GPUS} --tensor-parallel 1,2 --batch-size 8,16 --json",
        f"predict {ON_GPUS} {shape} --json",
        f"export {ON_GPUS} {shape} --to tortoise-shell --output shell --check --json",
    )
    assert "Traceback" not in errors
    searched, predicted, exported = map(json.loads, printed)
    assert searched["best"]["engine"] == "tortoise"
    assert searched["best"]["tpot_s"] > 0.1, "a step waits for its host CPU"
    assert predicted["tpot_s"] > 0.1
    checks = {check["what"]: check["passed"] for check in exported["checks"]}
    assert checks.pop("Tortoise serves the model") is None
    assert len(checks) >= 6
    assert set(checks.values()) == {True}
    script = (folder / "shell" / "replica-0.sh").read_text()
    assert "exec tortoise" in script
    assert "--stages 4,2" in script
    assert "path: /awake" in (folder / "shell" / "kubernetes.yaml").read_text()


def test_what_it_does_not_take_is_refused_in_its_words(folder: Path) -> None:
    printed, errors = run(folder, f"predict {ON_GPUS} --tensor-parallel 4 --batch-size 8")
    assert "heads must be even, got 32" in errors
    assert errors.count("\n") == 1
    assert printed == ["exit code 2\n"]
