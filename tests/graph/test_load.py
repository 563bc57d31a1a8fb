from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from autoauto.graph.load import load_graph
from autoauto.records.errors import UnreadableModel
from autoauto.records.installation import builtin_models, builtin_sizes
from autoauto.records.units import Precision
from tests.decoders import decoder_folder

NEWEST, NEWEST_ML = (
    max(version for name, version in onnx.helper.OP_SET_ID_VERSION_MAP if name == domain)
    for domain in ("ai.onnx", "ai.onnx.ml")
)
LIGHT = {  # layers, millions of parameters; as published, BVLC AlexNet 61.0, DenseNet-121 8.0, VGG-19 143.7
    "alexnet": (21, 61.0),
    "densenet121": (668, 8.1),
    "inception_v1": (141, 7.0),
    "inception_v2": (370, 11.2),
    "resnet50": (175, 25.6),
    "shufflenet": (170, 1.4),
    "squeezenet": (65, 1.2),
    "vgg19": (43, 143.7),
    "zfnet512": (21, 87.3),
}
BUILTIN = {  # as published: 25.6, 108.9 with the position embeddings that 128 tokens do not read, 334, 124, 86.6
    "resnet50": (121, 25.5, 42),
    "bert-base-128": (323, 108.6, 25),
    "bert-base-256": (323, 108.7, 25),
    "bert-large-128": (635, 333.7, 25),
    "gpt2-small": (232, 123.8, 19),
    "vit-b16": (308, 86.6, 22),
    "resnet50-train": (178, 25.6, 58),
    "vit-b16-train": (337, 86.6, 27),
    "bert-base-128-mlm": (356, 132.7, 34),  # with a projection to 30,522 words of its own
    "bert-base-384-mlm": (356, 132.9, 34),
    "bert-base-512-mlm": (356, 133.0, 34),
    "bert-large-128-mlm": (692, 366.0, 34),
    "bert-large-384-mlm": (692, 366.3, 34),
    "bert-large-512-mlm": (692, 366.4, 34),
    "bert-large-384-squad": (711, 334.0, 30),
}


@pytest.mark.parametrize("name", LIGHT)
def test_the_light_models_of_the_wheel(name: str, light: Any) -> None:
    graph = load_graph(str(light(name)))
    assert (len(graph), round(graph.n_weight_bytes(Precision.FP32) / 4e6, 1)) == LIGHT[name]
    assert graph.fixed_batch is None
    assert graph.tensors[graph.layers[-1].outputs[0]].shape_at(4)[:2] == (4, 1000)


@pytest.mark.parametrize("name", BUILTIN)
def test_the_builtin_models(name: str) -> None:
    graph = load_graph(name)
    n_kinds = len({layer.kind for layer in graph.layers})
    assert (len(graph), round(graph.n_weight_bytes(Precision.FP32) / 4e6, 1), n_kinds) == BUILTIN[name]
    assert (graph.name, graph.fixed_batch) == (name, None)
    assert all(graph.tensors[index].batch_axis == 0 for layer in graph.layers for index in layer.outputs)


def test_the_sizes_of_the_builtin_models_are_those_of_their_files() -> None:
    for size in builtin_sizes():
        n_layers, millions, n_kinds = BUILTIN[size.name]
        assert (size.n_layers, size.n_kinds) == (n_layers, n_kinds)
        assert round(size.weight_bytes / 2e6, 1) == millions


def test_the_builtin_models_are_small() -> None:
    assert set(builtin_models()) == set(BUILTIN)
    assert all(path.stat().st_size < 400_000 for path in builtin_models().values())


def test_gpt2_ties_its_head_to_its_embedding() -> None:
    graph = load_graph("gpt2-small")
    assert [number for number, layer in enumerate(graph.layers) if layer.tied] == [0, len(graph) - 1]
    assert {layer.tied for layer in load_graph("bert-base-128").layers} == {None}


def test_an_unknown_name_has_the_nearest_builtin_model_or_what_lists_them() -> None:
    with pytest.raises(UnreadableModel, match=r"got 'resnet51', which is neither; did you mean 'resnet50'"):
        load_graph("resnet51")
    with pytest.raises(UnreadableModel, match=r"got 'mine', which is neither; `autoauto models` lists the built-in"):
        load_graph("mine")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (".", r"got the folder '\.'; try tagger\.onnx$"),
        ("empty", r"got the folder 'empty'; it holds no \.onnx file; give one"),
        ("hub", r"got the folder 'hub'; export it first: optimum-cli export onnx --model hub"),
        ("llama", r"got the folder 'llama'; a language model is read for GPUs .* try autoauto search llama --c"),
        ("llama/config.json", r"got 'llama/config\.json'; a language model is .* try autoauto search llama --cluster"),
        ("https://a.org/net.onnx", r"got the address 'https://a.org/net.onnx'; download it"),
        ("hf://org/net", r"got the address 'hf://org/net'"),
        (
            "openai-community/gpt2",
            r"no file here; a model of a hub is exported first: .* openai-community/",
        ),
        ("net.pt", r"there is no file 'net\.pt'; export \.pt to \.onnx"),
        ("taggr.onnx", r"there is no file 'taggr\.onnx'; did you mean 'tagger\.onnx'\?"),
        ("no/such.onnx", r"there is no file 'no/such\.onnx'; nor a folder 'no'; check the path"),
        ("empty/such.onnx", r"there is no file 'empty/such\.onnx'; check the path"),
        ("dangling", r"got 'dangling', which is no regular file or a link to nothing"),
        ("a" * 5_000 + ".onnx", r"there is no file 'aaa"),
    ],
)
def test_what_is_no_model_is_called_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("empty", "hub"):
        Path(folder).mkdir()
    Path("hub/config.json").touch()
    decoder_folder(Path("llama"))
    Path("tagger.onnx").touch()
    Path("dangling").symlink_to("nothing")
    with pytest.raises(UnreadableModel, match=message):
        load_graph(given)


@pytest.mark.parametrize(("domain", "op", "newest"), [("", "Relu", NEWEST), ("ai.onnx.ml", "Normalizer", NEWEST_ML)])
def test_an_operator_set_that_onnx_does_not_know_is_refused(domain: str, op: str, newest: int, make: Any) -> None:
    def model(version: int, used: str = f"{domain}.{op}".strip(".")) -> Any:
        made = make(f"{used} x > y", {"x": [1, 4]}, "y")
        for entry in made.opset_import:
            if entry.domain == domain:
                entry.version = version
        return made

    assert len(load_graph(model(newest)).layers) == 1
    with pytest.raises(UnreadableModel) as refused:
        load_graph(model(newest + 1))
    assert str(refused.value) == (
        f"operator sets of {domain or 'ai.onnx'} must be at most {newest}, which the installed onnx knows, got "
        f"{newest + 1}; try to export at {newest}, or pip install -U onnx"
    )


def test_an_operator_set_that_no_node_is_of_may_be_newer(make: Any) -> None:
    model = make("Relu x > y", {"x": [1, 4]}, "y")
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 99))
    assert len(load_graph(model).layers) == 1


def test_a_file_is_named_after_itself(make: Any, save: Any) -> None:
    path = save(make("Relu x > y", {"x": ["n", 4]}, "y"))
    assert load_graph(path).name == "model"


def test_loading_twice_gives_equal_graphs() -> None:
    assert load_graph("vit-b16") == load_graph("vit-b16")
