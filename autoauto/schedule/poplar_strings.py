"""Ramp-up, steady phase and ramp-down of a Poplar pipeline, written with a letter for every stage.

Strings go timestep after timestep, and within one by micro-batch; a dot is a stage that does not run. The rules are
those of the TensorFlow plugin (tensorflow/compiler/plugin/poplar/driver/visitors/pipeline_visitor_utils.h).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from autoauto.records.schedule import IntArray

_EMPTY = -1


class Lane(IntEnum):
    """What overlaps in a grouped pipeline: a micro-batch comes in, is computed a timestep later, and then goes out."""

    IN = 0
    COMPUTE = 1
    OUT = 2


def ramp_up(stages: str, offsets: Sequence[int], *, lane: Lane | None = None, recompute: bool = False) -> str:
    """The first timesteps: as many as there are stages, and 2 more where I/O overlaps and this is one of its lanes.

    With `recompute` it is the recomputation of forward stages, the first half of `stages`: it runs beside the last
    forward before a backward of its stage.

    >>> ramp_up("abcd", [0, 1, 2, 3]), ramp_up("ab", [0, 1], lane=Lane.COMPUTE)
    ('a...ba..cba.dcba', '..a.baba')
    """
    running = np.where(_started(offsets, len(stages)), _turn(offsets, len(stages)), _EMPTY)
    if recompute:
        running = np.where(_is_recomputed(running, len(stages)), running, _EMPTY)
    if lane is not None:
        running = np.hstack((_idle(running, lane), running, _grouped(running)[:, lane : Lane.OUT]))
    return _write(running, stages)


def steady(stages: str, offsets: Sequence[int], *, grouped: bool = True, overlap_io: bool = False) -> str:
    """One turn of the loop between ramp-up and ramp-down; grouped, all its timesteps are alike.

    >>> steady("abcd", [0, 1, 2, 3]), steady("abcd", [0, 2], grouped=False)
    ('dcbadcbadcbadcba', 'acbdcadb')
    """
    turn = _turn(offsets, len(stages))
    if grouped:
        turn = _grouped(turn)
    return _write(np.hstack((turn, turn[:, : Lane.OUT])) if overlap_io else turn, stages)


def ramp_down(stages: str, offsets: Sequence[int], *, lane: Lane | None = None, recompute: bool = False) -> str:
    """The last timesteps, in which no micro-batch starts; see `ramp_up`.

    With `recompute` it is the recomputation of forward stages, where the loop has them, whose backward is to come.

    >>> ramp_down("abcd", [0, 1, 2, 3]), ramp_down("abcd", [0, 1, 2, 3], recompute=True)
    ('.dcb..dc...d....', 'a..b.a..........')
    """
    turn = _turn(offsets, len(stages))
    running = np.where(_started(offsets, len(stages)), _EMPTY, turn)
    if recompute:
        running = np.where(_has_backward_to_come(turn, running, len(stages)), turn, _EMPTY)
    if lane is not None:
        running = np.hstack((_grouped(turn)[:, :lane], running, _idle(running, Lane.OUT - lane)))
    return _write(running, stages)


def _turn(offsets: Sequence[int], n_stages: int) -> IntArray:
    """(n_offsets, n_stages) the stage that a row's micro-batch is on in every timestep of the loop."""
    turn: IntArray = (np.arange(n_stages) - np.array(offsets)[:, np.newaxis]) % n_stages
    return turn


def _started(offsets: Sequence[int], n_stages: int) -> npt.NDArray[np.bool_]:
    """(n_offsets, n_stages) whether the first micro-batch of a row has started, and the last of it has not ended."""
    return np.arange(n_stages) >= np.array(offsets)[:, np.newaxis]


def _grouped(turn: IntArray) -> IntArray:
    """The loop of a grouped pipeline: in every timestep from the last stage to the first."""
    return np.repeat(np.arange(len(turn))[::-1, np.newaxis], turn.shape[1], axis=1)


def _idle(like: IntArray, n_steps: int) -> IntArray:
    return np.full((len(like), n_steps), _EMPTY)


def _is_recomputed(running: IntArray, n_stages: int) -> npt.NDArray[np.bool_]:
    """Of a ramp-up, whether a forward stage runs for the last time, or before its backward runs."""
    mask = np.zeros(running.shape, dtype=np.bool_)
    for row, step in np.argwhere((running >= 0) & (running < n_stages // 2)):
        later = running[:, step + 1 :].T
        stage = running[row, step]
        again = (later == stage).any(axis=1)
        backward = (later == n_stages - 1 - stage).any(axis=1)
        mask[row, step] = not again.any() or backward[: again.argmax() + 1].any()
    return mask


def _has_backward_to_come(turn: IntArray, running: IntArray, n_stages: int) -> npt.NDArray[np.bool_]:
    """Of the loop, which forward stages have a backward that runs later in a ramp-down."""
    mask = np.zeros(turn.shape, dtype=np.bool_)
    for row, step in np.argwhere(turn < n_stages // 2):
        mask[row, step] = (running[:, step + 1 :] == n_stages - 1 - turn[row, step]).any()
    return mask


def _write(running: IntArray, stages: str) -> str:
    return "".join("." if stage == _EMPTY else stages[stage] for stage in running.T.ravel())
