"""The combinations of the values of knobs, `Grid`: those that can exist, in the order of a search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from operator import itemgetter
from typing import Any

from autoauto.records.costs.options import Session
from autoauto.records.errors import BadInput, Mismatch
from autoauto.records.knob import Knob
from autoauto.records.schedule import Order
from autoauto.space.knobs import REPLICAS, Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.modes.inference import Inference
from autoauto.space.modes.mode import Mode, Strategy
from autoauto.space.modes.phased import Phased
from autoauto.space.modes.registry import MODES
from autoauto.space.modes.training import N_MICRO_BATCHES, Training
from autoauto.space.sessions import RUNTIMES
from autoauto.space.table import AXES, TABLE


@dataclass(frozen=True, slots=True)
class Grid:
    """All combinations of values of knobs, every cell at any batch sizes.

    Attributes:
        session: the class of sessions where no runtime is named.
        n_samples: of every step of training by all replicas, where that is fixed (`of_global_batch`).
        n_devices: that a configuration which generates text may take. Most combinations take more, and making one takes
            some ten microseconds.
    """

    values: Mapping[str, tuple[Any, ...]]
    session: type[Session]
    n_samples: int | None = None
    n_devices: int | None = None

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        """The values of a knob."""
        return self.values[name]

    @property
    def training(self) -> bool:
        """True if there is a backward pass."""
        return self["schedule"] != (Order.INFERENCE,)

    @property
    def modes(self) -> tuple[type[Mode], ...]:
        """The classes of the modes, first pipelines."""
        kinds: list[type[Mode]] = []
        if Strategy.PIPELINE in self["strategy"]:
            if self.training:
                kinds.append(Training)
            elif any(self["output_tokens"]):
                kinds.append(Generation)
            else:
                kinds.append(Inference)
        if Strategy.PHASED in self["strategy"]:
            kinds.append(Phased)
        return tuple(kinds)

    @property
    def sessions(self) -> tuple[type[Session], ...]:
        """The classes of the sessions, one for every runtime."""
        return tuple(self.session if name is None else RUNTIMES[name] for name in self["runtime"])

    @property
    def n_combinations(self) -> int:
        """How many configurations there are at most: of a global batch those with so many samples a step."""
        n_cells = 0
        for mode, session in product(self.modes, self.sessions):
            n_others = prod(len(self[name]) for name in self._other_axes(mode, session))
            n_cells += n_others * len(possible_choices(session, self.values))
        steps, replicas, sizes = self["n_micro_batches"], self["replicas"], self["batch_size"]
        if self.n_samples is None:
            return int(n_cells * len(sizes))
        n_whole = sum(prod(numbers) == self.n_samples for numbers in product(steps, replicas, sizes))
        return int(n_cells // (len(steps) * len(replicas)) * n_whole)

    def axes(self, mode: type[Mode], session: type[Session]) -> list[Knob]:
        """The knobs in which cells of a mode and of a session differ, in the order of the grid."""
        own = {knob.name for knob in (*Knobs.knobs, *mode.knobs, *session.knobs)}
        if mode is Phased:
            own.discard(REPLICAS.name)
        return [knob for knob in AXES if knob.name in own]

    def _other_axes(self, mode: type[Mode], session: type[Session]) -> list[str]:
        """The names of the axes that are no knobs of the session."""
        of_session = {knob.name for knob in session.knobs}
        return [axis.name for axis in self.axes(mode, session) if axis.name not in of_session]

    def configuration(
        self, mode: type[Mode], session: type[Session], batch_size: int, choice: Mapping[str, Any]
    ) -> Knobs:
        """The configuration of a cell, by its value on every axis, and a batch size."""
        values = {TABLE[name].field: value for name, value in choice.items() if value is not None}
        of_mode = {knob.field: values[knob.field] for knob in mode.knobs}
        if mode is Phased:
            of_mode["training"] = self.training
        of_session = {knob.field: values[knob.field] for knob in session.knobs if knob.field in values}
        replicas = values.get("replicas", 1)
        return Knobs(values["n_ipu"], batch_size, replicas, mode(**of_mode), session(**of_session).normal)

    def configurations(self, *batch_sizes: int) -> Iterator[Knobs]:
        """The configuration of every cell at these batch sizes, first the pipelines.

        Constraints are not checked, but that of a global batch.

        Raises:
            BadInput: a configuration cannot exist; where they have several numbers of micro-batches, all of them. Or
                an order, a number of stages a device or a recomputation is part of none.
        """
        # For every value that must be part of a configuration: whether it is, and a choice with it that was refused.
        made: set[tuple[str, Any]] = set()
        refused: dict[tuple[str, Any], tuple[type[Mode], type[Session], int, Mapping[str, Any]]] = {}
        n_samples = self.n_samples
        for mode in self.modes:
            seen: set[Knobs] = set()  # several choices may have one `Session.normal`
            for (session, choice), batch_size in product(self._choices(mode), batch_sizes):
                if n_samples and n_samples != choice["n_micro_batches"] * choice["replicas"] * batch_size:
                    continue
                matched = {pair for pair in choice.items() if pair[0] in _MATCHED}
                matched.add(("strategy", mode))
                knobs = self._configuration_or_none(mode, session, batch_size, choice)
                if knobs is None:
                    refused.update(dict.fromkeys(matched, (mode, session, batch_size, choice)))
                elif knobs not in seen:
                    seen.add(knobs)
                    made |= matched
                    yield knobs
        for pair, arguments in refused.items():
            if pair not in made:
                self.configuration(*arguments)  # raises again, and says why

    def _choices(self, mode: type[Mode]) -> list[tuple[type[Session], dict[str, Any]]]:
        """The value on every axis of all cells, in the order of `AXES`, with the class of their session."""
        ranks: dict[str, dict[Any, int]] = {}
        for name in _POSITION:
            ranks[name] = {value: rank for rank, value in enumerate(self[name])}
        rows = []
        for number, session in enumerate(self.sessions):
            of_others = _combinations(self._other_axes(mode, session), self.values)
            for of_session in possible_choices(session, self.values):
                for of_other in self._fitting(mode, session, of_session, of_others):
                    choice = {**of_session, **of_other}
                    # The choices of a session are made together, but lie apart in the grid: they are sorted below.
                    key = [0] * len(_POSITION)
                    key[_POSITION["runtime"]] = number
                    for name, value in choice.items():
                        key[_POSITION[name]] = ranks[name][value]
                    rows.append((key, session, choice))
        rows.sort(key=itemgetter(0))
        return [(session, choice) for _, session, choice in rows]

    def _fitting(
        self, mode: type[Mode], session: type[Session], of_session: Mapping[str, Any], others: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The other values with which a session takes no more than `n_devices`."""
        if self.n_devices is None or mode is not Generation:
            return others
        try:
            made = session(**{TABLE[name].field: value for name, value in of_session.items()})
        except BadInput:  # whoever makes the configuration says why
            return others
        most = (self.n_devices - made.n_beside) // made.group_size
        return [choice for choice in others if choice["n_ipu"] * choice["replicas"] <= most]

    def _configuration_or_none(
        self, mode: type[Mode], session: type[Session], batch_size: int, choice: Mapping[str, Any]
    ) -> Knobs | None:
        try:
            return self.configuration(mode, session, batch_size, choice)
        except Mismatch:
            return None
        except BadInput:
            if len(self["n_micro_batches"]) == 1:
                raise
            return None


