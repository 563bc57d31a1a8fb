"""The problem of a zero bubble search, `ZeroBubbleProblem`, and a `lower_bound` of its makespan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from autoauto.records.schedule import BACKWARD, WEIGHT, StageTimes
from autoauto.records.units import FloatArray


@dataclass(frozen=True, slots=True)
class ZeroBubbleProblem:
    """Stages on devices, with a backward pass in two halves and a limit of activations.

    A *job* is all actions of one kind on one stage; jobs are numbered as in `Codes`, `kind * n_stages + stage`.

    Attributes:
        devices: the device of every stage, one or two stages a device.
        ticks: for every job the ticks of one of its actions.
        forward_links, backward_links: as in `StageTimes`.
        limit: the most activations a device holds; each from the start of its F to the stop of its W.
    """

    devices: tuple[int, ...]
    ticks: tuple[int, ...]
    forward_links: tuple[int, ...]
    backward_links: tuple[int, ...]
    n_micro_batches: int
    limit: int

    @staticmethod
    def of(times: StageTimes, devices: Sequence[int], n_micro_batches: int, limit: int | None) -> ZeroBubbleProblem:
        """The stages of `times` on their devices; without a limit, everything may be in flight."""
        everything = n_micro_batches * (len(devices) // (max(devices) + 1))
        return ZeroBubbleProblem(
            tuple(devices),
            (*times.forward.tolist(), *times.backward.tolist(), *times.weight.tolist()),
            tuple(times.forward_links.tolist()),
            tuple(times.backward_links.tolist()),
            n_micro_batches,
            everything if limit is None else min(limit, everything),
        )

    @property
    def n_stages(self) -> int:
        """Number of stages."""
        return len(self.devices)

    @property
    def n_devices(self) -> int:
        """Number of devices."""
        return max(self.devices) + 1

    @property
    def work(self) -> list[int]:
        """For every device, the ticks of compute for one micro-batch."""
        total = [0] * self.n_devices
        for job, ticks in enumerate(self.ticks):
            total[self.devices[job % self.n_stages]] += ticks
        return total

    @property
    def path(self) -> list[int]:
        """The jobs through which a micro-batch and then its gradient pass."""
        n = self.n_stages
        forwards = list(range(n))
        backwards = [BACKWARD * n + stage for stage in reversed(range(n))]
        return forwards + backwards

    def stages_of(self, device: int) -> list[int]:
        """The stages of a device, in their order."""
        return [stage for stage, of in enumerate(self.devices) if of == device]

    def link(self, job: int, to: int) -> int:
        """Ticks of the message from a job to the next of the path."""
        stage, after = job % self.n_stages, to % self.n_stages
        if self.devices[stage] == self.devices[after]:
            return 0
        return self.forward_links[after] if after > stage else self.backward_links[stage]

    def edges(self) -> list[tuple[int, int, int]]:
        """(job, the job that needs it, ticks of the message): micro-batch by micro-batch."""
        n = self.n_stages
        travel = [(job, to, self.link(job, to)) for job, to in pairwise(self.path)]
        weights = [(BACKWARD * n + stage, WEIGHT * n + stage, 0) for stage in range(n)]
        return travel + weights


def lower_bound(pipeline: ZeroBubbleProblem) -> int:
    """Ticks that no order goes below: the largest of three bounds.

    *A device* computes all its work. It idles until the first micro-batch arrives; then until the first gradient
    arrives, except for the forwards that its memory admits; and from its last forward to the end, except for the
    backwards and weight gradients of the activations that it holds. With p equal stages and a limit of p this is
    `m (F + B + W) + (p - 1) (F + B - W)` and four messages a link: the bubble of ZB1P
    [zero-bubble].

    *A memory* holds every activation from the start of its F until its W has stopped. Where a V turns it can be neither
    full all the time nor free of activations that wait (`steady_loss_at_turn`).

    *A stage* computes all its forwards and input gradients before the last gradient leaves it.
    """
    n_activations = pipeline.n_micro_batches * (pipeline.n_stages // pipeline.n_devices)
    pipeline = replace(pipeline, limit=min(pipeline.limit, n_activations))
    heads, tails = _heads(pipeline), _tails(pipeline)
    n, ticks, m = pipeline.n_stages, pipeline.ticks, pipeline.n_micro_batches
    bound = 0
    for stage in range(n):
        backward = BACKWARD * n + stage
        bound = max(bound, heads[stage] + m * (ticks[stage] + ticks[backward]) + tails[backward])
    for device in range(pipeline.n_devices):
        bound = max(bound, _device_bound(pipeline, heads, tails, device), _memory_bound(pipeline, heads, tails, device))
    return bound


def _device_bound(pipeline: ZeroBubbleProblem, heads: list[int], tails: list[int], device: int) -> int:
    n, ticks, limit = pipeline.n_stages, pipeline.ticks, pipeline.limit
    stages = pipeline.stages_of(device)
    first, last = stages[0], stages[-1]
    forwards = limit * max(ticks[s] for s in stages)
    backwards = limit * max(ticks[BACKWARD * n + s] + ticks[WEIGHT * n + s] for s in stages)
    before_gradients = max(0, heads[BACKWARD * n + last] - heads[first] - forwards)
    after_forwards = max(0, tails[last] - backwards)
    if limit < pipeline.n_micro_batches * len(stages):  # the last forward starts after the first gradient
        idle = before_gradients + after_forwards
    else:
        idle = max(before_gradients, after_forwards)
    return heads[first] + pipeline.n_micro_batches * pipeline.work[device] + idle


def _memory_bound(pipeline: ZeroBubbleProblem, heads: list[int], tails: list[int], device: int) -> int:
    """Every activation is held for a minimum time, and no more than `limit` are held at once.

    Forwards fill the memory one by one and weight gradients empty it one by one, so at either end the memory cannot be
    full: with i activations held already, i forwards have passed, and at the end i weight gradients remain. That adds
    `limit (limit - 1) / 2` times a forward and a weight gradient to the total.

    The last input gradient of the device still travels to the first stage. When it sets out, all activations but
    `limit` have been held until their weight gradient stopped, and these until it started, at least: so the time for
    the whole total, less one weight gradient, passes before that. On a V's last device this travel takes as long as the
    way there.
    """
    n, ticks, limit = pipeline.n_stages, pipeline.ticks, pipeline.limit
    stages = pipeline.stages_of(device)
    weights = [ticks[WEIGHT * n + s] for s in stages]
    all_held = pipeline.n_micro_batches * sum(_held(pipeline, heads, s) for s in stages)
    filling = limit * (limit - 1) // 2 * min(ticks[s] for s in stages)
    emptying = limit * (limit - 1) // 2 * min(weights)
    until_the_end = all_held + filling + emptying
    until_the_last_gradient = all_held + filling - limit * max(weights)
    if is_turn(pipeline, device):
        lost, lost_before = _loss_at_turn(pipeline, device)
        until_the_end = max(until_the_end, all_held + lost)
        until_the_last_gradient = max(until_the_last_gradient, all_held + lost_before)
    after = tails[BACKWARD * n + stages[0]]
    return heads[stages[0]] + max(-(-until_the_end // limit), -(-until_the_last_gradient // limit) + after)


def is_turn(pipeline: ZeroBubbleProblem, device: int) -> bool:
    """True if a device has two stages and the second directly follows the first."""
    stages = pipeline.stages_of(device)
    return len(stages) == 2 and stages[1] == stages[0] + 1


def memory_taken(pipeline: ZeroBubbleProblem) -> list[int]:
    """For every device the ticks of its memory that a micro-batch takes in the long run, in any order."""
    heads = _heads(pipeline)
    taken = [steady_loss_at_turn(pipeline, device) for device in range(pipeline.n_devices)]
    for stage, device in enumerate(pipeline.devices):
        taken[device] += _held(pipeline, heads, stage)
    return taken


def _held(pipeline: ZeroBubbleProblem, heads: list[int], stage: int) -> int:
    """The minimum time from the start of a stage's F to the stop of its W, for which its activation is held."""
    backward, weight = BACKWARD * pipeline.n_stages + stage, WEIGHT * pipeline.n_stages + stage
    return heads[backward] - heads[stage] + pipeline.ticks[backward] + pipeline.ticks[weight]


