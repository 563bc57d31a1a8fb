"""Inference where several devices run a stage and take its micro-batches in turn: the `in_turn` timeline.

Three stages, of which the middle one takes twice as long and has two devices:

    device 0   0F0 0F1 0F2 0F3
    device 1       1F0---- 1F2----
    device 2           1F1---- 1F3----
    device 3               2F0 2F1 2F2 2F3
"""

from __future__ import annotations

import numpy as np

from autoauto.records.plans.timeline import Timeline
from autoauto.records.schedule import Schedule, StageTimes


def in_turn(schedule: Schedule, times: StageTimes) -> Timeline:
    """The timeline of a schedule of `Schedule.of_inference`, with transfers while devices compute.

    A micro-batch starts in a stage when it has arrived at the device whose turn it is, and that device has stopped with
    the one before. A device sends one message after the other, and receives one after the other; the host has a link to
    every device of the first stage and of the last.
    """
    forward, links = times.forward.tolist(), times.forward_links.tolist()
    stops = np.zeros((schedule.n_stages, schedule.n_micro_batches), dtype=np.int64)
    computed, received, sent = ([0] * schedule.n_devices for _ in range(3))
    for t in range(schedule.n_micro_batches):
        path = [devices[t % len(devices)] for devices in map(schedule.devices_of, range(schedule.n_stages))]
        ready = 0
        for stage, device in enumerate(path):
            ready = max(ready, received[device], sent[path[stage - 1]] if stage else 0) + links[stage]
            received[device] = ready
            if stage:
                sent[path[stage - 1]] = ready
            ready = computed[device] = max(ready, computed[device]) + forward[stage]
            stops[stage, t] = ready
        sent[path[-1]] = max(ready, sent[path[-1]]) + links[-1]
    codes = schedule.codes
    of_device = [(codes.stages(program[:1]), codes.micro_batches(program)) for program in schedule.programs]
    ends = tuple(stops[stage, micro_batches] for stage, micro_batches in of_device)
    return Timeline(
        schedule,
        starts=tuple(end - times.forward[stage] for end, (stage, _) in zip(ends, of_device, strict=True)),
        stops=ends,
        exchanges=(np.zeros((0, 2), dtype=np.int64),) * schedule.n_devices,
        stop_tick=max(sent),
        ticks_per_cycle=times.ticks_per_cycle,
    )