def possible_choices(session: type[Session], values: Mapping[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """The combinations of values of the knobs of a session that go together; all of them where none do.

    A choice for which the session raises BadInput is returned, too: whoever makes the configuration says why.
    """
    own = {knob.name for knob in session.knobs}
    every = _combinations([knob.name for knob in AXES if knob.name in own], values)
    return [choice for choice in every if _is_possible(session, choice)] or every


def _combinations(names: Sequence[str], values: Mapping[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    columns = [values[name] for name in names]
    return [dict(zip(names, picks, strict=True)) for picks in product(*columns)]


def _is_possible(session: type[Session], choice: Mapping[str, Any]) -> bool:
    of_session = {TABLE[name].field: value for name, value in choice.items() if value is not None}
    try:
        return session(**of_session).is_possible
    except BadInput:
        return True


def default_values(knob: Knob) -> tuple[Any, ...]:
    """The values of a knob that is not given."""
    return knob.searched or (knob.absent,)


_MATCHED = {knob.name for mode in MODES for knob in mode.knobs if knob.field != N_MICRO_BATCHES.name}
_MATCHED |= {knob.name for knob in AXES if knob.domain.by_device}
"""The knobs of which every value must be part of some configuration."""
_POSITION = {knob.name: position for position, knob in enumerate(AXES)}
