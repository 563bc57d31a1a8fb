"""Models of two lists of blocks: runtimes that count decoder layers count those of the decoder, or refuse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoauto.evaluate.export import deployment
from autoauto.evaluate.open import load_flow
from autoauto.exporters.blocks.towers import towers_beside
from autoauto.exporters.registry import write_artifact
from autoauto.graph.load import load_graph
from autoauto.records.errors import BadInput
from autoauto.space.knobs import Knobs
from tests.graph.conftest import make

Lists = Sequence[tuple[str, int]]


def two_towers(path: Path, lists: Lists, *, crossed: bool = False, named: bool = True) -> Path:
    """Lists of blocks, one behind the other, and a head.

    Args:
        path: of the file.
        lists: the module and the blocks of every list.
        crossed: whether every block of the last list reads what the first one has computed, in a form that the first
            of these blocks makes, as exporters write what all of them have in common.
        named: whether nodes say which module they come from; the metadata of PyTorch's newer exporter always do.
    """
    nodes, modules, last, memory = [], [], "x", ""
    for module, n_blocks in lists:
        for block in range(n_blocks):
            nodes.append(f"MatMul {last} {module}{block}w > {module}{block}p")
            nodes.append(f"Relu {module}{block}p > {module}{block}r")
            last = f"{module}{block}r"
            if crossed and memory and not block:
                nodes.append(f"Neg {memory} > memory")
                modules.append(f"{module}.layers.{block}")
                memory = "memory"
            if crossed and memory:
                nodes.append(f"Add {last} {memory} > {module}{block}s")
                last = f"{module}{block}s"
            modules += [f"{module}.layers.{block}"] * (3 if crossed and memory else 2)
        memory = last
    names = ["w", *(f"{module}{block}w" for module, n_blocks in lists for block in range(n_blocks))]
    weights = {name: np.eye(8, dtype="float32") for name in names}
    model = make("; ".join([*nodes, f"MatMul {last} w > y"]), {"x": ["n", 8]}, "y", weights)
    for index, (node, module) in enumerate(zip(model.graph.node, [*modules, "head"], strict=True)):
        node.name = f"node_{index}"
        if named:
            node.name = f"/{module.replace('.', '/').replace('layers/', 'layers.')}/{node.op_type}"
        else:
            scopes = str(["", module.rpartition(".")[0], module, f"node_{index}"])
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    onnx.save_model(model, path)
    return path


def export(model: Path, to: str, folder: Path) -> list[str]:
    """Write the best plan of two stages of blocks; the details of what was checked."""
    flow = load_flow(str(model), cut_at="blocks")
    made = deployment(flow, str(model), flow.expect(Knobs(n_ipu=2, memory_proportion=0.6, batch_size=4)))
    return [check.detail for check in write_artifact(made, to, folder, check=True) if check.passed]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("to", ["deepspeed", "megatron"])
def test_the_blocks_of_an_encoder_are_not_those_of_its_decoder(tmp_path: Path, to: str, *, named: bool) -> None:
    model = two_towers(tmp_path / "model.onnx", [("encoder", 4), ("decoder", 4)], named=named)
    with pytest.raises(BadInput, match=rf"--to {to} counts the decoder layers of a model with one list of them, got"):
        export(model, to, tmp_path / "artifact")
    assert not (tmp_path / "artifact").exists()


@pytest.mark.parametrize("named", [True, False])
def test_a_vision_tower_is_in_the_first_stage_of_what_counts_the_language_model(tmp_path: Path, *, named: bool) -> None:
    model = two_towers(tmp_path / "model.onnx", [("vision", 2), ("language", 6)], named=named)
    first, *_ = export(model, "deepspeed", tmp_path / "artifact")
    assert first.endswith("= 6 of 6 blocks, language.layers.0 to language.layers.5")


@pytest.mark.parametrize("to", ["deepspeed", "megatron"])
def test_a_decoder_whose_blocks_read_the_encoder_is_refused(tmp_path: Path, to: str) -> None:
    model = two_towers(tmp_path / "model.onnx", [("encoder", 2), ("decoder", 6)], crossed=True)
    with pytest.raises(
        BadInput, match=r"decoder[.]layers[.]0 to decoder[.]layers[.]5 beside encoder.layers.0 to encoder.layer"
    ):
        export(model, to, tmp_path / "artifact")


def test_megatron_has_no_vision_tower(tmp_path: Path) -> None:
    model = two_towers(tmp_path / "model.onnx", [("vision", 2), ("language", 6)])
    with pytest.raises(BadInput, match=r"beside vision[.]layers[.]0 to vision.layers.1"):
        export(model, "megatron", tmp_path / "artifact")


@pytest.mark.parametrize("model", ["bert-base-128", "gpt2-small", "vit-b16", "resnet50"])
def test_a_model_of_one_list_has_no_tower(model: str) -> None:
    assert towers_beside(load_graph(model)) == ()
