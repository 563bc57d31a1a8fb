"""Every order by its name: `make_schedule`, `stage_devices_of`, `spec_of`.

The registry asks every file of this folder for its `SPECS`, so a new order is a new file here and a name in `Order`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pkgutil import iter_modules

import autoauto.schedule.orders as orders_package
from autoauto.records.errors import BadInput
from autoauto.records.schedule import MAX_FORWARDS, MAX_STAGES, Order, Schedule, StageTimes, StepShape
from autoauto.schedule.orders.spec import OrderSpec, ScheduleRequest

MAX_SPLIT_STAGES = 64  # a search makes orders that split the backward, and each of its steps looks at all devices;
MAX_SPLIT_FORWARDS = 32_768  # so many take it seconds


def make_schedule(
    order: Order,
    n_devices: int,
    n_micro_batches: int,
    *,
    n_chunks: int = 1,
    times: StageTimes | None = None,
    training: bool = True,
    stage_devices: Sequence[int] | None = None,
    max_in_flight: int | None = None,
    effort: float = 1.0,
) -> Schedule:
    """The schedule of an order by name.

    The other arguments are those of `ScheduleRequest`. PopART's and Poplar's pipelines alone may do without training,
    and by default Poplar's have one stage a device. Zero bubble orders need `times`, and have limits of their own.

    Raises:
        BadInput: the order does not take such arguments.
    """
    spec = spec_of(order)
    _require_counts(n_devices=n_devices, n_micro_batches=n_micro_batches, n_chunks=n_chunks)
    _require_taken(spec, n_chunks, training, stage_devices, max_in_flight)
    if spec.splits_backward:
        if times is None:
            raise BadInput(f"{order} is made for what actions take; give times")
        assert times.n_stages == len(spec.stage_devices(n_devices, n_chunks))
    if max_in_flight is None and spec.default_max_in_flight is not None:
        max_in_flight = spec.default_max_in_flight(n_devices)
    return spec.make(
        ScheduleRequest(n_devices, n_micro_batches, n_chunks, training, times, stage_devices, max_in_flight, effort)
    )


def check_size(order: Order, n_stages: int, n_micro_batches: int) -> None:
    """Refuse with BadInput an order that takes too long to make; `n_stages` are those of all devices."""
    max_stages, max_forwards = MAX_STAGES, MAX_FORWARDS
    if spec_of(order).splits_backward:
        max_stages, max_forwards = MAX_SPLIT_STAGES, MAX_SPLIT_FORWARDS
    for what, size, limit in (
        ("stages", n_stages, max_stages),
        ("stages x micro-batches", n_stages * n_micro_batches, max_forwards),
    ):
        if size > limit:
            raise BadInput(f"{order} takes at most {limit:,} {what}, all chunks counted, got {size:,}; try fewer")


def stage_devices_of(order: Order, n_devices: int, n_chunks: int = 1) -> tuple[int, ...]:
    """The device of every stage that an order has by default."""
    return spec_of(order).stage_devices(n_devices, n_chunks)


def chunks_of(step: StepShape) -> int:
    """The chunks a device of a step's order: its stages a device, where the order does not fix them."""
    return step.stages_per_device if spec_of(step.order).takes_chunks else 1


def devices_of(step: StepShape) -> tuple[int, ...]:
    """The device of every stage of a step."""
    return stage_devices_of(step.order, step.n_devices, chunks_of(step))


def has_one_stage_each(step: StepShape) -> bool:
    """True if no device of a step has several stages."""
    return len(devices_of(step)) == step.n_devices


def spec_of(order: Order) -> OrderSpec:
    """The specification of an order."""
    return _SPECS[order]


def _collect() -> dict[Order, OrderSpec]:
    """The specifications of all files of this folder, in the sequence of `Order`."""
    specs: dict[Order, OrderSpec] = {}
    for module_info in iter_modules(orders_package.__path__):
        if module_info.name != "registry":
            module = import_module(f"{orders_package.__name__}.{module_info.name}")
            specs.update((spec.order, spec) for spec in getattr(module, "SPECS", ()))
    return {order: specs[order] for order in Order}


_SPECS = _collect()
_FEWEST_STAGES = {order: spec.stages_per_device[0] for order, spec in _SPECS.items() if spec.stages_per_device}
TRAINING_ORDERS = tuple(sorted(_FEWEST_STAGES, key=_FEWEST_STAGES.__getitem__))
"""The orders in which a plan can train, beginning with the orders of one stage a device."""


def _names(accepts: Callable[[OrderSpec], bool]) -> str:
    """The names of all orders that `accepts` is true of."""
    return ", ".join(order for order, spec in _SPECS.items() if accepts(spec))


def _require_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise BadInput(f"{name} must be at least 1, got {count}")


def _require_taken(
    spec: OrderSpec, n_chunks: int, training: bool, stage_devices: Sequence[int] | None, max_in_flight: int | None
) -> None:
    order = spec.order
    if n_chunks > 1 and not spec.takes_chunks:
        raise BadInput(f"chunks are for {_names(lambda other: other.takes_chunks)}, got {n_chunks} with {order}")
    mapped = _names(lambda other: other.takes_stage_devices)
    if not training and not spec.runs_inference:
        fixed = _names(lambda other: other.runs_inference and not other.takes_stage_devices)
        raise BadInput(f"{order} is for training; try {fixed} or one of {mapped}")
    if stage_devices is not None and not spec.takes_stage_devices:
        raise BadInput(f"a device for every stage is for {mapped}, got one with {order}")
    if max_in_flight is not None:
        if spec.default_max_in_flight is None:
            limited = _names(lambda other: other.default_max_in_flight is not None)
            raise BadInput(f"a limit of activations is for {limited}, got one with {order}")
        _require_counts(max_in_flight=max_in_flight)
