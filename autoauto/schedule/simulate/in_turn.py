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
    # When every device has computed, received and sent the last micro-batch so far.
    computed = [0] * schedule.n_devices
    received = [0] * schedule.n_devices
    sent = [0] * schedule.n_devices
    devices_of = [schedule.devices_of(stage) for stage in range(schedule.n_stages)]
    for t in range(schedule.n_micro_batches):
        ready, sender = 0, None
        for stage, devices in enumerate(devices_of):
            device = devices[t % len(devices)]
            start = max(ready, received[device])
            if sender is not None:
                start = max(start, sent[sender])
            ready = received[device] = start + links[stage]
            if sender is not None:
                sent[sender] = ready
            ready = computed[device] = max(ready, computed[device]) + forward[stage]
            stops[stage, t] = ready
            sender = device
        assert sender is not None  # there is a stage
        sent[sender] = max(ready, sent[sender]) + links[-1]
    codes = schedule.codes
    starts, ends = [], []
    for program in schedule.programs:
        own_stage = codes.stages(program[:1])  # all actions of a device are on one stage
        end = stops[own_stage, codes.micro_batches(program)]
        starts.append(end - times.forward[own_stage])
        ends.append(end)
    return Timeline(
        schedule,
        starts=tuple(starts),
        stops=tuple(ends),
        exchanges=(np.zeros((0, 2), dtype=np.int64),) * schedule.n_devices,
        stop_tick=max(sent),
        ticks_per_cycle=times.ticks_per_cycle,
    )
