"""Plug-ins, which packages add to autoauto by entry points: each kind has a `Registry`.

A package adds a target, an exporter or an importer by a line in its pyproject.toml, and so does this one:

    [project.entry-points."autoauto.targets"]
    host = "autoauto.targets.host.entry:HOST"

Where this package runs from a checkout, its own lines are read from pyproject.toml there, installed or not, so that a
new line counts at once. All others are those of installed distributions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from autoauto.records.errors import BadInput

OURS = "autoauto"
"""The name of this distribution."""
_PREFIX = f"{OURS}."
_PROJECT = Path(__file__).parents[1] / "pyproject.toml"
_LOG = logging.getLogger(OURS)

Entry = TypeVar("Entry")


class Registration(NamedTuple):
    """An entry point, and the distribution that has it."""

    point: EntryPoint
    distribution: str


class Registry(Mapping[str, Entry], Generic[Entry]):
    """The values of one kind that packages have registered, by name: ours first, then those of others, each sorted.

    A value is loaded when it is first asked for. One of another package that cannot be loaded, that is of another type,
    or whose name is taken is left out, and a warning of one line says so, once.
    """

    def __init__(
        self,
        what: str,
        kind: type[Entry],
        *,
        first: str = "",
        check: Callable[[Entry], str] = lambda _: "",
        own: Callable[[], Mapping[str, Entry]] = dict,
    ) -> None:
        """A registry.

        Args:
            what: is registered, in one word; the group of entry points is called "autoauto." and its plural.
            kind: the type of the values.
            first: the name that comes before all others.
            check: what is wrong with a value of another package; empty where nothing is.
            own: values of this package that need no entry point, by name; called when the first name is asked for.
        """
        self._what, self._kind, self._first, self._check, self._own = what, kind, first, check, own
        self._loaded: dict[str, Entry | None] = {}

    @cached_property
    def _registered(self) -> Mapping[str, Registration]:
        """The entry points by name; of several of one name the first."""
        unique: dict[str, Registration] = {}
        group = f"{_PREFIX}{self._what}s"
        own = self._own()
        self._loaded |= own
        ours = [Registration(EntryPoint(name, "", group), OURS) for name in own]
        for each in sorted([*ours, *registrations().get(group, ())], key=self._position):
            first = unique.setdefault(each.point.name, each)
            if first is not each:
                left_out = f"the {self._what} {each.point.name!r} of {each.distribution} is left out"
                _warn(f"{left_out}, {first.distribution} has one of this name; uninstall one of the two")
        return unique

    def _position(self, each: Registration) -> tuple[bool, bool, str, str]:
        name, distribution = each.point.name, each.distribution
        return distribution != OURS, name != self._first, name, distribution

    @property
    def names(self) -> tuple[str, ...]:
        """All names that are registered; nothing is loaded."""
        return tuple(self._registered)

    @property
    def ours(self) -> list[Entry]:
        """The values of this package."""
        return [self[name] for name, each in self._registered.items() if each.distribution == OURS]

    def named(self, name: str, what: str) -> Entry:
        """The value of a name that a user has given; errors say `what` the values are.

        Raises BadInput if there is none, or it is left out.
        """
        if name not in self:
            raise BadInput(f"{what} is one of {', '.join(each for each in self.names if each != name)}, got {name!r}")
        return self[name]

    def __getitem__(self, name: str) -> Entry:
        registered = self._registered[name]
        if name not in self._loaded:
            self._loaded[name] = self._load(registered)
        value = self._loaded[name]
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._registered if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _load(self, each: Registration) -> Entry | None:
        """The value of an entry point; None, and a warning, where another package has a wrong one."""
        name, package = each.point.name, each.distribution
        if package == OURS:
            value: Entry = each.point.load()
            return value
        try:
            value = each.point.load()
        except Exception as error:  # noqa: BLE001 (importing a package of others may raise anything)
            wrong = f"cannot be loaded: {type(error).__name__}: {error}"
        else:
            wrong = self._wrong(name, value)
            if not wrong:
                return value
        _warn(f"the {self._what} {name!r} of {package} is left out, it {wrong}; repair or uninstall {package}")
        return None

    def _wrong(self, name: str, value: object) -> str:
        """What is wrong with a value; empty where nothing is."""
        if not isinstance(value, self._kind):
            return f"is no {self._kind.__name__} but a {type(value).__name__}"
        if (own := getattr(value, "name", name)) != name:
            return f"calls itself {own!r}"
        return self._check(value)


def _warn(message: str) -> None:
    """Log a warning in one line; Python prints it on stderr where no program has said where to."""
    _LOG.warning("%s: %s", OURS, " ".join(message.split()))


@cache
def registrations() -> Mapping[str, list[Registration]]:
    """The entry points of every group whose name begins with ours, those of one name each, too.

    Raises BadInput if ours are not among them, since this package was copied from where it was installed.
    """
    groups: dict[str, list[Registration]] = {}
    own = _of_checkout()
    seen = {OURS} if own else set()
    for each in own:
        groups.setdefault(each.point.group, []).append(each)
    for distribution in distributions():
        if f"[{_PREFIX}" not in (distribution.read_text("entry_points.txt") or ""):  # most of them, in a few ms
            continue
        name = distribution.name
        if name in seen:  # an earlier folder of Python's path hides it
            continue
        seen.add(name)
        for point in distribution.entry_points:
            if point.group.startswith(_PREFIX):
                groups.setdefault(point.group, []).append(Registration(point, name))
    if OURS not in seen:
        raise BadInput(f"autoauto must be installed or in its checkout, {Path(__file__).parent} is neither; install it")
    return groups


def _of_checkout() -> list[Registration]:
    """Our own entry points in the pyproject.toml beside the package; none where there is no such file.

    The lines are taken apart here: they are simple ones, and to load a reader of TOML takes longer than the rest.
    """
    try:
        lines = _PROJECT.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    if f'name = "{OURS}"' not in lines:
        return []
    points, group = list[Registration](), ""
    for line in lines:
        if line.startswith("["):
            _, is_group, quoted = line.partition("[project.entry-points.")
            group = quoted.strip('"]') if is_group else ""
        elif group and line:
            name, value = line.split(" = ")
            points.append(Registration(EntryPoint(name, value.strip('"'), group), OURS))
    return points
