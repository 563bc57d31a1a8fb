"""Exporting models from PyTorch, as far as the packages for it are installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import onnx
import pytest

from studies import make_models
from studies.training_heads import with_tokens


@pytest.mark.slow
def test_an_unknown_model_is_refused_with_the_known_ones(run_script: Callable[..., list[str]]) -> None:
    (message,) = run_script("make_models", "resnet51", exit_codes=[2])
    known = (*make_models.MAKERS, *make_models.WITH_HEADS)
    assert message == f"NAME must be one of {', '.join(known)}; got resnet51"


def test_bert_for_more_tokens_is_what_the_exporter_makes_of_it() -> None:
    made = with_tokens(onnx.load(make_models.MODELS / "bert-base-128.onnx"), 256)
    assert made == onnx.load(make_models.MODELS / "bert-base-256.onnx")


@pytest.mark.parametrize("name", make_models.WITH_HEADS)
def test_heads_for_training_are_made_again_as_they_are(name: str) -> None:
    made = make_models.make(name).SerializeToString(deterministic=True)
    assert made == (make_models.MODELS / f"{name}.onnx").read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(bool(find_spec("torch") and find_spec("transformers")), reason="would make a model anew")
def test_missing_packages_are_named_in_one_line(run_script: Callable[..., list[str]]) -> None:
    (message,) = run_script("make_models", "resnet50", exit_codes=[2])
    assert message.startswith("make_models needs other packages: ")
    assert message.endswith(f"try: pip install {' '.join(make_models.NEEDS)}")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_an_exported_module_has_a_batch_axis_and_nodes_for_weights() -> None:
    torch = pytest.importorskip("torch", reason="exporting needs torch")
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")

    class TwoLayers(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(16, 32), torch.nn.Linear(32, 4)

        def forward(self, x: Any, return_dict: bool) -> dict[str, Any]:
            assert return_dict
            return {"y": self.second(torch.relu(self.first(x)))}

    model = make_models.TorchModel(TwoLayers(), {"x": torch.zeros(2, 16)}, ("y",))
    light = make_models.lighten(make_models.export(model))
    assert light.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert [node.op_type for node in light.graph.node].count("ConstantOfShape") >= 2
    assert any(node.name.startswith("first.") for node in light.graph.node)
