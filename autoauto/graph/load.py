"""The door of the room: a built-in name or a path becomes a `LayerGraph`."""

from __future__ import annotations

from pathlib import Path

from autoauto.graph.facts import learn
from autoauto.graph.layers import layers_of
from autoauto.graph.read import read_model
from autoauto.records.errors import UnreadableModel
from autoauto.records.layers import LayerGraph
from autoauto.records.places import data_dir


def builtin_models() -> dict[str, Path]:
    """The models that come with autoauto, by name."""
    return {path.stem: path for path in sorted((data_dir() / "models").glob("*.onnx"))}


def load_graph(model: str) -> LayerGraph:
    """Read a built-in model by name, or an ONNX file by path.

    Raises:
        UnreadableModel: there is no such model, or its file cannot be read.
        BadInput: an input has an open axis besides the batch.
    """
    builtin = builtin_models()
    path = builtin.get(model, Path(model))
    if not path.is_file():
        raise UnreadableModel(
            f"a model must be a built-in name or the path of an ONNX file, got {model!r}; try {', '.join(builtin)}"
        )
    return layers_of(path.stem, learn(read_model(path)))
