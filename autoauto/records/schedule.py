"""The actions of every device in order, and their durations: `Action`, `Schedule`, `StageTimes`.

A schedule is a value, separate from the code that executes it: "2F0" is stage 2, forward, micro-batch 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from autoauto.records.errors import BadInput
from autoauto.records.units import IntArray


class Order(StrEnum):
    """The orders that a pipeline can run in."""

    INFERENCE = "inference"
    POPART = "popart"
    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    ZB1P = "zb1p"
    ZB2P = "zb2p"
    ZBV = "zbv"
    V_HALF = "v-half"
    V_MIN = "v-min"
    POPART_RING = "popart-ring"
    GROUPED = "grouped"
    POPLAR_INTERLEAVED = "poplar-interleaved"
    SEQUENTIAL = "sequential"


class StepShape(NamedTuple):
    """The numbers that make a step of an order.

    Attributes:
        order: `Order.INFERENCE` has no step, only a steady state.
        n_devices: of one pipeline.
        n_micro_batches: of a step of training; 1 for inference.
        stages_per_device: more than 1 where a device has several chunks of the model.
    """

    order: Order
    n_devices: int
    n_micro_batches: int = 1
    stages_per_device: int = 1

    @property
    def training(self) -> bool:
        """True if there is a backward pass."""
        return self.order is not Order.INFERENCE


MAX_STAGES = 1_000
MAX_FORWARDS = 500_000  # of all stages; these, and as many backwards, take seconds and less than a GiB


class Transfers(StrEnum):
    """The moments at which devices exchange activations and gradients."""

    OVERLAP = "overlap"
    """Every direction of a link carries one message after the other, while devices compute."""
    BARRIER = "barrier"
    """All devices exchange at once, when the slowest has computed [auto-pipeline, README]."""


class ActionKind(StrEnum):
    """The kind of work that a stage does on a micro-batch."""

    FORWARD = "F"
    BACKWARD = "B"
    """The whole backward pass; its input-gradient half where the schedule has WEIGHT actions."""
    WEIGHT = "W"
    """The weight-gradient half of the backward pass."""
    CHECK = "C"
    """A bubble check [pipeline-notes]: work that fills idle time; its number counts a device's checks."""


KINDS = tuple(ActionKind)
FORWARD, BACKWARD, WEIGHT, CHECK = range(len(KINDS))


class Action(NamedTuple):
    """One stage's work on one micro-batch."""

    stage: int
    kind: ActionKind
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"

    @staticmethod
    def parse(text: str) -> Action:
        """Read what `str` prints. Raises BadInput if the text is something else."""
        for kind in KINDS:
            stage, letter, micro_batch = text.partition(kind)
            if letter and stage.isdecimal() and micro_batch.isdecimal():
                return Action(int(stage), kind, int(micro_batch))
        raise BadInput(f"an action is written 2F0 (stage, one of {' '.join(KINDS)}, micro-batch), got {text!r}")


