"""Who does what, in which order: `Action`, `Schedule`, and how long it takes: `StageTimes`.

A schedule is a value, separate from whatever executes it: "2F0" is stage 2, forward, micro-batch 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autoauto.records.errors import BadInput

IntArray = npt.NDArray[np.int64]


class Order(StrEnum):
    """The orders that a pipeline can run in."""

    INFERENCE = "inference"
    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    ZB1P = "zb1p"
    ZB2P = "zb2p"
    ZBV = "zbv"
    V_HALF = "v-half"
    V_MIN = "v-min"
    POPART = "popart"
    GROUPED = "grouped"
    POPLAR_INTERLEAVED = "poplar-interleaved"
    SEQUENTIAL = "sequential"


SPLIT_ORDERS = (Order.ZB1P, Order.ZB2P, Order.ZBV, Order.V_HALF, Order.V_MIN)
"""Orders that split the backward pass into input and weight gradients."""


class Transfers(StrEnum):
    """When devices exchange what they made."""

    OVERLAP = "overlap"
    """Every direction of a link carries one message after the other, while devices compute."""
    BARRIER = "barrier"
    """All devices exchange at once, when the slowest has computed (seed 001, "Considering data transfer time")."""


class ActionKind(StrEnum):
    """What a stage does to a micro-batch."""

    FORWARD = "F"
    BACKWARD = "B"
    """The whole backward pass; its input-gradient half where the schedule has WEIGHT actions."""
    WEIGHT = "W"
    """The weight-gradient half of the backward pass."""
    CHECK = "C"
    """A bubble check (seed 004): work that fills idle time; its number counts a device's checks."""


KINDS = tuple(ActionKind)
FORWARD, BACKWARD, WEIGHT, CHECK = range(len(KINDS))


class Action(NamedTuple):
    """One stage's work on one micro-batch.

    >>> str(Action(2, ActionKind.FORWARD, 0)), Action.parse("12B3")
    ('2F0', Action(stage=12, kind=<ActionKind.BACKWARD: 'B'>, micro_batch=3))
    """

    stage: int
    kind: ActionKind
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"

    @staticmethod
    def parse(text: str) -> Action:
        """Read what `str` prints.

        Raises:
            BadInput: the text is something else.
        """
        for kind in KINDS:
            stage, found, micro_batch = text.partition(kind)
            if found and stage.isdecimal() and micro_batch.isdecimal():
                return Action(int(stage), kind, int(micro_batch))
        raise BadInput(f"an action is written 2F0 (stage, one of {' '.join(KINDS)}, micro-batch), got {text!r}")


