"""The targets that users choose by name: `TARGETS`."""

from __future__ import annotations

from autoauto.records.costs.options import Session
from autoauto.records.errors import BadInput
from autoauto.targets.host.entry import HOST
from autoauto.targets.ipu.entry import IPU
from autoauto.targets.target import NamedTarget

TARGETS = {entry.name: entry for entry in (IPU, HOST)}
"""By name; the first is the default. A plug-in may add its own before the command line or a flow is opened."""
DEFAULT_TARGET = IPU.name


def target_named(name: object) -> NamedTarget:
    """The target called `name`.

    Raises:
        BadInput: there is none.
    """
    if not isinstance(name, str) or name not in TARGETS:
        raise BadInput(f"a target is {', '.join(TARGETS)} or an object that compiles layers, got {name!r}")
    return TARGETS[name]


def precisions_of(name: str) -> tuple[str, ...]:
    """The formats in which the sessions of a target compute, where that is a knob of theirs; else none."""
    knobs = (knob for kind in TARGETS[name].sessions for knob in kind.knobs if knob.name == "precision")
    return tuple(dict.fromkeys(word for knob in knobs for word in knob.domain.words))


def session_classes() -> tuple[type[Session], ...]:
    """The classes of the sessions of all targets, each with knobs of its own."""
    return tuple(kind for entry in TARGETS.values() for kind in entry.sessions)


def default_options() -> dict[str, object]:
    """The default value of every option of every target; the targets have different options."""
    return {option.name: option.default for entry in TARGETS.values() for option in entry.options}