def steady_loss_at_turn(pipeline: ZeroBubbleProblem, device: int) -> int:
    """Ticks of memory that every micro-batch loses on a device if a V turns there, else 0.

    The *loss* at a time is how many more activations would fit in, and how many micro-batches wait there for the second
    forward, for the second input gradient and for each weight gradient although they have come so far. Summed over time
    it is the memory that is empty, and the time for which activations are held beyond their minimum.

    The loss between two actions is `limit - 2 u`, where u micro-batches have started their second forward and have not
    yet stopped their first input gradient. For the second forward takes up memory and ends a wait; the first input
    gradient starts two waits; every other action starts a wait and ends one, or takes up or frees memory instead. While
    an action runs, what it has ended or taken up is gone and what it starts or frees is still to come:

        limit - 2 u         first input gradient
        limit - 2 u - 1     first forward, second input gradient, weight gradients
        limit - 2 u - 2     second forward

    No loss is negative. So with an even limit the middle row is never 0, and with an odd limit the others never are.
    """
    if not is_turn(pipeline, device):
        return 0
    inner, others, weights = _ticks_at_turn(pipeline, device)
    return inner if pipeline.limit % 2 else others + sum(weights)


def _loss_at_turn(pipeline: ZeroBubbleProblem, device: int) -> tuple[int, int]:
    """The loss of `steady_loss_at_turn`, and more at the start and at the end.

    From the first forward until the last action stops, and until the last input gradient leaves the device, less what
    is then not yet held in full.

    When i first forwards have started, or i second ones, u is at most i. When i second input gradients or weight
    gradients of a stage are to come after this, u is at most i; i + 1 where they are first input gradients.

    When the last input gradient leaves, up to `limit` weight gradients remain. Their loss and ticks are still to come.
    """
    limit, m = pipeline.limit, pipeline.n_micro_batches
    inner, others, weights = _ticks_at_turn(pipeline, device)
    odd, even = limit % 2, 1 - limit % 2
    falling = _falling(limit - 1, even, m)
    gradients = falling * others + _falling(limit - 2, odd, m) * inner
    still_to_come = limit * max(weights) * (1 + even)
    return (gradients + falling * sum(weights), gradients + even * m * sum(weights) - still_to_come)