class Codes(NamedTuple):
    """The numbers that stand for actions, so that a million of them are one array.

    `code = (kind * n_stages + stage) * n_numbers + micro_batch`: what an action depends on is a sum or difference away.
    `n_numbers` leaves room for a device's checks, 2 (stages - 1) at most, where micro-batches are fewer.

    >>> codes = Codes(n_stages=2, n_micro_batches=4)
    >>> codes.of(FORWARD, 1, range(3)).tolist(), [str(a) for a in codes.actions(codes.of(BACKWARD, 0, [2]))]
    ([4, 5, 6], ['0B2'])
    """

    n_stages: int
    n_micro_batches: int

    @property
    def n_numbers(self) -> int:
        """How many numbers every stage has for every kind."""
        return max(self.n_micro_batches, 2 * self.n_stages)

    @property
    def size(self) -> int:
        """All codes are smaller than this."""
        return len(KINDS) * self.n_stages * self.n_numbers

    def of(self, kind: int, stage: int, micro_batches: Sequence[int] | IntArray) -> IntArray:
        """The codes of one stage's actions of one kind, in the order of `micro_batches`."""
        return (kind * self.n_stages + stage) * self.n_numbers + np.asarray(micro_batches, dtype=np.int64)

    def kinds(self, codes: IntArray) -> IntArray:
        """Index into `KINDS` of every code."""
        return codes // (self.n_stages * self.n_numbers)

    def stages(self, codes: IntArray) -> IntArray:
        """Stage of every code."""
        return codes // self.n_numbers % self.n_stages

    def micro_batches(self, codes: IntArray) -> IntArray:
        """Micro-batch of every code."""
        return codes % self.n_numbers

    def encode(self, actions: Sequence[Action]) -> IntArray:
        """The codes of `actions`, in their order."""
        rows = ((KINDS.index(a.kind) * self.n_stages + a.stage) * self.n_numbers + a.micro_batch for a in actions)
        return np.fromiter(rows, dtype=np.int64, count=len(actions))

    def actions(self, codes: IntArray) -> Iterator[Action]:
        """The actions that `codes` stand for."""
        columns = (self.stages(codes), self.kinds(codes), self.micro_batches(codes))
        for stage, kind, micro_batch in zip(*(column.tolist() for column in columns), strict=True):
            yield Action(stage, KINDS[kind], micro_batch)


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """What every device does, one action after the other.

    Attributes:
        order: its name.
        devices: the device of every stage; with several chunks a device, a stage is a chunk.
        n_micro_batches: how many micro-batches there are.
        programs: for every device the codes (`Codes`) of its actions, in order.
        slots: for every device the pipeline cycle of each of its actions, non-decreasing, where the order has such
            cycles (PopART's, Poplar's): devices then wait for each other after each. None where each runs on.
    """

    order: Order
    devices: tuple[int, ...]
    n_micro_batches: int
    programs: tuple[IntArray, ...]
    slots: tuple[IntArray, ...] | None = None

    def __post_init__(self) -> None:
        assert set(self.devices) == set(range(len(self.programs)))
        assert self.n_micro_batches > 0

    @property
    def codes(self) -> Codes:
        """How the programs are written."""
        return Codes(len(self.devices), self.n_micro_batches)

    @property
    def n_stages(self) -> int:
        """How many stages there are."""
        return len(self.devices)

    @property
    def n_devices(self) -> int:
        """How many devices there are."""
        return len(self.programs)

    @property
    def n_actions(self) -> int:
        """How many actions all devices have."""
        return sum(map(len, self.programs))

    def actions(self, device: int) -> Iterator[Action]:
        """The actions of one device, in order."""
        return self.codes.actions(self.programs[device])

    def has(self, kind: int) -> bool:
        """Whether any action is of this kind, an index into `KINDS`."""
        return any(bool((self.codes.kinds(program) == kind).any()) for program in self.programs)

    @property
    def peak_in_flight(self) -> tuple[int, ...]:
        """The most activations that each device holds: of a micro-batch from its forward to its backward.

        Counted in stages' activations, so in chunks where a device has several; where the backward is split, the
        weight gradient lets go. Without a backward one micro-batch is held while it is computed.
        """
        if not self.has(BACKWARD):
            return (1,) * self.n_devices
        release = WEIGHT if self.has(WEIGHT) else BACKWARD
        return tuple(self._peak(self.codes.kinds(program), release) for program in self.programs)

    @staticmethod
    def _peak(kinds: IntArray, release: int) -> int:
        held = np.cumsum((kinds == FORWARD).astype(np.int64) - (kinds == release))
        return int(held.max(initial=0))


@dataclass(frozen=True, slots=True, eq=False)
class StageTimes:
    """How long the actions and messages of every stage take, in ticks: whole parts of a cycle.

    Attributes:
        forward, backward, weight: (S,) compute of an action; `backward` is the whole backward pass, or its
            input-gradient half where a schedule has WEIGHT actions, which take `weight`.
        forward_links: (S + 1,) entry s is what a message takes into stage s from the one before it, or from the host;
            the last entry leads from the last stage to the host. Unused where both ends are one device.
        backward_links: (S,) entry s is what a gradient takes from stage s to the one before it; entry 0 is unused.
        forward_exchange, backward_exchange: (S,) what a device exchanges for one forward or backward of a stage when
            all devices exchange at once.
        ticks_per_cycle: so that decimals of cycles, and parts of a device's cycles for each of its chunks, stay exact.
        checks: for every stage the ticks of its checks by number; empty where there are none.
    """

    forward: IntArray
    backward: IntArray
    weight: IntArray
    forward_links: IntArray
    backward_links: IntArray
    forward_exchange: IntArray
    backward_exchange: IntArray
    ticks_per_cycle: int = 1
    checks: tuple[IntArray, ...] = ()

    @property
    def n_stages(self) -> int:
        """How many stages there are."""
        return len(self.forward)
