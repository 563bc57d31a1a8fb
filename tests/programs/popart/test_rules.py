"""A minimal pipeline for every rule of PopART's, which breaks only this one."""

from collections.abc import Callable
from typing import Any

import pytest

from autoauto.programs.popart.graph import PipelineGraph
from autoauto.programs.popart.input import read_pipeline, simple_pipeline
from autoauto.programs.popart.passes import forward_ops
from autoauto.programs.popart.rules import check_graph
from autoauto.programs.popart.transform import assemble, transform
from autoauto.records.errors import BadInput

Entry = dict[str, Any]


def layer(name: str, device: int | None = None, stage: int | None = None, **more: object) -> Entry:
    return {"name": name, "device": device, "stage": stage, **more}


def train(graph: PipelineGraph, n_micro_batches: int = 99, *, recompute: bool = False) -> None:
    transform(graph, n_micro_batches, training=True, recompute=recompute)


def infer(graph: PipelineGraph, n_micro_batches: int = 99) -> None:
    transform(graph, n_micro_batches, training=False, recompute=False)


def graph_of(*layers: Entry, **more: object) -> PipelineGraph:
    return read_pipeline({"layers": list(layers), **more})


def skip(reads: str, *tensors: Entry) -> PipelineGraph:
    """A on device 0, B on device 1, and both read one more tensor."""
    a, b = layer("A", 0, inputs=["in", reads]), layer("B", 1, inputs=["A:0", reads])
    return graph_of(a, b, tensors=list(tensors))


TENSOR_ANCHORED = [{"name": "in", "kind": "stream", "anchored": True}]
AB, ABC = [layer("A", 0), layer("B", 1)], [layer("A", 0), layer("B", 1), layer("C", 2)]

RULES: dict[str, tuple[Callable[[], object], str]] = {
    "Pipelining requires more than 1 IPU": (
        lambda: train(simple_pipeline(1)),
        r"needs layers on 2 or more devices \(virtual graphs\), got 1; set `device`",
    ),
    "Only some ops have had their pipeline stage set.": (
        lambda: train(graph_of(layer("A", 0, 0), layer("B", 1), layer("C", 1, 1))),
        "all layers or none must have a stage, got none for B; set",
    ),
    "Ops {} have the same pipeline stage": (
        lambda: train(graph_of(layer("A", 0, 0), layer("B", 0, 1), layer("C", 1, 1))),
        "a stage must be on one device, but B, C of stage 1 are on 0, 1",
    ),
    "For pipelining, depth (batchesPerStep)": (
        lambda: infer(graph_of(*ABC), 2),
        r"micro-batches \(batches per step\) as stages, 3 or more, got 2; try more",
    ),
    "For pipelining, depth (gradient accumulation factor)": (
        lambda: train(graph_of(*ABC), 4),
        r"micro-batches \(gradient accumulation factor\) as stages, 5 or more, got 4; try more",
    ),
    "The set of pipeline stages for all Ops": (
        lambda: train(graph_of(layer("A", 0, 0), layer("B", 1, 2))),
        "numbered from 0 without a gap, got 2 stages, but no stage 1; renumber",
    ),
    "Tensor ... is consumed in an earlier": (
        lambda: train(graph_of(layer("A", 0), layer("B", 1), layer("C", 0))),
        "B:0 is made by B in stage 1 and read by C in stage 0; try",
    ),
    "Can not copy variable tensor": (
        lambda: train(skip("w", {"name": "w", "kind": "variable"})),
        "a variable cannot be copied between devices, but w is read on 0, 1; put",
    ),
    "For pipelining, stream tensors": (
        lambda: train(skip("s", {"name": "s", "kind": "stream", "streamed_to": [0, 1]})),
        "a stream must go to one device, that of its first reader, 0 for s, got 0, 1; other",
    ),
    "When pipelining is enabled, user annotation": (
        lambda: train(graph_of(layer("A", 0), layer("B", 1, recompute=True))),
        "does not take single layers to recompute, got B; try",
    ),
    "Copy op {}, goes from stage": (
        lambda: train(graph_of(layer("A", 0, 1), layer("B", 1, 0))),
        "a copy must go to a later stage, but that of A:0 from A to B goes from stage 1 to stage 0; try",
    ),
    "Op has bad pipeline stage": (
        lambda: train(graph_of(layer("A", 0, -1), layer("B", 1, 0))),
        "a stage must be 0 or more, got -1 for A; number",
    ),
    "Pipeline mainCycles": (
        lambda: assemble(forward_ops(simple_pipeline(3)), 2),
        "main phase needs 1 cycle or more, got 0 with 2 micro-batches in 3 stages; try",
    ),
    "Implicit pipelining forward-only": (
        lambda: train(graph_of(*AB, forward_only_program=True)),
        "a forward-only program beside the training is not supported, got forward_only_program: true; try",
    ),
    "A recompute Op consumes": (
        lambda: train(graph_of(layer("A", 0), layer("B", 0), layer("C", 1), tensors=TENSOR_ANCHORED), recompute=True),
        "recomputed reads in, so a stash must restore it in place, but it is anchored; drop",
    ),
}


