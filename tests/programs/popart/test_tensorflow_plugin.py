"""A minimal pipeline for every rule of Poplar's TensorFlow plugin, which breaks only this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autoauto.programs.popart.graph import PipelineGraph
from autoauto.programs.popart.input import read_pipeline, simple_pipeline
from autoauto.programs.popart.tensorflow_plugin import (
    Lane,
    check_accumulation,
    poplar_devices,
    ramp_down,
    ramp_up,
    steady,
)
from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order
from autoauto.schedule.orders.poplar import compute_offsets, execution_order, poplar


def graph_of(*inputs: list[str], kind: str = "stream") -> PipelineGraph:
    """Layers A, B, C, ... on devices 0, 1, 2, ... that read `inputs`; "x" is of the given kind."""
    layers = [{"name": "ABCD"[i], "device": i, "inputs": names} for i, names in enumerate(inputs)]
    listed = [{"name": "x", "kind": kind}] if any("x" in names for names in inputs) else []
    return read_pipeline({"layers": layers, "tensors": listed})


def train(graph: PipelineGraph) -> tuple[int, ...]:
    return poplar_devices(graph, training=True)


def order(name: Order, devices: list[int], n_micro_batches: int, **more: Any) -> None:
    poplar(name, devices, n_micro_batches, training=True, **more)


RULES: dict[str, tuple[Callable[[], object], str]] = {
    "The number of iterations of the pipeline must be a multiple": (
        lambda: order(Order.GROUPED, [0, 1, 1, 0], 6),
        "multiple .*overlap length, got 6",
    ),
    "The number of iterations of the pipeline must be at least": (
        lambda: order(Order.GROUPED, [0, 1, 1, 0], 5, overlap_io=True),
        "at least 6 .*got 5",
    ),
    "Pipeline requires at least two": (lambda: order(Order.GROUPED, [0, 0], 2), "at least 2 .*got 1"),
    "Each stage must be mapped": (lambda: order(Order.GROUPED, [0, 1, 1], 6), r"must be mapped .*\[0, 1, 1\]"),
    "batch_serialization_iterations != 1": (
        lambda: check_accumulation(8, n_serial=2, reduction="mean"),
        "needs gradients to be reduced by sum, got mean; try sum",
    ),
    "Batch serialization is only supported": (
        lambda: order(Order.GROUPED, [0, 0, 0, 0], 8, n_serial=2),
        "sequential.* got grouped",
    ),
    "When using batch serialization": (
        lambda: order(Order.SEQUENTIAL, [0, 1, 1, 0], 8, n_serial=2),
        r"all stages on one device.*\[0, 1, 1, 0\]",
    ),
    "The pipelining schedule 'Interleaved'": (
        lambda: order(Order.POPLAR_INTERLEAVED, [0, 1, 0, 0, 1, 0], 6),
        "one stage a device",
    ),
    "Expected the number of PipelineStages": (
        lambda: train(graph_of(["in"], ["other"], ["B:0"])),
        "as many backward stages as forward ones, 3, got 2: no layer of stage 0 leads to the loss in the last stage",
    ),
    "Only a single ipu.pipeline()": (
        lambda: read_pipeline([{"layers": [{"name": "A"}]}, {"layers": [{"name": "B"}]}]),
        "a program holds a single pipeline, got 2; give each a file",
    ),
    "The <stage> is trying to use an input": (
        lambda: train(graph_of(["in", "x"], ["A:0", "x"], kind="variable")),
        "a variable cannot be copied between devices, but x is read on 0, 1; put",
    ),
    "The <stage> is trying to use an infeed": (
        lambda: train(graph_of(["in", "x"], ["A:0", "x"])),
        r"a stream \(infeed\) must be read by a single stage, but x is read by A in stage 0 and by B in stage 1; try",
    ),
    "Trying to use an output": (
        lambda: train(graph_of(["in"], ["A:0"], ["B:0", "A:0"])),
        "but A:0 of A in stage 0 is read by C in stage 2; try",
    ),
    "gradient_accumulation_count must be specified": (
        lambda: check_accumulation(None),
        "the number of micro-batches, must be given, got none",
    ),
    "gradient_accumulation_count must be >= 0": (
        lambda: check_accumulation(-1),
        "count must be 0 or more micro-batches, got -1",
    ),
}


def test_every_rule_of_the_vectors_has_a_test(vectors: Callable[[str], Any]) -> None:
    messages = vectors("pipeline_errors")["tf_poplar"]
    assert len(messages) == len(RULES)
    assert all(message.startswith(start) for message, start in zip(messages, RULES, strict=True))


@pytest.mark.parametrize("rule", RULES)
def test_a_broken_rule_is_refused_in_one_line(rule: str) -> None:
    breaks, message = RULES[rule]
    with pytest.raises(BadInput, match=message) as refusal:
        breaks()
    assert "\n" not in str(refusal.value)


def test_an_output_may_not_go_back() -> None:
    layers = [{"name": "A", "device": 0, "stage": 1}, {"name": "B", "device": 1, "stage": 0}]
    with pytest.raises(BadInput, match="A:0 of A in stage 1 is read by B in stage 0"):
        train(read_pipeline({"layers": layers}))


def test_inference_needs_no_gradients() -> None:
    graph = graph_of(["in"], ["other"], ["B:0"])
    assert poplar_devices(graph, training=False) == (0, 1, 2)


def test_the_devices_make_an_order() -> None:
    devices = train(simple_pipeline(2))
    assert devices == (0, 1, 1, 0)
    assert poplar(Order.GROUPED, devices, 8, training=True).n_stages == 2


@pytest.mark.parametrize(
    ("arguments", "is_refused"),
    [
        ({"n_micro_batches": 0}, False),
        ({"n_micro_batches": 8, "n_serial": 4}, False),
        ({"n_micro_batches": 8, "reduction": "mean"}, False),
        ({"n_micro_batches": 8, "n_serial": 4, "reduction": "mean"}, True),
    ],
)
def test_only_serial_batches_need_a_sum(arguments: dict[str, Any], is_refused: bool) -> None:
    refusals = []
    try:
        check_accumulation(**arguments)
    except BadInput as refusal:
        refusals.append(refusal)
    assert bool(refusals) is is_refused


ABCD = ("abcd", (0, 1, 2, 3))


def test_the_strings_agree_with_the_vectors(vectors: Callable[[str], Any]) -> None:
    strings = vectors("tf_poplar_schedules")["schedule_strings_stages_abcd_offsets_0123"]
    assert steady(*ABCD) == strings["steady"]
    assert ramp_up(*ABCD) == strings["ramp_up"]
    assert ramp_down(*ABCD) == strings["ramp_down"]
    assert ramp_up(*ABCD, recompute=True) == strings["ramp_up_recompute_2bwd"]
    assert ramp_down(*ABCD, recompute=True) == strings["ramp_down_recompute_2bwd"]
    overlapped = strings["overlap_io"]
    assert steady(*ABCD, overlap_io=True) == overlapped["steady"]
    assert {lane.name.lower(): ramp_up(*ABCD, lane=lane) for lane in Lane} == overlapped["ramp_up"]
    assert {lane.name.lower(): ramp_down(*ABCD, lane=lane) for lane in Lane} == overlapped["ramp_down"]


@pytest.mark.parametrize("order", [Order.GROUPED, Order.POPLAR_INTERLEAVED, Order.SEQUENTIAL])
@pytest.mark.parametrize("n_devices", [2, 3, 4])
def test_the_strings_spell_the_order_of_execution(order: Order, n_devices: int) -> None:
    devices = [*range(n_devices), *reversed(range(n_devices))]
    offsets = compute_offsets(order, devices)
    schedule = poplar(order, devices, 4 * len(offsets), training=True)
    letters = "abcdefgh"[: len(devices)]
    loop = steady(letters, offsets, grouped=order is Order.GROUPED)
    spelt = (ramp_up(letters, offsets) + 3 * loop + ramp_down(letters, offsets)).replace(".", "")
    assert spelt == "".join(letters[number] for number in execution_order(schedule))


def test_recomputation_in_an_interleaved_ramp_up() -> None:
    """Stages 0 to 3 and backwards 4 to 7, micro-batches two timesteps apart.

    forwards run       0 1 20 31 20 31 20 31
    backwards run      . . .  .  4  5  64 75
    recomputations     . . .  3  2  31 20 31

    Stage 3 runs just before every backward 4; of stage 0, only the last is followed by no other before backward 7.
    """
    string = ramp_up("01234567", (0, 2, 4, 6), recompute=True)
    timesteps = [string[i : i + 4].replace(".", "") for i in range(0, len(string), 4)]
    assert timesteps == ["", "", "", "3", "2", "31", "20", "31"]
