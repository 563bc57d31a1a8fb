"""The sessions of all targets by the names of their knobs: `session_of`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from autoauto.records.costs.options import PlainSession, Session, TargetWords
from autoauto.records.errors import BadInput
from autoauto.records.knob import Domain, Knob, words_or_none
from autoauto.targets.host.runtimes.registry import SESSIONS
from autoauto.targets.registry import TARGETS, session_classes

SESSION_CLASSES: tuple[type[Session], ...] = session_classes()
"""The classes of the sessions of all targets, each with knobs of its own."""
RUNTIMES = {kind.runtime: kind for kind in SESSION_CLASSES if kind.runtime is not None}
"""The class of the sessions of every runtime, by its name."""
RUNTIME_PACKAGES = tuple(kind.package.distribution for kind in SESSIONS.values())
"""The packages that have the runtimes of the host, by the names that pip knows."""
RUNTIME = Knob(
    "runtime",
    words_or_none(tuple(RUNTIMES)),
    None,
    "what runs the model on the host",
    ",".join(RUNTIMES),
    ("the first that computes in --precision", "on the host all that are installed"),
    is_shown=True,
)


def _merged() -> dict[str, Knob]:
    """The knobs of all sessions by name; of several of one name the first, with the words of all."""
    merged = {"runtime": RUNTIME}
    for kind in sorted(SESSION_CLASSES, key=lambda kind: kind.runtime is None):
        for knob in kind.knobs:
            first = merged.get(knob.field)
            if first is None:
                merged[knob.field] = knob
            elif first is not knob:
                merged[knob.field] = replace(first, domain=_joined(first.domain, knob.domain))
    return merged


def _joined(first: Domain, other: Domain) -> Domain:
    known = tuple(dict.fromkeys((*first.words, *other.words)))

    def read(given: Any) -> Any:
        return (first if given in first.stored else other).read(given)

    stored = tuple(dict.fromkeys((*first.stored, *other.stored)))
    return replace(first, text=f"one of {', '.join(known)}", words=known, stored=stored, read=read)


SESSION_KNOBS = _merged()
"""The knobs of all sessions, and which runtime there is, by their names."""


def with_values(session: Session, values: Mapping[str, Any]) -> Session:
    """A session with other values by the names of knobs; of another class if they name its runtime or its knobs.

    Raises as `session_of`.
    """
    changed = {**session.values, **values}
    if values.keys() <= _names(type(session)):
        return type(session)(**{name: value for name, value in changed.items() if value is not None})
    return session_of({"runtime": session.runtime, **changed})


def session_class(values: Mapping[str, Any]) -> type[Session]:
    """The class of the runtime of values by name; without a runtime the first that has all that is said.

    Where nothing is said, the first without a runtime that has one of the knobs.

    Raises:
        BadInput: there is no such runtime.
    """
    runtime = values.get("runtime")
    if runtime is not None:
        if runtime not in RUNTIMES:
            raise BadInput(f"runtime is {RUNTIME.domain.text}, got {runtime!r}")
        return RUNTIMES[runtime]
    said = _said(values)
    if not said:
        named = {name for name, value in values.items() if value is not None}
        able = (kind for kind in SESSION_CLASSES if kind.runtime is None and named & _names(kind))
    else:
        runtimes_first = sorted(SESSION_CLASSES, key=lambda kind: kind.runtime is None)
        able = (kind for kind in runtimes_first if said.keys() <= _names(kind) and kind(**said).is_possible)
    return next(able, PlainSession)


def session_of(values: Mapping[str, Any]) -> Session:
    """The session of values by the names of knobs; knobs of others may be among them with values that say nothing.

    Raises:
        BadInput: a value is of a knob that the session does not have.

    >>> session_of({"memory_proportion": 0.3}), session_of({"runtime": "openvino", "streams": 2}).n_parts
    (IpuSession(memory_proportion=0.3, io_tiles=0), 2)
    """
    kind = session_class(values)
    own = _names(kind)
    for name in _said(values):
        if name not in own:
            owners = " or ".join(kind.runtime or target_of(kind) for kind in owners_of(name))
            raise BadInput(f"{name} is for {owners}, got {kind.runtime or 'another target'}; leave it out")
    return kind(**{name: value for name, value in values.items() if name in own and value is not None})


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of knobs that are given and are not `Knob.absent`, but for the runtime."""
    said: dict[str, Any] = {}
    for name, value in values.items():
        if name != "runtime" and value is not None and value != SESSION_KNOBS[name].absent:
            said[name] = value
    return said


@cache
def _names(kind: type[Session]) -> frozenset[str]:
    return frozenset(knob.field for knob in kind.knobs)


def target_of(kind: type[Session]) -> str:
    """The option of the target that has these sessions.

    >>> target_of(type(session_of({"memory_proportion": 0.3})))
    '--target ipu'
    """
    return next(f"--target {entry.name}" for entry in TARGETS.values() if kind in entry.sessions)


def words_of_target(name: str) -> TargetWords:
    """The words of a target by name; those of no particular target where there is none.

    >>> words_of_target("gpu").unit, words_of_target("other").unit
    ('GPU', 'device')
    """
    sessions = TARGETS[name].sessions if name in TARGETS else ()
    return sessions[0].words if sessions else TargetWords()


def owners_of(name: str) -> list[type[Session]]:
    """The classes of the sessions that have a knob."""
    return [kind for kind in SESSION_CLASSES if name in _names(kind)]
