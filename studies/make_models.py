"""Make the built-in models, `data/models/*.onnx`, from PyTorch with random weights.

    python studies/make_models.py [NAME ...]

Needs the packages of `NEEDS`, none of which autoauto depends on; models with a head for training need none of them, as
they are made from the files of the others (`studies/training_heads.py`). Every float weight becomes a `ConstantOfShape`
node, so that a file has tens to hundreds of kilobytes and ONNX Runtime still runs it.
"""

from __future__ import annotations

import sys
import warnings
from ast import literal_eval
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from studies.training_heads import (
    N_MASKED,
    with_classifier_loss,
    with_dropout_and_classifier_loss,
    with_masked_language_model,
    with_squad_loss,
    with_tokens,
)

MODELS = Path(__file__).parent.parent / "data" / "models"
NEEDS = ("torch==2.13.0", "transformers==5.23.0", "onnxscript==0.7.2")
OPSET = 20  # the first with Gelu as one operator
SEQUENCE = 128
N_FEW_ELEMENTS = 8  # a float tensor of so few elements is a factor or a limit, not a weight


class TorchModel(NamedTuple):
    """A PyTorch module, examples of its inputs by name (first axis: the batch), and the names of its outputs."""

    module: Any
    inputs: dict[str, Any]
    outputs: tuple[str, ...]


def main(names: list[str]) -> int:
    """Export the named models, all of them without a name, and print the size of each file."""
    known = (*MAKERS, *WITH_HEADS)
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(f"NAME must be one of {', '.join(known)}; got {', '.join(unknown)}", file=sys.stderr)
        return 2
    for name in names or known:
        path = MODELS / f"{name}.onnx"
        try:
            path.write_bytes(make(name).SerializeToString(deterministic=True))
        except ImportError as error:
            print(f"make_models needs other packages: {error}; try: pip install {' '.join(NEEDS)}", file=sys.stderr)
            return 2
        print(f"{name}: {path.stat().st_size / 1024:.0f} KiB")
    return 0


def make(name: str) -> onnx.ModelProto:
    """The model of a name."""
    if name in MAKERS:
        return lighten(export(MAKERS[name]()))
    base, add_head = WITH_HEADS[name]
    return add_head(onnx.load(MODELS / f"{base}.onnx"))


def export(model: TorchModel) -> onnx.ModelProto:
    """Export with the dynamo exporter; the first axis of every input is the symbol "batch"."""
    torch = import_module("torch")
    module, names = model.module.eval(), tuple(model.inputs)
    _randomise(torch, module)
    forward = module.forward

    def positional(*values: Any) -> tuple[Any, ...]:
        result = forward(**dict(zip(names, values, strict=True)), return_dict=True)
        return tuple(result[name] for name in model.outputs)

    module.forward = positional
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            tuple(model.inputs.values()),
            dynamo=True,
            opset_version=OPSET,
            input_names=names,
            output_names=model.outputs,
            dynamic_shapes={"values": tuple({0: "batch"} for _ in names)},
            verbose=False,
        )
    exported: onnx.ModelProto = program.model_proto
    return exported


