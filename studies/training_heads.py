"""Heads for training: a built-in model whose output is the loss of every sample, from the same model for inference.

Also BERT for longer sequences, from that for 128 tokens. BERT and ViT drop a tenth of their embeddings and of what
their layers add to them, as in training. Batch normalisation, which the exporter folded into convolutions, comes back;
the cost model takes its statistics from the micro-batch in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

N_MASKED = {128: 20, 384: 56, 512: 76}  # tokens of a sequence that are masked [graphcore-examples]
VOCABULARY = 30_522


def with_tokens(model: onnx.ModelProto, n_tokens: int) -> onnx.ModelProto:
    """BERT for 128 tokens with as many tokens: only its positions and shapes say how many there are."""
    for values in model.graph.initializer:
        array = numpy_helper.to_array(values)
        if values.name.startswith("slice_"):
            values.CopyFrom(numpy_helper.from_array(np.arange(n_tokens, dtype=array.dtype)[None], values.name))
        elif array.ndim == 1 and array.size > 2 and array[:2].tolist() == [-1, 128]:
            values.CopyFrom(numpy_helper.from_array(np.array([-1, n_tokens, *array[2:]], array.dtype), values.name))
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.shape.dim[1].dim_value = n_tokens
    return model


def with_classifier_loss(model: onnx.ModelProto) -> onnx.ModelProto:
    """ResNet-50 with batch normalisation and the cross-entropy of the logits; labels are one more input."""
    head = _Head(model)
    for conv in [node for node in model.graph.node if node.op_type == "Conv"]:
        _normalise_batch(head, conv)
    head.add_input("labels", [1])
    head.add_loss("logits", "labels")
    return head.finish()


def with_dropout_and_classifier_loss(model: onnx.ModelProto) -> onnx.ModelProto:
    """ViT with dropout and the cross-entropy of the logits; labels are one more input."""
    head = _Head(model)
    _drop_out(head, ("embeddings.Add", "attention.o_proj.Add", "mlp.fc2.Add"))
    head.add_input("labels", [1])
    head.add_loss("logits", "labels")
    return head.finish()


def with_masked_language_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """BERT with dropout and the head of masked language modelling with its cross-entropy, in place of that of SQuAD.

    The head reads the masked tokens only, whose positions and labels are two more inputs. Its projection to the
    vocabulary has a weight of its own, because tied to the embedding it would have to be on the same device. The
    prediction of the next sentence, a thousandth of the head, is left out.
    """
    head = _Head(model)
    _drop_out(head, ("embeddings.LayerNorm.LayerNormalization", "output.dense.Add"))
    n_masked = N_MASKED[model.graph.input[0].type.tensor_type.shape.dim[1].dim_value]
    hidden = next(node for node in model.graph.node if node.name == "qa_outputs.MatMul").input[0]
    others = [node for node in model.graph.node if not node.name.startswith(("qa_outputs", "Split", "Squeeze"))]
    last = next(node for node in others if hidden in node.output)
    width = next(node for node in model.graph.node if node.output[0] == last.input[1])
    n_hidden = head.shape_of(width)[0]
    head.replace_nodes(
        others[: others.index(last) + 1] + [node for node in others[others.index(last) + 1 :] if not node.input]
    )
    head.add_input("masked_positions", [n_masked, 1])
    head.add_input("labels", [n_masked, 1])
    head.add("GatherND", "cls.GatherND", [hidden, "masked_positions"], "masked", batch_dims=1)
    dense = head.weight("cls.transform.dense.weight", [n_hidden, n_hidden], 1 / n_hidden)
    head.add("MatMul", "cls.transform.dense.MatMul", ["masked", dense], "transformed")
    bias = head.weight("cls.transform.dense.bias", [n_hidden], 0.0)
    head.add("Add", "cls.transform.dense.Add", ["transformed", bias], "biased")
    head.add("Gelu", "cls.transform.Gelu", ["biased"], "active")
    norm = [
        head.weight(f"cls.transform.LayerNorm.{name}", [n_hidden], v) for name, v in (("weight", 1.0), ("bias", 0.0))
    ]
    head.add("LayerNormalization", "cls.transform.LayerNorm", ["active", *norm], "normalised", axis=-1, epsilon=1e-12)
    decoder = head.weight("cls.decoder.weight", [n_hidden, VOCABULARY], 1 / n_hidden)
    head.add("MatMul", "cls.decoder.MatMul", ["normalised", decoder], "scores")
    head.add("Add", "cls.decoder.Add", ["scores", head.weight("cls.decoder.bias", [VOCABULARY], 0.0)], "logits")
    head.add_loss("logits", "labels")
    return head.finish()


def with_squad_loss(model: onnx.ModelProto) -> onnx.ModelProto:
    """BERT with dropout, of attention as well, and its head of SQuAD: where the answer starts and where it ends.

    The loss is the sum of both cross-entropies.
    """
    head = _Head(model)
    _drop_out(head, ("embeddings.LayerNorm.LayerNormalization", "output.dense.Add", "attention.self.Softmax"))
    head.replace_nodes([node for node in model.graph.node if not node.name.startswith(("Split", "Squeeze"))])
    logits = next(node for node in model.graph.node if node.name == "qa_outputs.Add").output[0]
    head.add_input("labels", [1, 2])
    head.add_loss(logits, "labels", axis=1)
    return head.finish()


def _drop_out(head: _Head, endings: tuple[str, ...]) -> None:
    """Put a Dropout behind the nodes whose names end so; pre-training drops no attention [graphcore-examples]."""
    values = (np.array(0.1, np.float32), np.array(True))
    names = ("dropout__ratio", "dropout__training")
    head.model.graph.initializer.extend(map(numpy_helper.from_array, values, names))
    for node in [node for node in head.model.graph.node if node.name.endswith(endings)]:
        module, output = node.name.rpartition(".")[0], node.output[0]
        node.output[0] = f"{output}_all"
        inputs = [node.output[0], *names]
        head.insert_after(node, "Dropout", f"{module}.dropout.Dropout", inputs, output, seed=0)


def _normalise_batch(head: _Head, conv: onnx.NodeProto) -> None:
    """Put a BatchNormalization behind a convolution, whose bias it makes needless."""
    module, output = conv.name.removesuffix(".Conv"), conv.output[0]
    n_channels = head.shape_of(next(node for node in head.model.graph.node if node.output[0] == conv.input[1]))[0]
    bias = next(node for node in head.model.graph.node if node.output[0] == conv.input[2])
    head.model.graph.node.remove(bias)
    del conv.input[2]
    conv.name, conv.output[0] = f"{module.removesuffix('normalization')}convolution.Conv", f"{output}_convolved"
    values = {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}
    weights = [head.weight(f"{module}.{name}", [n_channels], value) for name, value in values.items()]
    names = [conv.output[0], *weights]
    head.insert_after(conv, "BatchNormalization", f"{module}.BatchNormalization", names, output)


class _Head:
    """A model that nodes are added to."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model

    def shape_of(self, weight: onnx.NodeProto) -> list[int]:
        """The shape of a weight that a ConstantOfShape makes."""
        [shape] = (values for values in self.model.graph.initializer if values.name == weight.input[0])
        return [int(n) for n in numpy_helper.to_array(shape)]

    def weight(self, name: str, shape: Sequence[int], value: float) -> str:
        """Add a weight, all of one value, before all other nodes."""
        made = f"{name}__shape"
        self.model.graph.initializer.append(numpy_helper.from_array(np.array(shape, np.int64), made))
        constant = helper.make_tensor("value", TensorProto.FLOAT, [1], [value])
        node = helper.make_node("ConstantOfShape", [made], [name], name=f"{name}.ConstantOfShape", value=constant)
        self.model.graph.node.insert(0, node)
        return name

    def add(self, operator: str, name: str, inputs: Sequence[str], output: str, **attributes: Any) -> None:
        """Add a node behind all others."""
        self.model.graph.node.append(helper.make_node(operator, inputs, [output], name=name, **attributes))

    def insert_after(
        self, node: onnx.NodeProto, operator: str, name: str, inputs: Sequence[str], output: str, **attributes: Any
    ) -> None:
        """Add a node behind another one."""
        position = list(self.model.graph.node).index(node) + 1
        made = helper.make_node(operator, inputs, [output], name=name, **attributes)
        self.model.graph.node.insert(position, made)

    def replace_nodes(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Keep these nodes only."""
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del self.model.graph.node[:]
        self.model.graph.node.extend(copies)

    def add_input(self, name: str, shape: Sequence[int]) -> None:
        """Add an input of integers; the batch is its first axis."""
        self.model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", *shape]))

    def add_loss(self, logits: str, labels: str, axis: int = -1) -> None:
        """Add the cross-entropy of every sample, whose classes lie along an axis, and make it the only output."""
        self.add("LogSoftmax", "loss.LogSoftmax", [logits], "log_probabilities", axis=axis)
        self.add("GatherElements", "loss.GatherElements", ["log_probabilities", labels], "of_labels", axis=axis)
        self.add("Neg", "loss.Neg", ["of_labels"], "losses")
        axes = list(
            range(1, len(next(i for i in self.model.graph.input if i.name == labels).type.tensor_type.shape.dim))
        )
        self.model.graph.initializer.append(numpy_helper.from_array(np.array(axes, np.int64), "loss__axes"))
        self.add("ReduceSum", "loss.ReduceSum", ["losses", "loss__axes"], "loss", keepdims=0)
        del self.model.graph.output[:]
        self.model.graph.output.append(helper.make_tensor_value_info("loss", TensorProto.FLOAT, ["batch"]))

    def finish(self) -> onnx.ModelProto:
        """The model, without weights and shapes that no node reads any more."""
        read = {name for node in self.model.graph.node for name in node.input}
        self.replace_nodes(
            [node for node in self.model.graph.node if node.op_type != "ConstantOfShape" or node.output[0] in read]
        )
        read = {name for node in self.model.graph.node for name in node.input}
        used = [values for values in self.model.graph.initializer if values.name in read]
        del self.model.graph.initializer[:]
        self.model.graph.initializer.extend(used)
        onnx.checker.check_model(self.model)
        return self.model