class Codes(NamedTuple):
    """The numbers that stand for actions, so that a million of them are one array.

    `code = (kind * n_stages + stage) * n_numbers + micro_batch`: an action and one on which it depends differ by a
    constant. `n_numbers` is large enough for a device's checks, at most 2 (stages - 1).
    """

    n_stages: int
    n_micro_batches: int

    @property
    def n_numbers(self) -> int:
        """The number of codes that every stage has for every kind."""
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
        codes = np.empty(len(actions), dtype=np.int64)
        for i, (stage, kind, micro_batch) in enumerate(actions):
            codes[i] = (KINDS.index(kind) * self.n_stages + stage) * self.n_numbers + micro_batch
        return codes

    def actions(self, codes: IntArray) -> Iterator[Action]:
        """The actions that `codes` stand for."""
        stages, kinds = self.stages(codes).tolist(), self.kinds(codes).tolist()
        for stage, kind, micro_batch in zip(stages, kinds, self.micro_batches(codes).tolist(), strict=True):
            yield Action(stage, KINDS[kind], micro_batch)


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The actions of every device in their order.

    Attributes:
        order: the rule by which the actions are ordered; None where they were read from a file.
        devices: the device of every stage; with several chunks a device, a stage is a chunk.
        programs: for every device the codes (`Codes`) of its actions, in order.
        slots: for every device the pipeline cycle of each of its actions, non-decreasing, where the order has such
            cycles (PopART's, Poplar's): all devices then wait for each other after every cycle. None where they do not.
        n_replicas: for every stage how many devices, from its own on, run it and take its micro-batches in turn; empty
            where each has one.
        full_backwards: where the backward pass of some micro-batches is split and that of others is not, the codes of
            the BACKWARD actions of these others. Their WEIGHT action follows at once, and the gradient of the stage's
            input leaves when both have stopped.
    """

    order: Order | None
    devices: tuple[int, ...]
    n_micro_batches: int
    programs: tuple[IntArray, ...]
    slots: tuple[IntArray, ...] | None = None
    n_replicas: tuple[int, ...] = ()
    full_backwards: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        used: set[int] = set()
        for stage in range(self.n_stages):
            used.update(self.devices_of(stage))
        assert used == set(range(self.n_devices))
        assert self.n_micro_batches > 0

    @classmethod
    def of_inference(cls, n_replicas: Sequence[int], n_micro_batches: int) -> Schedule:
        """All forwards of stages that follow each other; micro-batch t of a stage with m devices runs on its t mod m.

        0F0 0F1 0F2 0F3
            1F0     1F2
                1F1     1F3
                2F0 2F1 2F2 2F3
        """
        codes = Codes(len(n_replicas), n_micro_batches)
        programs = []
        for stage, m in enumerate(n_replicas):
            programs += [codes.of(FORWARD, stage, np.arange(first, n_micro_batches, m)) for first in range(m)]
        devices = tuple(accumulate(n_replicas, initial=0))[:-1]
        return cls(Order.INFERENCE, devices, n_micro_batches, tuple(programs), n_replicas=tuple(n_replicas))

    @property
    def order_name(self) -> str:
        """The name of the order, or "custom"."""
        return self.order or "custom"

    def devices_of(self, stage: int) -> range:
        """The devices that run a stage."""
        n_replicas = self.n_replicas[stage] if self.n_replicas else 1
        return range(self.devices[stage], self.devices[stage] + n_replicas)

    @property
    def codes(self) -> Codes:
        """The codes in which the programs are written."""
        return Codes(len(self.devices), self.n_micro_batches)

    @property
    def n_stages(self) -> int:
        """Number of stages."""
        return len(self.devices)

    @property
    def n_devices(self) -> int:
        """Number of devices."""
        return len(self.programs)

    @property
    def n_actions(self) -> int:
        """Number of actions of all devices."""
        return sum(map(len, self.programs))

    def actions(self, device: int) -> Iterator[Action]:
        """The actions of one device, in order."""
        return self.codes.actions(self.programs[device])

    def has(self, kind: int) -> bool:
        """True if any action is of this kind, an index into `KINDS`."""
        return any(bool((self.codes.kinds(program) == kind).any()) for program in self.programs)

    @property
    def peak_in_flight(self) -> tuple[int, ...]:
        """The largest number of stashed activations on each device: one for every stage and micro-batch in flight.

        An activation is stashed from its forward to its backward, or to its weight gradient where the backward is
        split. With several chunks a device, every chunk counts. Without a backward one micro-batch is in flight.
        """
        if not self.has(BACKWARD):
            return (1,) * self.n_devices
        release = WEIGHT if self.has(WEIGHT) else BACKWARD
        peaks = []
        for program in self.programs:
            kinds = self.codes.kinds(program)
            n_stashed = np.cumsum((kinds == FORWARD).astype(np.int64) - (kinds == release))
            peaks.append(int(n_stashed.max(initial=0)))
        return tuple(peaks)


@dataclass(frozen=True, slots=True, eq=False)
class StageTimes:
    """Times of the actions and messages of every stage, in ticks: whole parts of a cycle.

    Attributes:
        forward, backward, weight: (S,) compute of an action; `backward` is the whole backward pass, or its
            input-gradient half where a schedule has WEIGHT actions, which take `weight`.
        forward_links: (S + 1,) entry s is the time of a message into stage s from the stage before, or from the host;
            the last entry is from the last stage to the host. Unused where both ends are one device.
        backward_links: (S,) entry s is the time of a gradient from stage s to the stage before it; entry 0 is unused.
        forward_exchange, backward_exchange: (S,) the device's transfers for a forward or backward of a stage, when all
            devices exchange at once.
        ticks_per_cycle: above 1 where fractions of cycles must stay exact, as for chunks of a device.
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
        """Number of stages."""
        return len(self.forward)
