"""Blocks are found by the names of operators: of PyTorch's two exporters, of our models, nested, and not at all."""

from __future__ import annotations

from itertools import chain, pairwise
from pathlib import Path

import onnx
import pytest

from autoauto.graph.blocks import ScopedOperator, blocks_of, scoped_operator
from autoauto.graph.load import load_graph
from autoauto.records.installation import builtin_models
from tests.exporters.torch_blocks import exported


def blocks(*modules: str) -> dict[str, tuple[int, int]]:
    """The blocks of a model with one operator for each of these modules."""
    all_blocks = blocks_of([ScopedOperator("MatMul", module) for module in modules])
    return {block.module: (block.layers.start, block.layers.stop) for block in all_blocks}


def module(name: str, scopes: str | None = None) -> str:
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], name=name)
    if scopes is not None:
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    return scoped_operator(node, []).module


def test_the_module_of_an_operator_is_in_its_name_or_its_metadata() -> None:
    assert module("/model/layers.0/self_attn/q_proj/MatMul") == "model.layers.0.self_attn.q_proj"
    assert module("/layer1/layer1.0/conv1/Conv") == "layer1.0.conv1"
    assert module("/net/net.1/net.1.0/MatMul") == "net.1.0"
    assert module("bert.encoder.layer.5.output.Add") == "bert.encoder.layer.5.output"
    assert module("node_linear_3", "['', 'layers.0', 'layers.0.mlp', 'linear_3']") == "layers.0.mlp"
    assert module("node_add", "['', 'add']") == ""


@pytest.mark.parametrize("scopes", ["", "[]", "['add']", "3", "__import__('os')", "[" * 300])
def test_metadata_of_another_form_says_nothing(scopes: str) -> None:
    assert module("layers.0.MatMul", scopes) == ""


def test_blocks_follow_each_other_and_have_what_lies_around_them() -> None:
    layers = blocks("embed", "", "h.0.a", "h.0.b", "", "h.1.a", "h.1.b", "norm", "head")
    assert layers == {"h.0": (0, 5), "h.1": (5, 9)}


def test_modules_beside_the_blocks_are_named_and_so_are_those_that_only_hold_a_weight() -> None:
    operators = [
        ScopedOperator("Gather", "model.embed.words", ("model.embed.words",)),
        ScopedOperator("Add", "model", ("model.positions",)),
        ScopedOperator("MatMul", "model.h.0.fc", ("model.h.0.fc",)),
        ScopedOperator("MatMul", "model.h.1.fc", ("model.h.0.fc",)),
        ScopedOperator("MatMul", "head", ("model.embed.words",)),
    ]
    first, last = blocks_of(operators)
    assert first.others == ("model.embed", "model.positions")
    assert last.others == ("head",)


def test_nested_lists_are_one_list_in_order() -> None:
    paths = [
        f"stages.{i}.layers.{j}.{part}" for i, n in enumerate((2, 3)) for j in range(n) for part in ("conv", "add")
    ]
    expected = ["stages.0.layers.0", "stages.0.layers.1", "stages.1.layers.0", "stages.1.layers.1", "stages.1.layers.2"]
    assert list(blocks(*paths)) == expected


def test_a_list_inside_blocks_is_not_the_list_of_blocks() -> None:
    """Something of the block follows its inner list."""
    paths = [path for i in range(3) for path in (*(f"h.{i}.expert.{e}" for e in range(4)), f"h.{i}")]
    assert list(blocks(*paths)) == ["h.0", "h.1", "h.2"]


@pytest.mark.parametrize(
    "modules",
    [
        ("a", "b", "c"),
        ("h.0.a", "h.0.b"),
        ("h.0", "h.1", "h.0"),
        ("h.1", "h.0"),
        ("h.0", "h.2"),
        ("h.0", "other", "h.1"),
        ("", ""),
    ],
    ids=["no index", "one block", "shared block", "backwards", "a gap", "something between", "no names"],
)
def test_modules_that_do_not_repeat_in_order_are_no_blocks(modules: tuple[str, ...]) -> None:
    assert blocks(*modules) == {}


@pytest.mark.parametrize(
    ("name", "n_blocks", "second"),
    [
        ("bert-base-128", 12, "bert.encoder.layer.1"),
        ("gpt2-small", 12, "transformer.h.1"),
        ("resnet50", 16, "resnet.encoder.stages.0.layers.1"),
        ("resnet50-train", 16, "resnet.encoder.stages.0.layers.1"),
        ("vit-b16", 12, "vit.layers.1"),
        ("vit-b16-train", 12, "vit.layers.1"),
        ("bert-large-512-mlm", 24, "bert.encoder.layer.1"),
    ],
)
def test_builtin_models_have_their_blocks(name: str, n_blocks: int, second: str) -> None:
    graph = load_graph(name)
    assert len(graph.blocks) == n_blocks
    assert graph.blocks[1].module == second
    assert graph.layers[graph.blocks[1].layers.start].name.startswith(second)
    boundaries = list(chain([0], (block.layers.stop for block in graph.blocks)))
    assert [tuple(block.layers) for block in graph.blocks] == list(pairwise(boundaries))
    assert boundaries[-1] == len(graph)


def test_all_builtin_models_are_covered() -> None:
    assert set(builtin_models()) == {
        "bert-base-128",
        "bert-base-128-mlm",
        "bert-base-256",
        "bert-base-384-mlm",
        "bert-base-512-mlm",
        "bert-large-128",
        "bert-large-128-mlm",
        "bert-large-384-mlm",
        "bert-large-384-squad",
        "bert-large-512-mlm",
        "gpt2-small",
        "resnet50",
        "resnet50-train",
        "vit-b16",
        "vit-b16-train",
    }


@pytest.mark.slow
@pytest.mark.parametrize("dynamo", [False, True], ids=["TorchScript", "dynamo"])
def test_both_exporters_of_pytorch_say_the_same_blocks(tmp_path: Path, dynamo: bool) -> None:
    graph = load_graph(exported(tmp_path / "model.onnx", dynamo=dynamo))
    assert [block.module for block in graph.blocks] == [f"layers.{i}" for i in range(5)]
    assert graph.blocks[0].others == ("embedding",)
    assert graph.blocks[-1].others == ("norm", "head")
    assert len({block.layers.stop - block.layers.start for block in graph.blocks[1:-1]}) == 1
