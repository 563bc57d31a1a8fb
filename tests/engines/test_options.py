"""Tables of what engines are told: every option that a command has is in them, and they are read from a source."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from autoauto.engines.command import Launch, Machines, command_table
from autoauto.engines.engine import Engine
from autoauto.engines.registry import ENGINES
from autoauto.engines.rules import GroupSplit
from autoauto.records.costs.decoder import WeightFormat
from autoauto.records.errors import BadInput
from studies import engine_options

OURS = [engine for engine in ENGINES.values() if isinstance(engine.launcher.syntax.options, str)]
VLLM = {
    "vllm/config/parallel.py": """
Backend = Literal["mp", "ray"]
class Parallel:
    nnodes: int = 1
    share: float | None = None
    eager: bool = False
    backend: Backend | str | None = None
    size: int | str = 1
""",
    "vllm/engine/arg_utils.py": """
def add_cli_args(parser):
    parallel_kwargs = get_kwargs(Parallel)
    group.add_argument("--nnodes", "-n", **parallel_kwargs["nnodes"])
    group.add_argument("--share", **{**parallel_kwargs["share"], "default": None})
    group.add_argument("--eager", **parallel_kwargs["eager"])
    group.add_argument("--backend", "--old-backend", **parallel_kwargs["backend"])
    group.add_argument("--size", **parallel_kwargs["size"])
""",
    "vllm/entrypoints/common/cli_args.py": """
class Base:
    root_path: str = ""
class FrontendArgs(Base):
    port: int = 8000
def make(parser):
    parser.add_argument("--headless", action="store_true")
    parser.add_argument("--count", "-c", type=int)
""",
    "vllm/envs.py": 'NAMES = {"VLLM_PP_LAYER_PARTITION": None}',
}
SGLANG = {
    "sglang/srt/arg_groups/choices.py": 'FORMATS = ["fp8", "awq"]',
    "sglang/srt/arg_groups/fields/model.py": """
class Model(Struct):
    _PATH = "model"
    model_path: A[str, Arg(help="the model", aliases=["--model"])]
    tp_size: A[int, "GPUs"] = 1
    share: A[Optional[float], "of memory"] = None
    eager: A[bool, "no graphs"] = False
    quantization: A[Optional[str], Arg(help="", choices=FORMATS)] = None
    hidden: A[int, Arg(help="", no_cli=True)] = 1
    rank: A[int, Derived("of the process")]
""",
    "sglang/srt/server_args.py": 'def add(parser):\n    parser.add_argument("--config", type=str)\n',
    "sglang/srt/distributed/utils.py": 'NAME = "SGLANG_PP_LAYER_PARTITION"',
}


@pytest.mark.parametrize("engine", OURS, ids=lambda engine: engine.name)
@pytest.mark.parametrize("n_stages", [1, 4])
@pytest.mark.parametrize("n_sequences", [8, 600])
def test_a_command_has_options_variables_and_keys_of_the_table(engine: Engine, n_stages: int, n_sequences: int) -> None:
    launcher = engine.launcher
    formats = [None, *launcher.makes]
    machines = [Machines(), *([Machines(2, 1, 29_500)] if launcher.placing.spans_machines else [])]
    for weights in formats:
        for on in machines:
            launch = Launch(
                "m", GroupSplit(2, 2), (3,) * n_stages, n_sequences, 8192, 4096, 0.9, weights, WeightFormat.FP8, on
            )
            command = launcher.command(launch, 8000)
            assert launcher.limits(command).max_length == 4096
            launcher.syntax.check_others(command.environment)


@pytest.mark.parametrize("engine", OURS, ids=lambda engine: engine.name)
def test_a_table_is_of_the_source_that_an_artifact_names(engine: Engine) -> None:
    table = command_table(engine.launcher.syntax.options)
    assert table.source.startswith(engine.launcher.source.split(" of ")[0])
    assert "Apache-2.0" in table.source
    assert len({option.name for option in table.options}) == len(table.options) >= 35
    with pytest.raises(BadInput, match="reads no OTHER_PARTITION"):
        engine.launcher.syntax.check_others(["OTHER_PARTITION"])


def wheel(folder: Path, files: dict[str, str]) -> Path:
    path = folder / "package-1.0-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def rows(read: engine_options.Reader, folder: Path, files: dict[str, str]) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {row.name: (row.kind, row.choices) for row in read(wheel(folder, files))}


def test_options_of_vllm_are_fields_of_configurations(tmp_path: Path) -> None:
    assert rows(engine_options.vllm, tmp_path, VLLM) == {
        "--nnodes": ("int", ()),
        "--share": ("float", ()),
        "--eager": ("flag", ()),
        "--backend": ("text", ("mp", "ray")),
        "--old-backend": ("text", ("mp", "ray")),
        "--size": ("text", ()),
        "--root-path": ("text", ()),
        "--port": ("int", ()),
        "--headless": ("flag", ()),
        "--count": ("int", ()),
        "VLLM_PP_LAYER_PARTITION": ("variable", ()),
    }


def test_options_of_sglang_are_annotated_fields(tmp_path: Path) -> None:
    assert rows(engine_options.sglang, tmp_path, SGLANG) == {
        "--model-path": ("text", ()),
        "--model": ("text", ()),
        "--tp-size": ("int", ()),
        "--share": ("float", ()),
        "--eager": ("flag", ()),
        "--quantization": ("text", ("fp8", "awq")),
        "--config": ("text", ()),
        "SGLANG_PP_LAYER_PARTITION": ("variable", ()),
    }
