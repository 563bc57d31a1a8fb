"""The space of a search: `SearchSpace`."""

from __future__ import annotations

import re
import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, product
from typing import TYPE_CHECKING, Any, Self

from autoauto.records.costs.options import PlainSession, Session
from autoauto.records.errors import BadInput
from autoauto.records.knob import Domain, HasKnobs
from autoauto.records.schedule import Order
from autoauto.records.units import Precision
from autoauto.space.constraint import Constraint
from autoauto.space.grid import Grid, default_values
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.modes.mode import MAX_VALUES, Mode, Strategy
from autoauto.space.modes.registry import MODES, mode_of
from autoauto.space.sessions import RUNTIMES, SESSION_CLASSES, SESSION_KNOBS, owners_of, session_of, target_of
from autoauto.space.table import TABLE, no_such_knob, numbers
from autoauto.targets.host.runtimes.registry import computes_on_gpus
from autoauto.targets.ipu.session import IpuSession

MAX_CONFIGURATIONS = 300_000  # of a space: each takes some ten microseconds before anything is measured


def of_global_batch(
    n_samples: int, replicas: Sequence[int], batch_sizes: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], Constraint]:
    """Numbers and sizes of micro-batches, and a constraint, with which every step of training has `n_samples`.

    Raises:
        BadInput: no number of replicas times a size divides it.
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
    if len(values) == 1:
        return str(values[0])
    return f"{min(values)} to {max(values)}"


@dataclass(frozen=True, slots=True, init=False)
class SearchSpace:
    """A grid over all knobs but the batch size; every cell of the grid has all batch sizes, ascending.

    Values of a knob are given by its name, and read as an attribute: `SearchSpace(n_ipu=(1, 2)).n_ipu` is (1, 2). A
    knob that is not given has its usual values, and one that no configuration has says nothing. Configurations that
    violate one of the `constraints`, which name knobs only, are not part of the space. Where there are several numbers
    of micro-batches, nor are those with too few or too many for their order; nor are orders, numbers of stages a device
    and pipeline lengths that do not go together. A knob that a runtime does not have does not multiply its
    configurations. Every stream has a core or more, and an equal part of the batch.

    Cells of phases have no `schedule`, and `steps` are their numbers of micro-batches.

    Attributes:
        session: the class of sessions where no runtime is named: the first of the target (`on_target`), or the class
            that has the given knobs where no target is known.

    Raises:
        BadInput: there is no such knob, or no such value; values do not go together; or no configuration is left.
    """

    pairs: tuple[tuple[str, tuple[Any, ...]], ...]
    constraints: tuple[Constraint, ...]
    session: type[Session]
    given: frozenset[str] = field(compare=False)

    def __init__(
        self,
        n_ipu: Sequence[int] | None = None,
        memory_proportion: Sequence[float | str] | None = None,
        batch_size: Sequence[int] | None = None,
        *,
        constraints: Sequence[Constraint] = (),
        session: type[Session] | None = None,
        **values: Any,
    ) -> None:
        first = {"n_ipu": n_ipu, "memory_proportion": memory_proportion, "batch_size": batch_size}
        given = {name: each for name, each in first.items() if each is not None} | values
        if unknown := given.keys() - TABLE.keys():
            raise BadInput(no_such_knob(min(unknown)))
        read = {name: read_values(name, each, TABLE[name].domain) for name, each in given.items()}
        pairs = tuple((name, read.get(name, default_values(knob))) for name, knob in TABLE.items())
        names = set(given)
        if session:
            names.add("session")
        set_field = object.__setattr__
        set_field(self, "pairs", pairs)
        set_field(self, "constraints", read_values("constraints", constraints, _CONSTRAINTS))
        set_field(self, "given", frozenset(names))
        set_field(self, "session", session or self._session_of_knobs())
        self._check()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> tuple[Any, ...]:
            """The values of a knob."""
            if name not in TABLE:
                raise AttributeError(f"a space has no {name}")
            return self[name]

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        """The values of a knob."""
        return dict(self.pairs)[name]

    def __repr__(self) -> str:
        said = [f"{name}={values!r}" for name, values in self.pairs if values != default_values(TABLE[name])]
        if self.constraints:
            said.append(f"constraints={self.constraints!r}")
        return f"SearchSpace({', '.join(said)})"

    def with_values(self, *, constraints: Sequence[Constraint] | None = None, **values: Any) -> Self:
        """The space with other values of knobs, by their names, or other constraints."""
        said: dict[str, Any] = {name: each for name, each in self.pairs if name in self.given}
        if "session" in self.given:
            said["session"] = self.session
        if constraints is None:
            constraints = self.constraints
        return type(self)(constraints=constraints, **(said | values))

    def on_target(self, target: str, sessions: Sequence[type[Session]], values: Mapping[str, tuple[Any, ...]]) -> Self:
        """The space on a target with these classes of sessions, with `values` of their knobs where none are given.

        Raises:
            BadInput: a knob is given that the target does not have.
        """
        own = _knobs_of(sessions)
        if any(kind.runtime for kind in sessions):
            own.add("runtime")
        # The knobs of sessions of which something is given.
        said = [name for name in SESSION_KNOBS if name in self.given and self[name] not in ((), (TABLE[name].absent,))]
        changes: dict[str, Any] = {}
        allowed = set(said)
        if sessions:
            if foreign := [name for name in said if name not in own]:
                instead = _INSTEAD.get(foreign[0], "or try --target host")
                raise BadInput(f"--target {target} has no {TABLE[foreign[0]].option}; leave it out, {instead}")
            allowed = own
            # The first class without a runtime, every knob of which has a value here.
            able = (kind for kind in sessions if kind.runtime is None and all(self[knob.name] for knob in kind.knobs))
            first = next(able, PlainSession)
            if first is not self.session:
                changes["session"] = first
        if "output_tokens" not in values:
            for name in ("input_tokens", "output_tokens"):
                if name in self.given and any(self[name]):
                    raise BadInput(
                        f"--target {target} generates no text, got {TABLE[name].option}; leave it out, or give a "
                        "language model and GPUs, --cluster 8xH100"
                    )
        of_target = set(own)
        if not self.training:
            of_target |= _knobs_of([Generation])
        changes |= {name: each for name, each in values.items() if name in of_target and name not in self.given}
        if self["memory_proportion"] and "memory_proportion" not in allowed:
            changes["memory_proportion"] = ()
        if not changes:
            return self
        return self.with_values(**changes)

    def _session_of_knobs(self) -> type[Session]:
        """The class of sessions without a runtime that alone has most given knobs, else that of the default target."""
        alone: Counter[type[Session]] = Counter()
        for name in SESSION_KNOBS:
            if name in self.given and self[name]:
                owners = owners_of(TABLE[name].field)
                if len(owners) == 1 and owners[0].runtime is None:
                    alone[owners[0]] += 1
        if alone:
            return max(alone, key=alone.__getitem__)
        return IpuSession if self["memory_proportion"] else PlainSession

    def _check(self) -> None:
        """Refuse a space that holds nothing, too much, or what cannot be."""
        for name, values in self.pairs:
            # A space of a target without it has no memory proportions.
            if (not values and name != "memory_proportion") or len(set(values)) != len(values):
                raise BadInput(f"{name} needs one or more different values, got {', '.join(map(str, values))}")
        check_n_configurations(self.grid)
        for constraint in self.constraints:
            if not constraint.over_knobs:
                raise BadInput(
                    f"a constraint of a space names knobs only, got {constraint.text!r}; give it to search or load_flow"
                )
        if min(self["steps"]) < 1:
            raise BadInput(f"steps must be at least 1, got {min(self['steps'])}")
        if list(self["batch_size"]) != sorted(self["batch_size"]):
            raise BadInput(f"batch_size must ascend, got {list(self['batch_size'])}")
        if self.training and Order.INFERENCE in self["schedule"]:
            raise BadInput("a search is for training or for inference, got both among its schedules")
        self._check_owners()
        if self._global_batch is None:
            list(self.grid.configurations(self["batch_size"][-1]))  # `Knobs` raises BadInput for what cannot exist
        self._check_sessions()
        if next(_made_cells(self), None) is None:
            # The values of none go together, or none meets the constraints.
            sessions = dict.fromkeys(knobs.session for knobs in self.grid.configurations(self["batch_size"][0]))
            conflicts = [session.conflict for session in sessions]
            if conflicts and all(conflicts):
                raise BadInput(conflicts[0])
            texts = ", ".join(constraint.text for constraint in self.constraints)
            raise BadInput(f"no configuration of the space meets {texts}; try a wider space")

    def _check_owners(self) -> None:
        """Refuse values of knobs that no configuration has."""
        own = _knobs_of([*self.modes, *self.sessions])
        for knob in chain.from_iterable(kind.knobs for kind in _KINDS):
            name = knob.name
            if name in own or name not in self.given or name in _OF_NO_MODE or self[name] in ((), (knob.absent,)):
                continue
            owners = owners_of(knob.field)
            if not owners:  # of another mode: it raises, and says of which
                mode_of({"schedule": self["schedule"][0], knob.field: self[name][-1]})
            runtimes = [kind.runtime for kind in owners if kind.runtime]
            where = f"--runtime {' or '.join(runtimes)}" if runtimes else " or ".join(map(target_of, owners))
            got = ", ".join(str(each or "none") for each in self["runtime"])
            raise BadInput(f"{knob.option} is for {where}, got {got}; leave it out, or try those")

    def _check_sessions(self) -> None:
        """Refuse formats in which no runtime of the space computes, and streams that have no room."""
        runtimes, precisions = self["runtime"], self["precision"]
        kinds = [kind for name, kind in RUNTIMES.items() if name in runtimes]
        if kinds and not any(_is_possible(kind, each) for kind, each in product(kinds, precisions)):
            able = next(name for name, kind in RUNTIMES.items() if _is_possible(kind, precisions[0]))
            hint = "--device cuda:0" if computes_on_gpus(able) else "another --runtime"
            raise BadInput(f"{runtimes[0]} does not compute in {precisions[0]}; try {hint}")
        n_parts, n_cores = self["streams"], self["cores_per_device"]
        divides = any(size % n == 0 for size, n in product(self["batch_size"], n_parts))
        if min(n_parts) > max(n_cores) or not divides:
            raise BadInput(
                f"streams need a core or more each, and equal parts of a batch, got --streams {min(n_parts)} for "
                f"--cores-per-device {_few(n_cores)} and --batch-size {_few(self['batch_size'])}; try others"
            )

    @property
    def _global_batch(self) -> int | None:
        """The samples of every step, where a constraint as of `of_global_batch` fixes them for pipelines alone."""
        if self["strategy"] != (Strategy.PIPELINE,):
            return None
        return next(self._numbers_in(_GLOBAL_BATCH), None)

    def _numbers_in(self, pattern: re.Pattern[str]) -> Iterator[int]:
        """The numbers in the constraints of a form."""
        for constraint in self.constraints:
            if match := pattern.fullmatch(constraint.text):
                yield int(match[1])

    @property
    def grid(self) -> Grid:
        """The combinations of its values, whose constraints are not checked but those that leave out most."""
        most_devices = min(self._numbers_in(_MOST_DEVICES), default=None)
        return Grid(dict(self.pairs), self.session, self._global_batch, most_devices)

    @property
    def training(self) -> bool:
        """True if there is a backward pass."""
        return self.grid.training

    @property
    def modes(self) -> tuple[type[Mode], ...]:
        """The classes of the modes, first pipelines."""
        return self.grid.modes

    @property
    def sessions(self) -> tuple[type[Session], ...]:
        """The classes of the sessions, one for every runtime."""
        return self.grid.sessions

    @property
    def n_configurations(self) -> int:
        """The number of configurations in the space."""
        return sum(map(len, _cells(self)))

    @property
    def cells(self) -> list[list[Knobs]]:
        """The configurations of every cell of the grid, by ascending batch size."""
        return list(map(list, _cells(self)))

    def __contains__(self, knobs: Knobs) -> bool:
        return knobs.batch_size in _sizes_of(self).get(replace(knobs, batch_size=1), ())


@lru_cache(maxsize=4)
def _cells(space: SearchSpace) -> tuple[tuple[Knobs, ...], ...]:
    return tuple(_made_cells(space))


def _made_cells(space: SearchSpace) -> Iterator[tuple[Knobs, ...]]:
    """The cells one by one; a constraint without a size is checked once for a whole cell, because spaces are large."""
    if space._global_batch is not None:  # a number of micro-batches of so many replicas has one size
        for knobs in space.grid.configurations(*space["batch_size"]):
            if _all_hold(space.constraints, knobs):
                yield (knobs,)
        return
    by_size = [constraint for constraint in space.constraints if _SIZES.intersection(constraint.names)]
    by_cell = [constraint for constraint in space.constraints if constraint not in by_size]
    for first in space.grid.configurations(space["batch_size"][0]):
        if not _all_hold(by_cell, first):
            continue
        cell = tuple(first.with_batch_sizes(first.session.batch_sizes(space["batch_size"])))
        if by_size:
            cell = tuple(knobs for knobs in cell if _all_hold(by_size, knobs))
        if cell:
            yield cell


def _knobs_of(kinds: Iterable[type[HasKnobs]]) -> set[str]:
    return {knob.name for knob in chain.from_iterable(kind.knobs for kind in kinds)}


@lru_cache(maxsize=4)
def _sizes_of(space: SearchSpace) -> Mapping[Knobs, set[int]]:
    """The batch sizes of all configurations, by the others of their values."""
    sizes: dict[Knobs, set[int]] = {}
    for cell in _cells(space):
        sizes.setdefault(replace(cell[0], batch_size=1), set()).update(knobs.batch_size for knobs in cell)
    return sizes


def _is_possible(kind: type[Session], precision: Precision | None) -> bool:
    """True if a runtime computes in a format; without one, in the format of the file."""
    return session_of({"runtime": kind.runtime, "precision": precision}).is_possible


def _all_hold(constraints: Sequence[Constraint], knobs: Knobs) -> bool:
    """True if a configuration meets all constraints, and its session is possible."""
    if not knobs.session.is_possible:
        return False
    if not constraints:  # values take time to make
        return True
    values = numbers(knobs)
    return all(constraint.violation(values) <= 0 for constraint in constraints)


_INSTEAD = {"memory_proportion": "try --headroom", "engine": "or try GPUs, --cluster 8xH100"}
"""What to try in place of a knob that a target does not have, or with it."""
_OF_NO_MODE = ("schedule", "steps", *(knob.name for knob in Generation.knobs))
"""The knobs of modes that a space may name without having the mode: "schedule" chooses it, the others wait for it."""
_GLOBAL_BATCH = re.compile(r"n_samples == (\d+)")
_MOST_DEVICES = re.compile(r"n_devices <= (\d+)")
_SIZES = {"batch_size", "n_samples"}
"""The names in constraints whose values differ within a cell."""
_KINDS: tuple[type[HasKnobs], ...] = (*MODES, *SESSION_CLASSES)
_CONSTRAINTS = Domain(
    str, "", "expressions", read=lambda given: given if isinstance(given, Constraint) else Constraint(given)
)


def in_order(values: Sequence[Any]) -> tuple[Any, ...]:
    """Values of a knob, each once and by size: what is searched does not depend on their order.

    >>> in_order((2, 1, 2)), in_order(("fp16", None, "fp32"))
    ((1, 2), (None, 'fp16', 'fp32'))
    """
    return tuple(sorted(dict.fromkeys(values), key=_rank))


def _rank(value: Any) -> tuple[bool, bool, float, str]:
    """None is first, then numbers, then words."""
    if isinstance(value, int | float):
        return (True, False, value, str(value))
    return (value is not None, True, 0.0, str(value))


def check_n_configurations(grid: Grid) -> None:
    """Raise BadInput for a space that has too many configurations."""
    n_pools = min(2, len(grid["prefill_workers"]))  # two pools are searched beside one
    n_configurations = grid.n_combinations // n_pools
    if n_configurations > MAX_CONFIGURATIONS:
        longest = max(grid.values, key=lambda name: len(grid[name]))
        raise BadInput(
            f"a space has at most {MAX_CONFIGURATIONS:,} configurations, got {n_configurations:,}; "
            f"try fewer values of {longest}"
        )


def read_values(name: str, given: Any, domain: Domain) -> tuple[Any, ...]:
    """Values of a knob, or expressions, as their domain has them; a BadInput if one is not part of it."""
    try:
        no_numbers = bool if domain.by_device else bool | str
        if domain.kind in (int, float) and any(isinstance(value, no_numbers) for value in given):
            raise TypeError("numbers are neither switches nor texts")
        values = tuple(map(domain.read, given))
    except BadInput:
        raise
    except (TypeError, ValueError):
        raise BadInput(f"{name} takes a tuple of {domain.plural}, got {reprlib.repr(given)}") from None
    if domain.kind is int and max(values, default=0) > domain.maximum:
        raise BadInput(f"{name} must be {domain.text}, got {max(values)}")
    return values
