"""Reading a model: `load_graph` makes a `LayerGraph` of a built-in name, a path or an ONNX model.

Commands that only ask for a file, `find_model`, do without onnx.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from autoauto.graph.decoders.huggingface import CONFIG_FILE, bundled_names, decoder_of
from autoauto.records.errors import UnreadableModel, did_you_mean
from autoauto.records.installation import builtin_models
from autoauto.records.layers import AS_IN_FILE, LayerGraph, ModelInputs, OnnxModel

if TYPE_CHECKING:
    from onnx import ModelProto


def load_graph(model: str | Path | OnnxModel, given: ModelInputs = AS_IN_FILE) -> LayerGraph:
    """Read a built-in model by name, an ONNX file by path, or a `ModelProto`, whose graph has the name.

    `given` are lengths of open axes, batch axes and states of its inputs.

    Raises:
        UnreadableModel: there is no such model, or its file cannot be read.
        BadInput: an axis of an input stays open besides the batch; the message lists all.
    """
    if not isinstance(model, str | Path):
        from autoauto.graph.onnx_file import copy_model

        copy = copy_model(model)
        return _read(copy.graph.name or "model", copy, given)
    path = find_model(str(model))
    if path == builtin_models().get(str(model)):
        return _builtin_graph(path, given)
    return _graph_of(path, given)


def _graph_of(path: Path, given: ModelInputs) -> LayerGraph:
    from autoauto.graph.onnx_file import read_model

    return _read(path.stem, read_model(path), given)


def _read(name: str, model: ModelProto, given: ModelInputs) -> LayerGraph:
    from autoauto.graph.assumptions import assumptions, weight_formats
    from autoauto.graph.facts import infer_facts
    from autoauto.graph.layers import layers_of

    facts = infer_facts(model, given)
    graph = replace(layers_of(name, facts), inputs=given, formats=weight_formats(facts))
    return replace(graph, notes=assumptions(model, facts, graph))


# A file of the installation does not change while the process runs; programs search and plan one model many times.
_builtin_graph = cache(_graph_of)


def find_model(model: str) -> Path:
    """The file of a built-in model, by name, or of any other, by path; raises `UnreadableModel` if there is none."""
    builtin = builtin_models()
    path = builtin.get(model, Path(model))
    with suppress(OSError):  # a name that is too long, a folder that may not be entered
        if path.is_file() and path.name != CONFIG_FILE:
            return path
    raise UnreadableModel(_missing(model, builtin))


def _missing(model: str, builtin: Iterable[str]) -> str:
    must, path = "a model must be a built-in name or the path of an ONNX file", Path(model)
    if "://" in model:
        return f"{must}, got the address {model!r:.200}; download it and give the path of the file"
    if path.name == CONFIG_FILE and path.is_file():
        return f"{must}, got {model!r:.200}; {_config_advice(path.parent)}"
    if os.path.isdir(model):
        files = _onnx_files(path)
        advice = f"it holds no {_ONNX} file; give one"
        if files:
            others = f" or another of its {len(files)} files" if len(files) > 1 else ""
            advice = f"try {path / files[0]}{others}"
        elif os.path.isfile(path / CONFIG_FILE):
            advice = _config_advice(path)
        return f"{must}, got the folder {model!r:.200}; {advice}"
    if os.path.lexists(model):
        return f"{must}, got {model!r:.200}, which is no regular file or a link to nothing; give the file itself"
    return f"{must}, {_missing_file(model, path, builtin)}"


def _config_advice(folder: Path) -> str:
    """The advice for a folder of Hugging Face that was given in place of an ONNX file."""
    try:
        decoder_of(folder)
    except UnreadableModel:
        return f"export it first: optimum-cli export onnx --model {folder} onnx, then give onnx/model.onnx"
    return f"a language model is read for GPUs from its config; try autoauto search {folder} --cluster 8xH100"


def _missing_file(model: str, path: Path, builtin: Iterable[str]) -> str:
    if model in bundled_names():
        return (
            f"got {model!r}, a language model, which is read for GPUs from its config; try "
            f"autoauto search {model} --cluster 8xH100"
        )
    if _HUB_NAME.fullmatch(model) and not path.parent.is_dir():
        return (
            f"got {model!r}, no file here; a model of a hub is exported first: "
            f"optimum-cli export onnx --model {model} {path.name}, then give {path.name}/model.onnx"
        )
    if path.suffix in _OTHER_FORMATS:
        return f"and there is no file {model!r:.200}; export {path.suffix} to .onnx, with torch.onnx.export say"
    if path.suffix == _ONNX or len(path.parts) > 1:
        if not os.path.isdir(path.parent):
            return f"and there is no file {model!r:.200}; nor a folder {str(path.parent)!r:.200}; check the path"
        near = did_you_mean(path.name, _onnx_files(path.parent)) or "check the path"
        return f"and there is no file {model!r:.200}; {near}"
    hint = did_you_mean(model, builtin, "`autoauto models` lists the built-in ones")
    return f"got {model!r:.200}, which is neither; {hint}"


def _onnx_files(folder: Path) -> list[str]:
    with suppress(OSError):
        return sorted(name for name in os.listdir(folder) if name.endswith(_ONNX))
    return []


_ONNX = ".onnx"
_OTHER_FORMATS = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".pb", ".h5", ".keras", ".tflite", ".gguf")
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(?<!\.onnx)", re.ASCII)
"""An owner and a name, as in "openai-community/gpt2"."""
