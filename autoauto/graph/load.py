"""Reading a model: `load_graph` makes a `LayerGraph` of a built-in name, a path or an ONNX model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from onnx import ModelProto

from autoauto.graph.assumptions import assumptions, weight_formats
from autoauto.graph.facts import infer_facts
from autoauto.graph.layers import layers_of
from autoauto.graph.onnx_file import copy_model, read_model
from autoauto.records.errors import UnreadableModel, did_you_mean
from autoauto.records.installation import data_dir
from autoauto.records.layers import AS_IN_FILE, LayerGraph, ModelInputs


def builtin_models() -> dict[str, Path]:
    """The models that come with autoauto, by name."""
    return {path.stem: path for path in sorted((data_dir() / "models").glob("*.onnx"), key=lambda path: path.stem)}


def load_graph(model: str | Path | ModelProto, given: ModelInputs = AS_IN_FILE) -> LayerGraph:
    """Read a built-in model by name, an ONNX file by path, or a `ModelProto`, whose graph has the name.

    Args:
        model: as above.
        given: lengths of open axes, batch axes and states of its inputs.

    Raises:
        UnreadableModel: there is no such model, or its file cannot be read.
        BadInput: an axis of an input stays open besides the batch; the message lists all.
    """
    if isinstance(model, ModelProto):
        return _read(model.graph.name or "model", copy_model(model), given)
    path = find_model(str(model))
    return (_builtin_graph if path == builtin_models().get(str(model)) else _graph_of)(path, given)


def _graph_of(path: Path, given: ModelInputs) -> LayerGraph:
    return _read(path.stem, read_model(path), given)


def _read(name: str, model: ModelProto, given: ModelInputs) -> LayerGraph:
    facts = infer_facts(model, given)
    graph = replace(layers_of(name, facts), inputs=given, formats=weight_formats(facts))
    return replace(graph, notes=assumptions(model, facts, graph))


# A file of the installation does not change while the process runs; programs search and plan one model many times.
_builtin_graph = cache(_graph_of)


def find_model(model: str) -> Path:
    """The file of a built-in model, by name, or of any other, by path.

    Raises:
        UnreadableModel: there is no such model.
    """
    builtin = builtin_models()
    path = builtin.get(model, Path(model))
    if not path.is_file():
        names = ", ".join(builtin)
        raise UnreadableModel(
            f"a model must be a built-in name or the path of an ONNX file, got {model!r}; "
            f"{did_you_mean(model, builtin, f'try {names}')}"
        )
    return path
