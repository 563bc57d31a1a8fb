"""Which target is meant where none is named."""

from __future__ import annotations

from pathlib import Path

import pytest

import autoauto
from autoauto.cli.main import build_parser
from autoauto.records.errors import BadInput
from autoauto.space.requests.problem import Problem
from autoauto.space.requests.target_choice import chosen_target, with_target

CLUSTER = 'name = "four"\ntarget = "{}"\n'


@pytest.mark.parametrize(
    ("words", "target", "cluster"),
    [
        ("resnet50", "ipu", None),
        ("resnet50 --cluster c600", "ipu", "c600"),
        ("resnet50 --cluster cpu", "host", "host"),
        ("resnet50 --target cpu", "host", None),
        ("resnet50 --cluster host", "host", "host"),
        ("model.gguf", "host", None),
        ("Qwen/Qwen3-32B --cluster h100_sxm-8", "gpu", "h100_sxm-8"),
        ("Qwen/Qwen3-32B --cluster 8xH100+4xL40S", "gpu", "8xH100+4xL40S"),
        ("Qwen/Qwen3-32B --gpus 4", "gpu", "h100_sxm-4"),
        ("Qwen/Qwen3-32B --cluster h200_sxm --gpus 16", "gpu", "h200_sxm-16"),
        ("resnet50 --cluster bow-4000", "ipu", "bow-4000"),
        ("net.onnx --cluster missing.toml", "ipu", "missing.toml"),
    ],
)
def test_the_cluster_or_the_model_decides(words: str, target: str, cluster: str | None) -> None:
    problem = Problem.of(vars(build_parser().parse_args(["search", *words.split()])))
    assert (problem.target, problem.cluster) == (target, cluster)


def test_values_that_have_their_target_stay() -> None:
    values = with_target({"model": "Qwen/Qwen3-32B", "cluster": "h200_sxm", "gpus": 16})
    assert with_target(values) == values


def test_the_file_of_a_cluster_decides(tmp_path: Path) -> None:
    for target, chosen in (("gpu", "gpu"), ("host", "host"), ("profile", "ipu")):
        file = tmp_path / f"{target}.toml"
        file.write_text(CLUSTER.format(target))
        assert chosen_target("model", str(file)) == chosen


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_decoder_without_gpus_says_what_to_type(tmp_path: Path, is_folder: bool) -> None:
    (tmp_path / "config.json").write_text("{}")
    model = str(tmp_path) if is_folder else "Qwen/Qwen3-32B"
    with pytest.raises(BadInput, match=r"is a decoder, .* try --cluster h100_sxm-8"):
        chosen_target(model, None)


def test_what_a_client_names_is_not_looked_for_among_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "gpus.toml").write_text(CLUSTER.format("gpu"))
    assert chosen_target(str(tmp_path), None, reads_files=False) == "ipu"
    assert chosen_target("resnet50", str(tmp_path / "gpus.toml"), reads_files=False) == "ipu"


@pytest.mark.parametrize("space", [{"n_ipu": []}, {"n_ipus": [1]}, {"n_ipu": [0]}])
def test_a_space_that_is_none_is_refused(space: dict[str, list[int]]) -> None:
    with pytest.raises(BadInput, match="n_ipu"):
        autoauto.search("resnet50", "bow-2000", space)


def test_values_of_knobs_are_a_space_in_python() -> None:
    best = autoauto.search("resnet50", "bow-2000", {"n_ipu": [1], "batch_size": 1, "memory_proportion": [0.6]})
    assert (best.knobs.n_ipu, best.knobs.batch_size) == (1, 1)