def _ticks_at_turn(pipeline: ZeroBubbleProblem, device: int) -> tuple[int, int, list[int]]:
    """Ticks of a micro-batch on a device where a V turns.

    The second forward and first input gradient, the first forward and second input gradient, and both weight gradients.
    """
    n, ticks = pipeline.n_stages, pipeline.ticks
    outer = pipeline.devices.index(device)
    inner = outer + 1
    return (
        ticks[inner] + ticks[BACKWARD * n + inner],
        ticks[outer] + ticks[BACKWARD * n + outer],
        [ticks[WEIGHT * n + outer], ticks[WEIGHT * n + inner]],
    )


def _falling(first: int, last: int, count: int) -> int:
    """The sum of `count` numbers that fall by two from `first` to `last` and stay there."""
    falling = range(first, last, -2)
    return sum(falling) + (count - len(falling)) * last


def _heads(pipeline: ZeroBubbleProblem) -> list[int]:
    """For every F and B job when its first action can start."""
    heads = [pipeline.forward_links[0]] * (2 * pipeline.n_stages)
    for job, to in pairwise(pipeline.path):
        heads[to] = heads[job] + pipeline.ticks[job] + pipeline.link(job, to)
    return heads


def _tails(pipeline: ZeroBubbleProblem) -> list[int]:
    """For every F and B job the minimum time between the stop of an action and the end."""
    n, ticks = pipeline.n_stages, pipeline.ticks
    tails = [0] * n + list(ticks[WEIGHT * n :])  # after every input gradient comes its own weight gradient
    for to, job in pairwise(reversed(pipeline.path)):
        tails[job] = max(tails[job], pipeline.link(job, to) + ticks[to] + tails[to])
    return tails


