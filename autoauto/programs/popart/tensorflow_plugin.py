"""Poplar's TensorFlow plugin [poplar-tensorflow]: the graphs that it refuses, and its schedules written as strings.

Rules: tests/vectors/pipeline_errors.json, "tf_poplar"; those on stages, devices and multiples of micro-batches are in
schedule/orders/poplar.py. A string lists timesteps one after the other; in each, it has a letter for the stage
of every micro-batch under way, or a dot.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from autoauto.programs.popart.graph import PipelineGraph, PipelineLayer, TensorKind
from autoauto.programs.popart.passes import backward_ops
from autoauto.programs.popart.rules import check_layout, check_variables_stay, device_of, stage_of
from autoauto.records.errors import BadInput
from autoauto.records.units import BoolArray, IntArray

_EMPTY = -1


def poplar_devices(graph: PipelineGraph, *, training: bool) -> tuple[int, ...]:
    """The device of every stage of a graph, in training those of the backward stages too, as `poplar` takes them.

    Raises BadInput if the plugin refuses the graph.
    """
    check_layout(graph)
    check_variables_stay(graph)
    _check_streams(graph)
    _check_data_goes_to_the_next_stage(graph)
    devices = {stage_of(layer): device_of(layer) for layer in graph.layers}
    forward = tuple(devices[stage] for stage in range(len(devices)))
    if training:
        backward_ops(graph)  # refuses a stage without a gradient
        return forward + forward[::-1]
    return forward


def check_accumulation(n_micro_batches: int | None, n_serial: int = 1, reduction: str = "sum") -> None:
    """Check the accumulation of gradients over micro-batches, of which a stage runs `n_serial` at a time.

    Raises BadInput if the plugin does not accumulate like this.
    """
    if n_micro_batches is None:
        raise BadInput("the gradient accumulation count, the number of micro-batches, must be given, got none")
    if n_micro_batches < 0:
        raise BadInput(f"the gradient accumulation count must be 0 or more micro-batches, got {n_micro_batches}")
    if n_serial != 1 and reduction != "sum":
        raise BadInput(f"batch serialisation needs gradients to be reduced by sum, got {reduction}; try sum")


def _check_streams(graph: PipelineGraph) -> None:
    readers: dict[str, PipelineLayer] = {}
    for layer in graph.layers:
        for name in layer.inputs:
            first = readers.setdefault(name, layer)
            if graph.tensors[name].kind is TensorKind.STREAM and stage_of(first) != stage_of(layer):
                raise BadInput(
                    f"a stream (infeed) must be read by a single stage, but {name} is read by {first.name} in stage "
                    f"{stage_of(first)} and by {layer.name} in stage {stage_of(layer)}; try to pass it on as an output"
                )


def _check_data_goes_to_the_next_stage(graph: PipelineGraph) -> None:
    makers = graph.makers
    for layer in graph.layers:
        for name in layer.inputs:
            maker = makers.get(name, layer)
            if stage_of(layer) - stage_of(maker) not in (0, 1):
                raise BadInput(
                    f"an output must be read by its own stage, the next, or its gradient, but {name} of {maker.name} "
                    f"in stage {stage_of(maker)} is read by {layer.name} in stage {stage_of(layer)}; try to pass it on"
                )


class Lane(IntEnum):
    """The lanes of a grouped pipeline with overlapped I/O: a micro-batch changes to the next lane every timestep."""

    IN = 0
    COMPUTE = 1
    OUT = 2


def ramp_up(stages: str, offsets: Sequence[int], *, lane: Lane | None = None, recompute: bool = False) -> str:
    """The first timesteps: as many as there are stages, and 2 more where I/O overlaps and this is one of its lanes.

    With `recompute` the string shows the recomputations of forward stages, the first half of `stages`: each runs beside
    the last forward before a backward of its stage.
    """
    running = np.where(_started(offsets, len(stages)), _turn(offsets, len(stages)), _EMPTY)
    if recompute:
        running = np.where(_is_recomputed(running, len(stages)), running, _EMPTY)
    if lane is not None:
        running = np.hstack((_idle(running, lane), running, _grouped(running)[:, lane : Lane.OUT]))
    return _write(running, stages)


def steady(stages: str, offsets: Sequence[int], *, grouped: bool = True, overlap_io: bool = False) -> str:
    """One iteration of the loop between ramp-up and ramp-down; grouped, all its timesteps are alike."""
    turn = _turn(offsets, len(stages))
    if grouped:
        turn = _grouped(turn)
    if overlap_io:
        turn = np.hstack((turn, turn[:, : Lane.OUT]))
    return _write(turn, stages)


def ramp_down(stages: str, offsets: Sequence[int], *, lane: Lane | None = None, recompute: bool = False) -> str:
    """The last timesteps, in which no micro-batch starts; see `ramp_up`.

    With `recompute` the string shows the recomputations, as in the loop, of forward stages whose backward is to come.
    """
    turn = _turn(offsets, len(stages))
    running = np.where(_started(offsets, len(stages)), _EMPTY, turn)
    if recompute:
        running = np.where(_has_backward_to_come(turn, running, len(stages)), turn, _EMPTY)
    if lane is not None:
        running = np.hstack((_grouped(turn)[:, :lane], running, _idle(running, Lane.OUT - lane)))
    return _write(running, stages)


def _turn(offsets: Sequence[int], n_stages: int) -> IntArray:
    """(n_offsets, n_stages) the stage of a row's micro-batch in every timestep of the loop."""
    turn: IntArray = (np.arange(n_stages) - np.array(offsets)[:, np.newaxis]) % n_stages
    return turn


def _started(offsets: Sequence[int], n_stages: int) -> BoolArray:
    """(n_offsets, n_stages) whether the first micro-batch of a row has started in a timestep of the ramp-up."""
    return np.arange(n_stages) >= np.array(offsets)[:, np.newaxis]


def _grouped(turn: IntArray) -> IntArray:
    """The loop of a grouped pipeline: in every timestep from the last stage to the first."""
    return np.repeat(np.arange(len(turn))[::-1, np.newaxis], turn.shape[1], axis=1)


def _idle(like: IntArray, n_steps: int) -> IntArray:
    return np.full((len(like), n_steps), _EMPTY)


def _is_recomputed(running: IntArray, n_stages: int) -> BoolArray:
    """Whether a forward stage of a ramp-up runs for the last time before its backward, or for the last time at all."""
    mask = np.zeros(running.shape, dtype=np.bool_)
    for row, step in np.argwhere((running >= 0) & (running < n_stages // 2)):
        # By later timestep, whether any micro-batch runs this stage again, and whether any runs its backward.
        later = running[:, step + 1 :].T
        stage = running[row, step]
        again = (later == stage).any(axis=1)
        backward = (later == n_stages - 1 - stage).any(axis=1)
        mask[row, step] = not again.any() or backward[: again.argmax() + 1].any()
    return mask


def _has_backward_to_come(turn: IntArray, running: IntArray, n_stages: int) -> BoolArray:
    """Whether a forward stage of the loop has a backward that runs later in the ramp-down."""
    mask = np.zeros(turn.shape, dtype=np.bool_)
    for row, step in np.argwhere(turn < n_stages // 2):
        mask[row, step] = (running[:, step + 1 :] == n_stages - 1 - turn[row, step]).any()
    return mask


def _write(running: IntArray, stages: str) -> str:
    return "".join("." if stage == _EMPTY else stages[stage] for stage in running.T.ravel())
