"""The makespan of a fixed order as a function of its times, `step_function`: for many times at once, with its slopes.

An order fixes who waits for whom, so its makespan is the longest path through actions and messages:

    makespan = max over paths of  sum over rows of  (how often the path has the row) x (ticks of the row)

It is convex, it never falls when a time grows, and the counts of the longest path at some times, its *slopes*, give a
lower bound at all others: no makespan is below `slopes . times`. So simulations of a few plans bound all plans.

Rows are the columns of `StageTimes` one after the other (`time_rows`), as the simulation of `simulate` uses them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from autoauto.records.schedule import FORWARD, Schedule, StageTimes, Transfers
from autoauto.records.units import FloatArray, IntArray
from autoauto.schedule.simulate.barrier import slots
from autoauto.schedule.simulate.dependencies import needs, row_devices
from autoauto.schedule.simulate.earliest import earliest_starts


class StepFunction(Protocol):
    """The makespan of an order, or a lower bound of it, as the maximum of linear functions of its times."""

    def ticks(self, times: FloatArray) -> FloatArray:
        """(K,) values at K columns of times, (rows, K)."""

    def slopes(self, times: FloatArray) -> FloatArray:
        """(rows, K) slopes of the linear function that is largest at each of K columns of times."""


def time_rows(times: StageTimes) -> FloatArray:
    """(7 S + 1, ...) the columns of `StageTimes` one after the other; each of them may have more axes."""
    rows: FloatArray = np.concatenate(
        (
            times.forward,
            times.backward,
            times.weight,
            times.forward_links,
            times.backward_links,
            times.forward_exchange,
            times.backward_exchange,
        )
    ).astype(np.float64)
    return rows


def step_function(schedule: Schedule, transfers: Transfers) -> StepFunction:
    """The makespan of `simulate` for this schedule, which has no checks and no backward passes that are split in part.

    Raises BadInput if the schedule cannot run to its end; the message says who waits for whom.
    """
    assert not schedule.full_backwards
    if transfers is Transfers.BARRIER:
        return slot_sums(schedule, slot_kinds(schedule))
    return _longest_path(schedule)


@dataclass(frozen=True, slots=True, eq=False)
class _LongestPath:
    """Overlapping transfers: nodes are actions and messages, each after at most two others.

        device 0   0F0 --> 0F1 --> ..       -->  after the node before on the same device or link
                    |       |
        link       m0 ---> m1               |    after its input: a message after its sender,
                    |       |                    an action after its message
        device 1   1F0 --> 1F1 --> ..

    Attributes:
        row: (N,) the row of times of every node.
        before: (2, N) the nodes that it waits for; N where there is none. Nodes come after what they wait for.
        levels: (L + 1,) nodes between two neighbouring entries do not wait for each other.
    """

    n_rows: int
    row: IntArray
    before: IntArray
    levels: list[int]

    def ticks(self, times: FloatArray) -> FloatArray:
        longest: FloatArray = self._stops(times).max(axis=0)
        return longest

    def slopes(self, times: FloatArray) -> FloatArray:
        stops = self._stops(times)
        first, second = self.before.tolist()
        counts = np.zeros((self.n_rows, stops.shape[1]))
        for k, last in enumerate(stops.argmax(axis=0).tolist()):
            # Back from the node that stops last, to the later of the two that each has waited for.
            stop = stops[:, k].tolist()
            path, node = [], last
            while node < len(first):
                path.append(node)
                a, b = first[node], second[node]
                node = a if stop[a] >= stop[b] else b
            np.add.at(counts[:, k], self.row[path], 1)
        return counts

    def _stops(self, times: FloatArray) -> FloatArray:
        """(N + 1, K) when every node stops; the last row stands for no node."""
        stops = np.zeros((len(self.row) + 1, times.shape[1]), times.dtype)
        ticks = times[self.row]
        first, second = self.before
        for start, stop in zip(self.levels, self.levels[1:], strict=False):
            here = slice(start, stop)
            np.maximum(stops[first[here]], stops[second[here]], out=stops[here])
            stops[here] += ticks[here]
        return stops


def _longest_path(schedule: Schedule) -> _LongestPath:
    """The actions of all devices, then the messages of all links, sorted by when they start if all take one tick."""
    n_stages, codes = schedule.n_stages, schedule.codes
    ones = np.ones(n_stages + 1, dtype=np.int64)
    each = ones[:-1]
    starts = np.concatenate(earliest_starts(schedule, StageTimes(each, each, each, ones, each, each, each)))
    actions = np.concatenate(schedule.programs)
    none = -1
    previous = np.arange(-1, len(actions) - 1)
    previous[np.cumsum([0, *map(len, schedule.programs[:-1])])] = none
    # Every node waits for the one before on its device or link, in `before`, and for its input, in `arrived`.
    rows, before = [actions // codes.n_numbers], [previous]
    levels, arrived = [starts], np.full(len(actions), none)
    node_of = np.full(codes.size, none)
    node_of[actions] = np.arange(len(actions))
    for row, senders, receivers in _messages(schedule, node_of):
        first = sum(map(len, rows))
        nodes = np.arange(first, first + len(row))
        inputs, ready = np.full(len(row), none), np.zeros(len(row), dtype=np.int64)
        if senders is not None:
            inputs, ready = senders, starts[senders] + 1
        # Each is a level later than the one before on its link: with its number subtracted, a running maximum.
        turns = np.arange(len(row))
        levels.append(np.maximum.accumulate(ready - turns) + turns)
        rows.append(row)
        before.append(np.where(turns > 0, nodes - 1, none))
        arrived = np.concatenate((arrived, inputs))
        if receivers is not None:
            arrived[receivers] = nodes
    level, pairs = np.concatenate(levels), np.stack((np.concatenate(before), arrived))
    # By level: nodes of a level do not wait for each other, so they stop in one step of array arithmetic.
    order = np.argsort(level, kind="stable")
    position = np.empty(len(order) + 1, dtype=np.int64)
    position[order] = np.arange(len(order))
    position[none] = len(order)
    ends = np.flatnonzero(np.diff(level[order])) + 1
    return _LongestPath(
        n_rows=7 * n_stages + 1,
        row=np.concatenate(rows)[order],
        before=position[pairs[:, order]],
        levels=[0, *ends.tolist(), len(order)],
    )


def _messages(schedule: Schedule, node_of: IntArray) -> Iterator[tuple[IntArray, IntArray | None, IntArray | None]]:
    """For every direction of a link: rows of the times of its messages, in turn, who sends and who receives them.

    The host sends first and receives last; that is None.
    """
    n, codes, m = schedule.n_stages, schedule.codes, np.arange(schedule.n_micro_batches)
    nodes = node_of.reshape(-1, codes.n_numbers)[:, m]
    devices = row_devices(schedule).tolist()
    first, last = np.sort(nodes[FORWARD * n]), np.sort(nodes[FORWARD * n + n - 1])
    yield np.full(len(m), 3 * n), None, first
    yield np.full(len(m), 4 * n), last, None
    links: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    before_rows, after_rows = needs(schedule)
    for before, after in zip(before_rows.tolist(), after_rows.tolist(), strict=True):
        if devices[before] != devices[after]:
            row = 3 * n + after if before < n else 4 * n + 1 + before - n
            links[devices[before], devices[after]].append((row, before, after))
    for on_link in links.values():
        row = np.repeat([times_row for times_row, _, _ in on_link], len(m))
        senders = np.concatenate([nodes[before] for _, before, _ in on_link])
        receivers = np.concatenate([nodes[after] for _, _, after in on_link])
        in_turn = np.argsort(senders)  # nodes of a device are numbered in the order in which it runs them
        yield row[in_turn], senders[in_turn], receivers[in_turn]


@dataclass(frozen=True, slots=True, eq=False)
class _SlotSums:
    """Slots: in each the largest compute of a device, then the largest exchange; equal slots are counted.

    Attributes:
        times: (T,) how often each of T kinds of slots occurs, or of exchanges after slots.
        loads: (U, rows) how often a device spends every row of times in a slot.
        load_of: (T, devices) the load of every device.
    """

    times: FloatArray
    loads: FloatArray
    load_of: IntArray

    def ticks(self, times: FloatArray) -> FloatArray:
        ticks: FloatArray = self.times @ (self.loads @ times)[self.load_of].max(axis=1)
        return ticks

    def slopes(self, times: FloatArray) -> FloatArray:
        slowest = (self.loads @ times)[self.load_of].argmax(axis=1)
        chosen = np.take_along_axis(self.load_of, slowest, axis=1)
        counts = np.zeros((len(self.loads), times.shape[1]))
        np.add.at(counts, (chosen, np.arange(times.shape[1])), self.times[:, None])
        slopes: FloatArray = self.loads.T @ counts
        return slopes


SlotKinds = Mapping[tuple[bytes, bool], float]
"""How often slots occur, by how often each has the rows of compute; and the exchanges after slots, which are True."""


def slot_kinds(schedule: Schedule) -> SlotKinds:
    """The different slots of a schedule and of the exchanges after them, and how often they occur."""
    n, n_numbers, in_slots = schedule.n_stages, schedule.codes.n_numbers, slots(schedule)
    n_slots = 1 + max(int(row.max(initial=-1)) for row in in_slots)
    work = np.zeros((n_slots, 3 * n))
    for program, row in zip(schedule.programs, in_slots, strict=True):
        np.add.at(work, (row, program // n_numbers), 1)
    exchange = work[:, : 2 * n]
    if schedule.slots is not None:  # then all devices exchange for all stages in every slot
        exchange = np.ones((n_slots, 2 * n))
    counts = Counter((row.tobytes(), False) for row in work)
    counts.update((row.tobytes(), True) for row in exchange)
    return counts


def slot_sums(schedule: Schedule, counts: SlotKinds) -> StepFunction:
    """The makespan of a schedule with these slots, on the stages and devices of `schedule`."""
    n, devices = schedule.n_stages, row_devices(schedule)
    kinds = np.zeros((len(counts), 7 * n + 1))
    for kind, (row, is_exchange) in zip(kinds, counts, strict=True):
        part = kind[5 * n + 1 :] if is_exchange else kind[: 3 * n]
        part[:] = np.frombuffer(row)
    device_of = np.concatenate((devices[: 3 * n], np.full(2 * n + 1, -1), devices[: 2 * n]))
    by_device = kinds[:, None, :] * (device_of == np.arange(schedule.n_devices)[:, None])
    rows = by_device.reshape(-1, kinds.shape[1])
    as_bytes = rows.view(np.dtype((np.void, rows[0].nbytes))).ravel()  # compared faster than column by column
    _, first, load_of = np.unique(as_bytes, return_index=True, return_inverse=True)
    return _SlotSums(np.array(list(counts.values()), dtype=np.float64), rows[first], load_of.reshape(len(kinds), -1))
