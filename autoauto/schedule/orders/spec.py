"""`OrderSpec`, by which an order file registers its orders, and `ScheduleRequest`, the arguments of a schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autoauto.records.schedule import Order, Schedule, StageTimes


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """The arguments of `make_schedule` that its checks have accepted.

    Attributes:
        n_devices: with `stage_devices`, how many stages are mapped to devices.
        n_chunks: of a device; 1 unless the order takes chunks.
        times: of the stages of `stage_devices_of`, if given; always given where the order splits the backward pass.
        stage_devices: the device of every stage, backward ones too, as the caller maps them, if given.
        max_in_flight: the activations that a device may hold, where the order takes a limit; None elsewhere.
        effort: the share of its effort that a search for an order may take.
    """

    n_devices: int
    n_micro_batches: int
    n_chunks: int
    training: bool
    times: StageTimes | None
    stage_devices: Sequence[int] | None
    max_in_flight: int | None
    effort: float = 1.0

    @property
    def action_times(self) -> StageTimes:
        """The times of actions, which the registry requires for orders that are searched by times."""
        assert self.times is not None  # the registry has checked
        return self.times


def in_rounds(n_devices: int, n_chunks: int) -> tuple[int, ...]:
    """Stage s on device s mod n_devices."""
    return tuple(range(n_devices)) * n_chunks


def there_and_back(n_devices: int, n_chunks: int) -> tuple[int, ...]:
    """Two stages a device, in a V: down the devices and up again.

    >>> there_and_back(3, 1)
    (0, 1, 2, 2, 1, 0)
    """
    devices = tuple(range(n_devices))
    return (devices + devices[::-1]) * n_chunks


@dataclass(frozen=True, slots=True)
class OrderSpec:
    """One order: how its schedules are made and which arguments it takes.

    A file of `schedule/orders/` lists those of its orders in a tuple `SPECS`; the registry collects them.

    Attributes:
        stage_devices: the default device of every stage, from the numbers of devices and of chunks a device.
        runs_inference: whether it can run without a backward pass.
        splits_backward: whether input and weight gradients are actions of their own. Such an order is made for given
            times.
        takes_chunks: whether a device may have several chunks of the model.
        takes_stage_devices: whether the caller may map stages to devices; a backward stage may then be mapped to
            another device than its forward stage.
        default_max_in_flight: the activations that a device may hold by default, from the number of devices; None for
            an order that takes no limit.
        stages_per_device: the fewest and the most stages of a device where a plan trains in this order; None where none
            does.
        min_micro_batches: the fewest micro-batches of a step, from the number of devices.
        in_groups: whether the micro-batches of several stages a device come in groups, one for each device.
        fifo_depth: entries of an activation FIFO for every stage from its own to the last; None where a device stashes
            every activation in flight.
    """

    order: Order
    make: Callable[[ScheduleRequest], Schedule]
    stage_devices: Callable[[int, int], tuple[int, ...]] = in_rounds
    runs_inference: bool = False
    splits_backward: bool = False
    takes_chunks: bool = False
    takes_stage_devices: bool = False
    default_max_in_flight: Callable[[int], int] | None = None
    stages_per_device: tuple[int, int] | None = None
    min_micro_batches: Callable[[int], int] = lambda n_devices: 1
    in_groups: bool = False
    fifo_depth: int | None = None
