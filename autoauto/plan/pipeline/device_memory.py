"""What the stages of a device need together, `device_memory`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from autoauto.records.arrays import IntArray
from autoauto.records.profile import STASH, TEMPORARY, category


class StageBytes(NamedTuple):
    """The memory of one stage.

    Attributes:
        exclusive_bytes: always in use, by category.
        shared_bytes: by key; equal keys on one device are stored once.
        temporary_bytes: the peak of the current micro-batch, its stash entry included.
        entry_bytes: what it stashes for one micro-batch until the backward pass.
    """

    exclusive_bytes: Mapping[str, int]
    shared_bytes: Mapping[str, int]
    temporary_bytes: int
    entry_bytes: int


def device_memory(stages: Sequence[StageBytes], in_flight: IntArray) -> list[dict[str, int]]:
    """The memory of every stage by category, so that the sum over the stages of a device is what it needs.

    Exclusive bytes add up, a shared key counts in the first stage that has it. One stage runs at a time, so of what
    they use besides their stash the largest counts, in its stage. The stash is that of the moment in which it is
    largest.

    Args:
        stages: of one device, in the order of their layers.
        in_flight: (moments, stages) how many micro-batches of every stage are in flight, the current one included, at
            every moment at which the stash may be largest.

    >>> one = StageBytes({"parameter": 5}, {"vertexCode_a": 2}, temporary_bytes=9, entry_bytes=4)
    >>> device_memory([one], np.array([[3]]))
    [{'parameter': 5, 'vertexCode': 2, 'temporary': 9, 'stash': 8}]
    >>> device_memory([one, one._replace(temporary_bytes=7)], np.array([[3, 1], [2, 2]]))[1]
    {'parameter': 5, 'temporary': 0, 'stash': 4}
    """
    entries = np.array([stage.entry_bytes for stage in stages], dtype=np.int64)
    counts = in_flight[int((in_flight @ entries).argmax())].tolist()
    largest = max(range(len(stages)), key=lambda index: stages[index].temporary_bytes - stages[index].entry_bytes)
    stored: set[str] = set()
    memories = []
    for index, (stage, count) in enumerate(zip(stages, counts, strict=True)):
        memory = dict(stage.exclusive_bytes)
        for key, n_bytes in stage.shared_bytes.items():
            if key not in stored:
                memory[category(key)] = memory.get(category(key), 0) + n_bytes
        stored |= set(stage.shared_bytes)
        temporary = stage.temporary_bytes if index == largest else 0
        if index == largest and not count:
            temporary -= stage.entry_bytes
        memory[TEMPORARY] = memory.get(TEMPORARY, 0) + temporary
        n_others = count - 1 if index == largest and count else count
        memory[STASH] = memory.get(STASH, 0) + n_others * stage.entry_bytes
        memories.append(memory)
    return memories
