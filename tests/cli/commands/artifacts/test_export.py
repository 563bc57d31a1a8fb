"""`autoauto export` and `autoauto.export`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import autoauto
from autoauto.exporters import onnx_stages
from autoauto.records.errors import BadInput, Infeasible
from autoauto.records.hardware import Link
from autoauto.records.units import Precision
from autoauto.space.trial import unfit_trial
from tests.cli.conftest import RunCli
from tests.decoders import decoder_folder
from tests.graph.conftest import make


@pytest.fixture
def model(tmp_path: Path) -> str:
    weights = {name: np.full((64, 64), 0.01, np.float32) for name in "vw"}
    program = "MatMul x w > a; Relu a > b; MatMul b v > c; Tanh c > d; Add d x > y"
    onnx.save_model(make(program, {"x": ["n", 64]}, "y", weights), tmp_path / "small.onnx")
    return "small.onnx"


@pytest.fixture
def search(run_cli: RunCli, model: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A study as if it had been typed: it stores the command of this process."""

    def run(*more: str) -> None:
        words = ["search", model, "--cluster", "bow-2000", "--batch-size", "2", "--study-name", "mine", *more]
        monkeypatch.setattr("sys.argv", ["autoauto", *words])
        assert run_cli(*words).code == 0

    return run


def stages(folder: Path) -> list[list[int]]:
    [pipeline] = json.loads((folder / "pipeline.json").read_text())["pipelines"]
    return [stage["layers"] for stage in pipeline["stages"]]