def test_every_rule_of_the_vectors_has_a_test(vectors: Callable[[str], Any]) -> None:
    messages = vectors("pipeline_errors")["popart"]
    assert len(messages) == len(RULES)
    assert all(message.startswith(start) for message, start in zip(messages, RULES, strict=True))


@pytest.mark.parametrize("rule", RULES)
def test_a_broken_rule_is_refused_in_one_line(rule: str) -> None:
    breaks, message = RULES[rule]
    with pytest.raises(BadInput, match=message) as refusal:
        breaks()
    assert "\n" not in str(refusal.value)


def test_no_device_is_refused_like_one_device() -> None:
    with pytest.raises(BadInput, match=r"on 2 or more devices .* got 0"):
        check_graph(graph_of(layer("A", stage=0), layer("B", stage=1)))


def test_all_layers_need_devices() -> None:
    with pytest.raises(BadInput, match="got none for C"):
        check_graph(graph_of(*AB, layer("C")))


def test_a_later_stage_may_be_on_an_earlier_device() -> None:
    graph = graph_of(layer("A", 0, 0), layer("B", 1, 1), layer("C", 0, 2))
    assert transform(graph, 9, training=False, recompute=False).devices == (0, 1, 0)


def test_an_earlier_stage_on_the_same_device_is_no_copy() -> None:
    a, b = layer("A", 0, 2), layer("B", 0, 0)
    with pytest.raises(BadInput, match="a tensor must be read in the stage that makes it or later"):
        check_graph(graph_of(a, b, layer("C", 1, 1, inputs=["in"])))


@pytest.mark.parametrize("kind", ["constant", "optimizer", "stream"])
def test_only_variables_are_bound_to_a_device(kind: str) -> None:
    assert transform(skip("x", {"name": "x", "kind": kind}), 9, training=False, recompute=False).devices == (0, 1)


def test_a_stream_goes_where_its_first_reader_is() -> None:
    pipeline = transform(
        skip("x", {"name": "x", "kind": "stream", "streamed_to": [0]}), 9, training=False, recompute=False
    )
    assert [(op.name, op.device) for op in pipeline.ops if op.name == "load x"] == [("load x", 0)]
    with pytest.raises(BadInput, match="first reader, 0 for x, got 1"):
        check_graph(skip("x", {"name": "x", "kind": "stream", "streamed_to": [1]}))


def test_without_recomputation_an_input_may_be_an_anchor() -> None:
    pipeline = transform(graph_of(*AB, tensors=TENSOR_ANCHORED), 9, training=True, recompute=False)
    assert "store in" in {op.name for op in pipeline.ops}


def test_a_long_list_of_names_is_cut() -> None:
    layers = [layer(f"L{i}", 0, 0, recompute=True) for i in range(8)]
    with pytest.raises(BadInput, match="got L0, L1, L2, L3, L4, and 3 more; try"):
        check_graph(graph_of(*layers, layer("end", 1, 1)))
