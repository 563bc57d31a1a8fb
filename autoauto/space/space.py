"""The space of a search: `SearchSpace`."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from itertools import product
from math import prod
from typing import Any

from autoauto.records.costs.options import GraphOptimization, HostPrecision, HostRuntime, runtime_for
from autoauto.records.costs.profile import Optimizer
from autoauto.records.errors import BadInput
from autoauto.records.knob import Domain
from autoauto.records.schedule import Order
from autoauto.space.constraint import Constraint
from autoauto.space.knobs import Knobs
from autoauto.space.modes import (
    KNOBS,
    MAX_VALUES,
    OF_RUNTIMES,
    STAGES_PER_DEVICE,
    Knob,
    Recompute,
    Strategy,
)

MAX_CONFIGURATIONS = 300_000  # of a space: each takes some ten microseconds before anything is measured


def of_global_batch(
    n_samples: int, replicas: Sequence[int], batch_sizes: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], Constraint]:
    """What makes every step of training have `n_samples`: numbers of micro-batches, sizes of them, and the condition.

    Raises:
        BadInput: no number of replicas times a size divides it.

    >>> n_micro_batches, sizes, _ = of_global_batch(24, (1, 4), (1, 2, 3, 5))
    >>> n_micro_batches, sizes
    ((2, 3, 6, 8, 12, 24), (1, 2, 3))
    """
    pairs = [(n, size) for n in replicas for size in batch_sizes if n_samples % (n * size) == 0]
    steps = {n_samples // (n * size) for n, size in pairs}
    if not steps or min(steps) > MAX_VALUES:
        raise BadInput(
            f"a global batch must be replicas x batch_size x n_micro_batches, at most {MAX_VALUES:,} of the last, got "
            f"{n_samples:,} for replicas {_few(replicas)} and batch_size {_few(batch_sizes)}; try others"
        )
    whole = tuple(sorted(n for n in steps if n <= MAX_VALUES))
    return whole, tuple(sorted({size for _, size in pairs})), Constraint(f"n_samples == {n_samples}")


def _few(values: Sequence[int]) -> str:
    return f"{min(values)} to {max(values)}" if len(values) > 1 else str(values[0])


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """A grid over all knobs but the batch size; every cell of the grid has all batch sizes, ascending.

    Configurations that violate one of the `constraints`, which name knobs only, are not part of the space. Where there
    are several numbers of micro-batches, nor are those with too few or too many for their order; nor are orders,
    numbers of stages a device and pipeline lengths that do not go together. A knob that a runtime does not have does
    not multiply its configurations: they have it at its default. Every stream has a core or more, and an equal part of
    the batch.

    Cells of phases have no `schedule`, and `steps` are their values of `Knobs.n_micro_batches`.
    """

    n_ipu: tuple[int, ...] = (1, 2, 4)
    memory_proportion: tuple[float, ...] = (0.3, 0.6, 1.0)
    batch_size: tuple[int, ...] = tuple(range(1, 129))
    schedule: tuple[Order, ...] = (Order.INFERENCE,)
    recompute: tuple[bool | Recompute, ...] = (False,)
    n_micro_batches: tuple[int, ...] = (1,)
    strategy: tuple[Strategy, ...] = (Strategy.PIPELINE,)
    steps: tuple[int, ...] = (16,)
    replicas: tuple[int, ...] = (1,)
    cores_per_device: tuple[int, ...] = (1,)
    stage_replicas: tuple[bool, ...] = (False,)
    optimizer: tuple[Optimizer, ...] = (Optimizer.SGD,)
    master_weights: tuple[bool, ...] = (False,)
    shard_optimizer: tuple[bool, ...] = (False,)
    runtime: tuple[HostRuntime | None, ...] = (None,)
    precision: tuple[HostPrecision | None, ...] = (None,)
    streams: tuple[int, ...] = (1,)
    spinning: tuple[bool, ...] = (True,)
    graph_optimization: tuple[GraphOptimization, ...] = (GraphOptimization.ALL,)
    cuda_graph: tuple[bool, ...] = (True,)
    channels_last: tuple[bool, ...] = (False,)
    constraints: tuple[Constraint, ...] = ()
    stages_per_device: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        for name in _AXES:
            domain = _TABLE[name].domain
            object.__setattr__(self, name, _values(name, getattr(self, name), domain))
        object.__setattr__(self, "constraints", _values("constraints", self.constraints, _CONSTRAINTS))
        if (n_configurations := self._n_combinations()) > MAX_CONFIGURATIONS:
            raise BadInput(
                f"a space has at most {MAX_CONFIGURATIONS:,} configurations, got {n_configurations:,}; "
                f"try fewer values of {max(_AXES, key=lambda name: len(getattr(self, name)))}"
            )
        for constraint in self.constraints:
            if not constraint.over_knobs:
                raise BadInput(
                    f"a constraint of a space names knobs only, got {constraint.text!r}; give it to search or load_flow"
                )
        for name in _AXES:
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise BadInput(f"{name} needs one or more different values, got {', '.join(map(str, values))}")
        if min(self.steps) < 1:
            raise BadInput(f"steps must be at least 1, got {min(self.steps)}")
        if list(self.batch_size) != sorted(self.batch_size):
            raise BadInput(f"batch_size must ascend, got {list(self.batch_size)}")
        if self.training and Order.INFERENCE in self.schedule:
            raise BadInput("a search is for training or for inference, got both among its schedules")
        for batch_size in (self.batch_size[0], self.batch_size[-1]) if self._global_batch is None else ():
            list(self.grid(batch_size))  # `Knobs` raises BadInput for a configuration that cannot exist
        self._check_runtimes()
        self._check_precisions()
        if not _cells(self):
            texts = ", ".join(constraint.text for constraint in self.constraints)
            raise BadInput(f"no configuration of the space meets {texts}; try a wider space")

    def _check_precisions(self) -> None:
        """Refuse formats in which no runtime of the space computes."""
        pairs = product(self.runtime, self.precision)
        if not any(Knobs(1, 1.0, 1, runtime=runtime, precision=precision).can_compute for runtime, precision in pairs):
            on_gpus = runtime_for(None, self.precision[0]) is HostRuntime.CUDA
            hint = "--device cuda:0" if on_gpus else "another --runtime"
            raise BadInput(f"{self.runtime[0]} does not compute in {self.precision[0]}; try {hint}")

    def _check_runtimes(self) -> None:
        """Refuse a knob that no runtime of the space has, and streams that no device and no batch has room for."""
        for knob in self.runtime_knobs:
            if not any(
                Knobs(1, 1.0, 1, cores_per_device=n, runtime=runtime, precision=precision).has_effect(knob)
                for n, runtime, precision in product(self.cores_per_device, self.runtime, self.precision)
            ):
                several = " on several cores a device" if knob.name == "spinning" else ""
                names, got = " or ".join(knob.runtimes), ", ".join(each or "none" for each in self.runtime)
                raise BadInput(
                    f"{knob.option} is for --runtime {names}{several}, got {got} on "
                    f"{_few(self.cores_per_device)}; leave it out, or try those"
                )
        if min(self.streams) > max(self.cores_per_device) or not any(
            size % n == 0 for size, n in product(self.batch_size, self.streams)
        ):
            raise BadInput(
                f"streams need a core or more each, and equal parts of a batch, got --streams {min(self.streams)} for "
                f"--cores-per-device {_few(self.cores_per_device)} and --batch-size {_few(self.batch_size)}; try others"
            )

    def _n_combinations(self) -> int:
        """How many configurations there are at most: of a global batch those with so many samples a step."""
        n_combinations = prod(len(getattr(self, name)) for name in _AXES)
        if self._global_batch is None:
            return n_combinations
        products = (n * r for n in self.n_micro_batches for r in self.replicas)
        n_whole = sum(self._global_batch == each * size for each in products for size in self.batch_size)
        n_others = len(self.n_micro_batches) * len(self.replicas) * len(self.batch_size)
        return n_combinations // n_others * n_whole

    @property
    def _global_batch(self) -> int | None:
        """The samples of every step, where a constraint as of `of_global_batch` fixes them for pipelines alone."""
        if self.strategy != (Strategy.PIPELINE,):
            return None
        matches = (_GLOBAL_BATCH.fullmatch(constraint.text) for constraint in self.constraints)
        return next((int(match[1]) for match in matches if match), None)

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return self.schedule != (Order.INFERENCE,)

    @property
    def runtime_knobs(self) -> list[Knob]:
        """The knobs that only some runtimes have, where other values than their defaults are given."""
        return [knob for knob in OF_RUNTIMES if getattr(self, knob.name) != (knob.default,)]

    @property
    def n_configurations(self) -> int:
        """The number of configurations in the space."""
        return sum(map(len, _cells(self)))

    @property
    def cells(self) -> list[list[Knobs]]:
        """The configurations of every cell of the grid, by ascending batch size."""
        return list(map(list, _cells(self)))

    def __contains__(self, knobs: Knobs) -> bool:
        inside = knobs.strategy in self.strategy and knobs.batch_size in self.batch_size
        choice = {axis.name: getattr(knobs, axis.field) for axis in self.axes(knobs.strategy)}
        allowed = {
            axis.name: getattr(self, axis.name) if knobs.has_effect(axis) else (axis.default,)
            for axis in self.axes(knobs.strategy)
        }
        inside = inside and all(value in allowed[name] for name, value in choice.items())
        return (
            inside
            and _all_hold(self.constraints, knobs)
            and knobs.batch_size % knobs.streams == 0
            and self.configuration(knobs.strategy, knobs.batch_size, choice) == knobs
        )

    def axes(self, strategy: Strategy) -> list[Knob]:
        """The knobs in which cells of a strategy differ, in the order of the grid."""
        return [_TABLE[name] for name in _AXES if name not in _NO_AXES and _TABLE[name].varies(strategy)]

    def configuration(self, strategy: Strategy, batch_size: int, choice: Mapping[str, Any]) -> Knobs:
        """The configuration of a cell, by its value on every axis of the strategy, and a batch size."""
        named = {_TABLE[name].field: value for name, value in choice.items()}
        if strategy is Strategy.PHASED:
            named["schedule"] = Order.SEQUENTIAL if self.training else Order.INFERENCE
        knobs = Knobs(batch_size=batch_size, strategy=strategy, **named)
        idle = {knob.name: knob.default for knob in self.runtime_knobs if not knobs.has_effect(knob)}
        return replace(knobs, **idle) if idle else knobs

    def grid(self, *batch_sizes: int) -> Iterator[Knobs]:
        """The configuration of every cell at these batch sizes, first the pipelines.

        Constraints are not checked, but that of a global batch.

        Raises:
            BadInput: a configuration cannot exist; where they have several numbers of micro-batches, all of them. Or
                an order, a number of stages a device or a recomputation is part of none.
        """
        refused: dict[tuple[str, Any], tuple[Strategy, int, Mapping[str, Any]]] = {}
        made: set[tuple[str, Any]] = set()
        n_samples = self._global_batch
        for strategy in Strategy:
            if strategy in self.strategy:
                names = [axis.name for axis in self.axes(strategy)]
                for *values, batch_size in product(*(getattr(self, name) for name in names), batch_sizes):
                    choice = dict(zip(names, values, strict=True))
                    if n_samples and n_samples != choice["n_micro_batches"] * choice["replicas"] * batch_size:
                        continue
                    named = {("strategy", strategy), *(pair for pair in choice.items() if pair[0] in _MATCHED)}
                    knobs = self._configuration_or_none(strategy, batch_size, choice)
                    if knobs is not None and not self._is_first(knobs, choice):
                        continue
                    if knobs is None:
                        refused.update(dict.fromkeys(named, (strategy, batch_size, choice)))
                    else:
                        made |= named
                        yield knobs
        for pair, arguments in refused.items():
            if pair not in made:
                self.configuration(*arguments)

    def _is_first(self, knobs: Knobs, choice: Mapping[str, Any]) -> bool:
        """Whether knobs that the runtime of a configuration does not have are at the first of their values."""
        idle = (knob.name for knob in self.runtime_knobs if not knobs.has_effect(knob))
        return all(name not in choice or choice[name] == getattr(self, name)[0] for name in idle)

    def _configuration_or_none(self, strategy: Strategy, batch_size: int, choice: Mapping[str, Any]) -> Knobs | None:
        if self._is_mismatch(strategy, choice):
            return None
        try:
            return self.configuration(strategy, batch_size, choice)
        except BadInput:
            if len(self.n_micro_batches) == 1:
                raise
            return None

    def _is_mismatch(self, strategy: Strategy, choice: Mapping[str, Any]) -> bool:
        """Whether values of several knobs do not go together, each of which may go together with others."""
        if strategy is Strategy.PHASED:
            return choice.get("recompute") is Recompute.AUTO
        order, n_stages, n_ipu = (choice[name] for name in ("schedule", "stages_per_device", "n_ipu"))
        fewest, most = STAGES_PER_DEVICE.get(order, (1, 1))
        is_single = n_stages > 1 and n_ipu == 1
        uneven = order is Order.INTERLEAVED and len(self.n_ipu) > 1 and any(n % n_ipu for n in self.n_micro_batches)
        return not fewest <= n_stages <= most or is_single or uneven


@lru_cache(maxsize=4)
def _cells(space: SearchSpace) -> tuple[tuple[Knobs, ...], ...]:
    """`SearchSpace.cells`. A constraint without a size is checked once for a whole cell, because spaces are large."""
    by_size = tuple(constraint for constraint in space.constraints if set(constraint.names) & _SIZES)
    by_cell = tuple(constraint for constraint in space.constraints if constraint not in by_size)
    if space._global_batch is not None:  # a number of micro-batches of so many replicas has one size
        return tuple((knobs,) for knobs in space.grid(*space.batch_size) if _all_hold(space.constraints, knobs))
    firsts = (knobs for knobs in space.grid(space.batch_size[0]) if _all_hold(by_cell, knobs))
    cells = (
        tuple(filter(partial(_all_hold, by_size), (replace(first, batch_size=size) for size in sizes)))
        for first in firsts
        for sizes in [[size for size in space.batch_size if size % first.streams == 0]]
    )
    return tuple(filter(None, cells))


def _all_hold(constraints: Sequence[Constraint], knobs: Knobs) -> bool:
    """Whether a configuration meets all constraints, and its runtime computes in its format."""
    return knobs.can_compute and all(constraint.violation(knobs.numbers) <= 0 for constraint in constraints)


_MATCHED = ("schedule", "stages_per_device", "recompute")
"""The knobs of which every value must be part of some configuration."""
_GLOBAL_BATCH = re.compile(r"n_samples == (\d+)")
_SIZES = {"batch_size", "n_samples"}
"""The names in constraints whose values differ within a cell."""
_TABLE = {knob.name: knob for knob in KNOBS}
_AXES = tuple(field.name for field in fields(SearchSpace) if field.name in _TABLE)
_NO_AXES = ("strategy", "batch_size")
"""A cell has one strategy and all batch sizes."""
_CONSTRAINTS = Domain(
    str, "", "expressions", read=lambda given: given if isinstance(given, Constraint) else Constraint(given)
)


def _values(name: str, given: Any, domain: Domain) -> tuple[Any, ...]:
    try:
        if domain.kind in (int, float) and any(isinstance(value, bool | str) for value in given):
            raise TypeError("numbers are neither switches nor texts")
        values = tuple(map(domain.read, given))
    except BadInput:
        raise
    except (TypeError, ValueError):
        raise BadInput(f"{name} takes a tuple of {domain.plural}, got {reprlib.repr(given)}") from None
    if domain.kind is int and max(values, default=0) > domain.maximum:
        raise BadInput(f"{name} must be {domain.text}, got {max(values)}")
    return values
