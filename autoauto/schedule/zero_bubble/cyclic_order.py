"""A cyclic order: a group of micro-batches that all others repeat, as the sequences in which its devices run it.

Every device runs a cyclic sequence of the group's actions. Here B and W are those of the micro-batch before:

    endless sequence    F0 b  w   F1 B0 W0   F2 B1 W1        F0, B0 and W0 have the positions 0, 4 and 5;
    position            0  1  2   3  4  5    6  7  8         3 positions later follows the next micro-batch

An action starts after the one before in its sequence has stopped, and after its input has arrived. These are the edges
of a graph. An edge has a length, the ticks from start to start, and a height, by how many groups the second action is
later than the first. No cycle of edges can be repeated faster than once in its length over its height, so the shortest
period of an order is the largest such ratio, the *maximum cycle ratio* [maximum-cycle-ratio]. Memory adds no edges: how
many activations a device holds follows from its sequence.

A period suffices if starts exist that keep to all edges. A start that violates an edge is postponed, which may violate
others. Where that leads back to the same edge no starts exist, and the postponed starts lie on a cycle that is too long
for the period.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import NamedTuple

from autoauto.records.schedule import WEIGHT
from autoauto.schedule.zero_bubble.modulo import ModuloSchedule
from autoauto.schedule.zero_bubble.problem import ZeroBubbleProblem

PATIENCE = 3
"""How often every start is postponed, on average, before a period counts as too short."""


class Displacement(NamedTuple):
    """A move of an action within the sequence of its device.

    Attributes:
        action: the action that moves; after the move, actions of its job may have other numbers.
        before: the positions of all actions of the device before the move.
    """

    action: int
    before: dict[int, int]


class CyclicOrder:
    """The order of a group of micro-batches on all devices, with starts that repeat after a period.

    Actions are numbered `job * size + number`. The actions of a job follow each other by their numbers, as it does not
    matter which micro-batch goes first. Messages have numbers after all actions where they may have to wait for their
    wire, which runs them in the sequence of the actions that send them.

    Attributes:
        size: micro-batches of a group.
        ticks: of every action and message.
        device: of every action.
        source: for every action what sends its input from another device, else -1.
        receiver: for every action and message what needs it on another device, else -1.
        delay: ticks from its stop until the receiver has it.
        wires: for every device, for each of its wires with such messages, the message of every action.
        inputs: for every device (action, the action of this device that needs it).
        position: of every action in the endless sequence of its device.
        sequences: for every device its actions in the order of a period.
        after: for every action and message the next of its sequence.
        height: by how many groups that is later.
        starts, period: they keep to all edges, once `is_timed` is true.
        n_timed: how many starts have been postponed so far.
    """

    def __init__(self, pipeline: ZeroBubbleProblem, schedule: ModuloSchedule) -> None:
        self.pipeline, self.size, self.period = pipeline, len(schedule.starts), schedule.period
        self.ticks = [ticks for ticks in pipeline.ticks for _ in range(self.size)]
        self.device = [device for device in pipeline.devices * 3 for _ in range(self.size)]
        self.source = [-1] * len(self.ticks)
        self.receiver = [-1] * len(self.ticks)
        self.delay = [0] * len(self.ticks)
        self.wires: list[list[dict[int, int]]] = [[] for _ in range(pipeline.n_devices)]
        self.inputs: list[list[tuple[int, int]]] = [[] for _ in range(pipeline.n_devices)]
        self._connect()
        self.n_timed = 0
        self.starts = [0] * len(self.ticks)
        for job in range(len(pipeline.ticks)):
            starts = sorted(starts[job] for starts in schedule.starts)
            self.starts[job * self.size : (job + 1) * self.size] = _renumbered(starts, self.period)
        self.position = [0] * len(self.device)
        self.after, self.height = [-1] * len(self.ticks), [0] * len(self.ticks)
        self.sequences: list[list[int]] = []
        for device in range(pipeline.n_devices):
            actions = [action for action, of in enumerate(self.device) if of == device]
            actions.sort(key=lambda action: self.starts[action] % self.period)
            for i, action in enumerate(actions):
                self.position[action] = self.starts[action] // self.period * len(actions) + i
            self.sequences.append(actions)
            self._link(device)

    def _connect(self) -> None:
        devices, size, n = self.pipeline.devices, self.size, self.pipeline.n_stages
        sent: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        for job, to, link in self.pipeline.edges():
            here, there = devices[job % n], devices[to % n]
            for number in range(size):
                action, receiver = job * size + number, to * size + number
                if here == there:
                    self.inputs[here].append((action, receiver))
                else:
                    sent[here, there].append((action, receiver, link))
        for (here, _), messages in sent.items():
            slowest = max(link for _, _, link in messages)
            if slowest <= min(self.ticks[action] for action, _, _ in messages):
                # A message has always arrived when the next one is sent: a delay is enough, no wire.
                for action, to, link in messages:
                    self.source[to] = action
                    self.receiver[action] = to
                    self.delay[action] = link
                continue
            wire: dict[int, int] = {}
            self.wires[here].append(wire)
            for action, to, link in messages:
                message = len(self.ticks)
                self.ticks.append(link)
                self.source.append(action)
                self.receiver.append(to)
                self.delay.append(0)
                wire[action] = message
                self.receiver[action] = message
                self.source[to] = message

    def _link(self, device: int) -> None:
        """Fill in what follows what in the sequence of a device, and on its wires."""
        sequence, position, after, height = self.sequences[device], self.position, self.after, self.height
        length, before = len(sequence), sequence[-1]
        for action in sequence:
            after[before] = action
            height[before] = (position[before] + 1 - position[action]) // length
            before = action
        for wire in self.wires[device]:
            senders = [action for action in sequence if action in wire]
            before, last = senders[-1], 1  # the first message follows the last one of the period before
            for action in senders:
                periods = position[before] // length - position[action] // length
                after[wire[before]], height[wire[before]] = wire[action], periods + last
                before, last = action, 0

    def is_legal(self, device: int) -> bool:
        """True if inputs from the device itself come first, and it holds no more activations than the limit."""
        position, sequence, n = self.position, self.sequences[device], self.pipeline.n_stages * self.size
        for action, to in self.inputs[device]:
            if position[action] >= position[to]:
                return False
        changes = []
        held = 0  # when a period begins, by actions of earlier groups
        for action in sequence:
            change = 0
            if action < n:
                change = 1
            elif action >= WEIGHT * n:
                change = -1
            changes.append(change)
            held -= change * (position[action] // len(sequence))  # so many groups later, its own period comes
        for change in changes:
            held += change
            if held > self.pipeline.limit:
                return False
        return True

    def is_timed(self) -> bool:
        """True if the order is legal and some period is long enough; then the starts keep to all edges."""
        if not all(map(self.is_legal, range(len(self.sequences)))):
            return False
        longest = 2 * self.period
        while self.period <= longest:
            starts = list(self.starts)
            if self.postpone(starts, self.period, range(len(starts))) is None:
                self.starts = starts
                return True
            # Too short, or postponed too often to say: the next period leaves more room.
            self.period += self.period // 64 + 1
        return False

    def move(self, action: int, by: int) -> Displacement | None:
        """Let an action pass the `by` actions after it, or the `-by` before it; None, and no change, if illegal."""
        device, position = self.device[action], self.position
        sequence = self.sequences[device]
        length, here = len(sequence), sequence.index(action)
        move = Displacement(action, {each: position[each] for each in sequence})
        if by > 0:
            step, by = 1, min(by, length - 1)
        else:
            step, by = -1, max(by, 1 - length)
        for distance in range(step, by + step, step):
            position[sequence[(here + distance) % length]] -= step
        position[action] += by
        # It may have passed another action of its job. Their numbers are to ascend with their positions.
        first = action - action % self.size
        job = slice(first, first + self.size)
        position[job] = _renumbered(sorted(position[job]), length)
        self.sequences[device] = sorted(sequence, key=lambda each: position[each] % length)
        if self.is_legal(device):
            self._link(device)
            return move
        self.undo(move, link=False)
        return None

    def undo(self, move: Displacement, *, link: bool = True) -> None:
        """The order before the move."""
        for action, position in move.before.items():
            self.position[action] = position
        device = self.device[move.action]
        length = len(move.before)
        self.sequences[device] = sorted(move.before, key=lambda each: move.before[each] % length)
        if link:
            self._link(device)

    def retime(self, move: Displacement, period: int) -> bool:
        """Find starts for a period after a move; False, and nothing has changed, if there seem to be none.

        An action that now goes earlier starts so: else all others would be postponed until they are later than it.
        """
        starts, action = list(self.starts), move.action
        device = self.device[action]
        sequence, source = self.sequences[device], self.source[action]
        before = sequence[sequence.index(action) - 1]
        earliest = starts[before] + self.ticks[before] - period * self.height[before]
        if source >= 0:
            earliest = max(earliest, starts[source] + self.ticks[source] + self.delay[source])
        starts[action] = min(starts[action], earliest)
        changed = list(sequence)
        for wire in self.wires[device]:
            changed += wire.values()
        if period > self.period:  # then edges of negative height demand more
            changed += [here for here, height in enumerate(self.height) if height < 0]
        if self.postpone(starts, period, changed) is not None:
            return False
        self.starts, self.period = starts, period
        return True

    def tighten(self) -> list[int]:
        """Shorten the period to the maximum cycle ratio, rounded up; a cycle with this ratio.

        For a period that is too short there is a cycle that proves it. Its ratio is the next period to try.
        """
        critical: list[int] = []
        period = self.period - self.period // 100 - 1
        while period < self.period:
            starts = list(self.starts)
            cycle = self.postpone(starts, period, range(len(starts)), patience=6 * PATIENCE)
            if cycle is None:
                self.starts, self.period = starts, period
                if critical:
                    break  # every shorter period is too short for this cycle
                period -= period // 100 + 1
            elif cycle:
                critical = cycle
                period = max(period + 1, self.shortest(cycle))
            else:
                break  # out of patience: the period before is the answer
        return critical

    def between(self, first: int, last: int) -> list[int]:
        """The actions of a device from `first` to `last`; of two messages of a wire, from sender to sender."""
        n_actions = len(self.device)
        if first >= n_actions:
            first, last = self.source[first], self.source[last]
        run = [first]
        while run[-1] != last:
            run.append(self.after[run[-1]])
        return run

    def shortest(self, cycle: list[int]) -> int:
        """The shortest period that a cycle allows."""
        length = height = 0
        for here, to in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            length += self.ticks[here]
            if self.after[here] == to:
                height += self.height[here]
            else:
                length += self.delay[here]
        return -(-length // height) if height > 0 else self.period

    def postpone(
        self, starts: list[int], period: int, changed: Iterable[int], patience: int = PATIENCE
    ) -> list[int] | None:
        """Postpone starts until they keep to all edges, given all from which violated edges may lead.

        None if they do; else a cycle that is too long, or an empty list if patience has come to its end before.
        """
        ticks, after, height, receiver, delay = self.ticks, self.after, self.height, self.receiver, self.delay
        because = [-1] * len(starts)  # for every start the one that has postponed it last
        queue = deque(changed)
        n_timed, check = 0, len(starts) // 8  # to look for a cycle takes as long as to postpone some starts
        while queue:
            here = queue.popleft()
            stop = starts[here] + ticks[here]
            to = after[here]
            start = stop - period * height[here]
            if starts[to] < start:
                starts[to], because[to] = start, here
                queue.append(to)
                n_timed += 1
            to = receiver[here]
            if to >= 0 and starts[to] < stop + delay[here]:
                starts[to], because[to] = stop + delay[here], here
                queue.append(to)
                n_timed += 1
            if n_timed >= check:
                cycle = _cycle(because, here)
                if cycle or n_timed > patience * len(starts):
                    self.n_timed += n_timed
                    return cycle
                check += len(starts) // 8
        self.n_timed += n_timed
        return None

    def schedule(self) -> ModuloSchedule:
        """The order with the earliest starts of its first group."""
        starts = [0] * len(self.starts)
        by_start = sorted(range(len(starts)), key=self.starts.__getitem__)
        self.postpone(starts, self.period, by_start, patience=len(starts))
        n_actions = len(self.device)
        by_micro_batch = [starts[number : n_actions : self.size] for number in range(self.size)]
        return ModuloSchedule(self.period, by_micro_batch)


def _renumbered(times: list[int], period: int) -> list[int]:
    """Times or positions shifted by whole periods, so that all lie within one period.

    >>> _renumbered([2, 7, 15], 10)
    [5, 7, 12]
    """
    while times[-1] - times[0] > period:
        times = sorted([times[0] + period, *times[1:-1], times[-1] - period])
    return times


def _cycle(because: list[int], last: int) -> list[int]:
    seen, here = set[int](), last
    while here >= 0 and here not in seen:
        seen.add(here)
        here = because[here]
    if here < 0:
        return []
    cycle, cause = [here], because[here]
    while cause != here:
        cycle.append(cause)
        cause = because[cause]
    return cycle[::-1]