def lighten(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace every weight by a `ConstantOfShape` node of the same name; integers, factors and masks stay."""
    initializers, nodes = [], []
    for weight in model.graph.initializer:
        values = numpy_helper.to_array(weight)
        if not _is_weight(values):
            initializers.append(weight)
            continue
        shape = f"{weight.name}__shape"
        initializers.append(numpy_helper.from_array(np.array(weight.dims, np.int64), shape))
        value = onnx.helper.make_tensor("value", onnx.TensorProto.FLOAT, [1], [_constant(values)])
        nodes.append(onnx.helper.make_node("ConstantOfShape", [shape], [weight.name], value=value))
    nodes += model.graph.node
    titles: Counter[str] = Counter()
    for node in nodes:
        node.name = _title(node)
        titles[node.name] += 1
        if titles[node.name] > 1:
            node.name += f"_{titles[node.name]}"
        del node.metadata_props[:]
        node.doc_string = ""
    graph = onnx.helper.make_graph(nodes, "light", model.graph.input, model.graph.output, initializers)
    for value_info in (*graph.input, *graph.output):
        del value_info.metadata_props[:]
    return onnx.helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=model.ir_version, producer_name="autoauto make_models"
    )


def _title(node: onnx.NodeProto) -> str:
    """The PyTorch module of a node and its operator, for example "encoder.layer.0.attention.output.dense.MatMul"."""
    notes = {entry.key: entry.value for entry in node.metadata_props}
    scopes = literal_eval(notes.get("pkg.torch.onnx.name_scopes", "[]"))
    scope = scopes[-2] if len(scopes) > 1 else ""
    return f"{scope}.{node.op_type}" if scope else node.op_type


def _is_weight(values: np.ndarray[Any, Any]) -> bool:
    """Whether a tensor is a weight: many floats, and more than the two values of a mask."""
    return (
        values.dtype == np.float32
        and values.size > N_FEW_ELEMENTS
        and not np.isin(values, (values.min(), values.max())).all()
    )


def _constant(weight: np.ndarray[Any, Any]) -> float:
    """The value that replaces a weight: the mean of a vector; for a matrix one that keeps the scale of activations."""
    return round(float(weight.mean()), 1) if weight.ndim < 2 else 1.0 / prod(weight.shape[1:])


def _randomise(torch: Any, module: Any) -> None:
    """Make all weights different, because the exporter merges equal ones and drops a bias of zeros."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 1e-3)


def _bert(n_layers: int, width: int, n_heads: int, n_tokens: int = SEQUENCE) -> TorchModel:
    """BERT with the SQuAD head; the mask of 0 and 1 becomes terms that are added to the scores."""
    torch = import_module("torch")
    transformers = import_module("transformers")

    config = transformers.BertConfig(
        num_hidden_layers=n_layers,
        hidden_size=width,
        num_attention_heads=n_heads,
        intermediate_size=4 * width,
        attn_implementation="eager",
    )
    model = transformers.BertForQuestionAnswering(config)
    forward = model.forward

    def masked(attention_mask: Any, **others: Any) -> Any:
        return forward(attention_mask=(1.0 - attention_mask[:, None, None, :].float()) * -1e4, **others)

    model.forward = masked
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = {name: torch.zeros(2, n_tokens, dtype=torch.int64) for name in names}
    return TorchModel(model, inputs, ("start_logits", "end_logits"))


def _gpt2() -> TorchModel:
    """GPT-2 small; its head is the embedding transposed."""
    torch = import_module("torch")
    transformers = import_module("transformers")

    config = transformers.GPT2Config(
        attn_implementation="eager", activation_function="gelu_pytorch_tanh", use_cache=False
    )
    model = transformers.GPT2LMHeadModel(config)
    forward = model.forward
    mask = torch.full((SEQUENCE, SEQUENCE), -1e4).triu(1)[None, None]
    model.forward = lambda input_ids, return_dict: forward(input_ids, attention_mask=mask, return_dict=return_dict)
    return TorchModel(model, {"input_ids": torch.zeros(2, SEQUENCE, dtype=torch.int64)}, ("logits",))


def _vit() -> TorchModel:
    """ViT-B/16 with 1,000 classes; its attention is registered under a name for which transformers makes no mask."""
    torch = import_module("torch")
    transformers = import_module("transformers")
    modeling_vit = import_module("transformers.models.vit.modeling_vit")

    transformers.AttentionInterface.register("unmasked", modeling_vit.eager_attention_forward)
    config = transformers.ViTConfig(num_labels=1000, attn_implementation="unmasked")
    return TorchModel(
        transformers.ViTForImageClassification(config), {"pixel_values": torch.zeros(2, 3, 224, 224)}, ("logits",)
    )


def _resnet() -> TorchModel:
    """ResNet-50 v1.5 (stride in the 3x3 convolution) with 1,000 classes; the exporter folds batch normalisation."""
    torch = import_module("torch")
    transformers = import_module("transformers")

    config = transformers.ResNetConfig(num_labels=1000, downsample_in_bottleneck=False)
    return TorchModel(
        transformers.ResNetForImageClassification(config), {"pixel_values": torch.zeros(2, 3, 224, 224)}, ("logits",)
    )


MAKERS: dict[str, Callable[[], TorchModel]] = {
    "resnet50": _resnet,
    "bert-base-128": lambda: _bert(12, 768, 12),
    "bert-base-256": lambda: _bert(12, 768, 12, 256),
    "bert-large-128": lambda: _bert(24, 1024, 16),
    "gpt2-small": _gpt2,
    "vit-b16": _vit,
}


def _masked_language_model(model: onnx.ModelProto, n_tokens: int) -> onnx.ModelProto:
    return with_masked_language_model(with_tokens(model, n_tokens))


def _squad(model: onnx.ModelProto, n_tokens: int) -> onnx.ModelProto:
    return with_squad_loss(with_tokens(model, n_tokens))


WITH_HEADS: dict[str, tuple[str, Callable[[onnx.ModelProto], onnx.ModelProto]]] = {
    "resnet50-train": ("resnet50", with_classifier_loss),
    "vit-b16-train": ("vit-b16", with_dropout_and_classifier_loss),
    "bert-large-384-squad": ("bert-large-128", partial(_squad, n_tokens=384)),
    **{
        f"bert-{size}-{n_tokens}-mlm": (f"bert-{size}-128", partial(_masked_language_model, n_tokens=n_tokens))
        for size in ("base", "large")
        for n_tokens in N_MASKED
    },
}
"""Models with heads for training, by the model that they are made from."""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