@dataclass(frozen=True, slots=True, eq=False)
class LargestForm:
    """The largest of some linear functions of times, a `StepFunction`; `forms` (forms, rows) has their slopes."""

    forms: FloatArray

    def ticks(self, times: FloatArray) -> FloatArray:
        """(K,) the largest value at every column of times, (rows, K)."""
        largest: FloatArray = (self.forms @ times).max(axis=0)
        return largest

    def slopes(self, times: FloatArray) -> FloatArray:
        """(rows, K) the function that is largest there."""
        slopes: FloatArray = self.forms[(self.forms @ times).argmax(axis=0)].T
        return slopes


def zero_bubble_bound(devices: Sequence[int], n_micro_batches: int, limit: int) -> LargestForm:
    """Bounds by device and by stage as in `lower_bound`, for all times at once.

    Where several stages share a device, what its limit of activations makes it wait is left out. `devices` has the
    device of every stage, `limit` is the most activations that one holds.
    """
    n_stages = len(devices)
    own_limit = None
    if len(set(devices)) == n_stages:
        own_limit = min(limit, n_micro_batches)
    forms = list(_forms(n_stages, n_micro_batches, own_limit))
    forms += _work_of_devices(devices, n_micro_batches)
    return LargestForm(np.array(forms))


def _work_of_devices(devices: Sequence[int], m: int) -> Iterator[FloatArray]:
    """By device: the first micro-batch must reach its first stage, then it computes all its work."""
    n = len(devices)
    rows = np.eye(7 * n + 1)  # the unit vectors: a sum of rows counts how often a form has every time
    forward, down = rows[:n], rows[3 * n : 4 * n + 1]
    for device in set(devices):
        own = [s for s in range(n) if devices[s] == device]
        head = down[0] + (forward[: own[0]] + down[1 : own[0] + 1]).sum(axis=0)
        compute = np.zeros(len(rows))
        for s in own:
            compute += rows[s] + rows[n + s] + rows[2 * n + s]  # forward, backward and weight
        yield head + m * compute


def _forms(n: int, m: int, limit: int | None) -> Iterator[FloatArray]:
    """The bounds of `lower_bound` by stage, and by device where every stage has its own and `limit` is given."""
    rows = np.eye(7 * n + 1)
    forward, backward, weight = rows[:n], rows[n : 2 * n], rows[2 * n : 3 * n]
    down, up = rows[3 * n : 4 * n + 1], rows[4 * n + 1 : 5 * n + 1]
    for s in range(n):
        head = down[0] + (forward[:s] + down[1 : s + 1]).sum(axis=0)
        # From the start of a forward of the stage to the start of its backward.
        there = forward[s:].sum(axis=0) + down[s + 1 : n].sum(axis=0)
        loop = there + (backward[s + 1 :] + up[s + 1 :]).sum(axis=0)
        for last in range(s + 1):  # the stage where the micro-batch ends
            back = (up[last + 1 : s + 1] + backward[last:s]).sum(axis=0) + weight[last]
            yield head + m * (forward[s] + backward[s]) + back
            if limit is None:
                continue
            # As in `_device_bound`: idle before the first gradient, and after the last forward.
            before = loop - limit * forward[s]
            after = loop - forward[s] + backward[s] + back - limit * (backward[s] + weight[s])
            work = head + m * (forward[s] + backward[s] + weight[s])
            yield work
            yield work + before
            yield work + after
            if limit < m:
                yield work + before + after