def test_a_model_is_exported_with_the_best_plan_of_a_configuration(run_cli: RunCli, model: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    done = run_cli("export", model, "--n-ipu", "2", "--batch-size", "4", "--to", "onnx", "--output", "new/a", "--check")
    assert (done.code, done.err) == (0, "")
    first, *checks = done.out.splitlines()
    assert first == "new/a: README.md, pipeline.json, run_pipeline.py, stage0.onnx, stage1.onnx"
    assert [line.split(":")[:2] for line in checks] == [
        ["passed", " output y equals that of the whole model"],
        ["passed", " no request gets numbers of another"],
    ]
    planned = run_cli("predict", model, "--n-ipu", "2", "--batch-size", "4", "--json")
    cuts = json.loads(planned.out)["partition"]
    assert stages(tmp_path / "new" / "a") == [[0, cuts[1]], [cuts[1], cuts[2]]]


def test_without_a_name_it_is_the_default_model(run_cli: RunCli, model: str) -> None:
    code, _, err = run_cli("export", "--to", "onnx", "--output", ".")
    assert (code, err.count("\n")) == (2, 1)
    assert f"new or empty folder, {Path.cwd()} is not one" in err, model


def test_the_winner_of_a_study_is_exported(
    run_cli: RunCli, model: str, search: Callable[..., None], tmp_path: Path
) -> None:
    search("--n-ipu", "2")
    done = run_cli("export", "mine", "--to", "onnx", "--output", "a", "--json")
    assert done.code == 0
    printed = json.loads(done.out)
    assert (printed["to"], printed["output"], printed["checks"]) == ("onnx", "a", [])
    assert printed["files"] == sorted(path.name for path in (tmp_path / "a").iterdir())
    text = (tmp_path / "a" / "README.md").read_text()
    assert "2 stages, 2 replicas, batch size 2, on bow-2000: " in text
    assert "(modelled)" in text
    wrong = run_cli("export", "mine", "--batch-size", "4", "--to", "onnx", "--output", "b")
    assert wrong.code == 2
    assert "study 'mine' has a configuration of its own, got --batch-size too; leave that out" in wrong.err
    other = onnx.load_model(model)
    other.graph.node[1].op_type = "Sigmoid"
    onnx.save_model(other, model)
    changed = run_cli("export", "mine", "--to", "onnx", "--output", "b")
    assert (changed.code, changed.err.count("\n")) == (2, 1)
    assert "small.onnx has changed since study 'mine'" in changed.err


def test_a_winner_that_runs_in_phases_is_refused(run_cli: RunCli) -> None:
    large = ("search", "bert-large-128", "--n-ipu", "1", "--batch-size", "16", "--memory-proportion", "0.6")
    assert run_cli(*large, "--strategy", "phased", "--study-name", "mine").code == 0
    done = run_cli("export", "mine", "--to", "onnx", "--output", "a")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "the winner of study 'mine' runs in phases; try to search with --strategy pipeline" in done.err
    assert not Path("a").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("smal.onnx",), "there is no file 'smal.onnx'; "),
        (("small.onnx", "--mode", "training"), "--to onnx is for inference, got a plan for training"),
        (("small.onnx", "--output", "small.onnx"), "a new or empty folder, "),
        (("small.onnx", "--output", "small.onnx/new"), "a new or empty folder, "),
        (("small.onnx", "--to", "tflite"), "got 'tflite'"),
        (("small.onnx", "--n-ipu", "9"), "n_ipu must be at most 4"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_one_line(
    more: tuple[str, ...], message: str, run_cli: RunCli, model: str
) -> None:
    done = run_cli("export", "--to", "onnx", "--output", "a", *more)
    assert (done.code, done.err.count("\n"), done.out) == (2, 1, "")
    assert message in done.err
    assert not Path("a").exists()


def test_a_check_that_fails_is_the_exit_code(run_cli: RunCli, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setitem(onnx_stages.TOLERANCES, Precision.FP32, -1.0)
    done = run_cli("export", model, "--to", "onnx", "--output", "a", "--check")
    assert done.code == 2
    assert "FAILED: output y equals" in done.out


def test_a_trial_is_exported_from_python(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    flow = autoauto.load_flow(model, "bow-2000")
    trial = flow.expect(autoauto.Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4))
    assert autoauto.export(model, trial, "onnx", "a", "bow-2000") == []
    assert len(stages(tmp_path / "a")) == 2
    with pytest.raises(BadInput, match="a format is one of auto-pipeline, "):
        autoauto.export(model, trial, "tflite", "b", "bow-2000")
    with pytest.raises(BadInput, match="the plan must be of resnet50 with 121 layers, got one of 5"):
        autoauto.export("resnet50", trial, "onnx", "b", "bow-2000")
    with pytest.raises(
        BadInput, match="for devices of c600, which are 1, got one for 2; try the cluster of the search"
    ):
        autoauto.export(model, trial, "onnx", "b", "c600")
    with pytest.raises(
        BadInput, match="plan must be for the cluster m2000, got one for bow-2000; try the cluster of the search"
    ):
        autoauto.export(model, trial, "onnx", "b", "m2000")
    changed = replace(flow.cluster, send_links=tuple(Link(1e9, 7) for _ in flow.cluster.send_links))
    with pytest.raises(BadInput, match="for the cluster bow-2000, got one for another bow-2000; try"):
        autoauto.export(model, trial, "onnx", "b", changed)
    with pytest.raises(BadInput, match="for the precision fp32, got one for fp16; try the precision of the search"):
        autoauto.export(model, trial, "onnx", "b", "bow-2000", precision="fp32")
    failed = unfit_trial(trial.knobs, Infeasible("no plan fits", 8), 1)
    with pytest.raises(BadInput, match="a configuration must run to be exported, this one does not: "):
        autoauto.export(model, failed, "onnx", "b", "bow-2000")
    assert not Path("b").exists()


def test_the_best_of_a_search_is_exported_for_its_own_cluster_alone(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the best of a search that was read from a database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "cache"))
    space = {"n_ipu": [2], "replicas": [1], "batch_size": [4], "memory_proportion": [0.6]}
    for _ in ("measured", "read"):
        best = autoauto.search(model, "bow-2000", space, storage="sqlite:///trials.db")
        with pytest.raises(BadInput, match="for the cluster m2000, got one for bow-2000; try the cluster of the se"):
            autoauto.export(model, best, "onnx", "a", "m2000")
    assert autoauto.export(model, best, "onnx", "a", "bow-2000") == []


def test_a_decoder_and_the_study_of_one_are_exported_as_launch_commands(run_cli: RunCli, tmp_path: Path) -> None:
    pytest.importorskip("aiconfigurator_core", reason="the measured times are of extra gpu")
    folder = str(decoder_folder(tmp_path / "decoder"))
    on_gpus = (folder, "--target", "gpu", "--cluster", "h100_sxm-4", "--input-tokens", "64", "--output-tokens", "64")
    done = run_cli("export", *on_gpus, "--n-ipu", "2", "--batch-size", "4", "--to", "vllm", "--output", "a", "--check")
    assert (done.code, done.err) == (0, "")
    first, *checks = done.out.splitlines()
    assert first == "a: README.md, check.sh, compose.yaml, kubernetes.yaml, replica-0.sh"
    assert {line.split(":")[0] for line in checks} == {"passed", "not checked here"}
    two = ("--engine", "vllm", "--tensor-parallel", "2", "--n-ipu", "2", "--batch-size", "4")
    searched = run_cli("search", *on_gpus, *two, "--study-name", "words")
    assert searched.code == 0
    done = run_cli("export", "words", "--to", "vllm", "--output", "b", "--json")
    assert (done.code, done.err) == (0, "")
    assert folder in (tmp_path / "b" / "replica-0.sh").read_text(encoding="utf-8")
    done = run_cli("export", "words", "--to", "onnx", "--output", "c")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "--to onnx is not for text that decoders generate; try --to sglang or tensorrt-llm or vllm" in done.err
