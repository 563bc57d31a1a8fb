"""The targets that users choose by name: `TARGETS`."""

from __future__ import annotations

from autoauto.plugins import Registry
from autoauto.records.costs.options import Session
from autoauto.records.errors import BadInput
from autoauto.targets.target import NamedTarget

DEFAULT_TARGET = "ipu"


def _wrong_names(entry: NamedTarget) -> str:
    """What is wrong with names of another package's target.

    Its options begin with its name, and its knobs have no name of an option of ours, so that each option is one thing.
    """
    wrong = [option.name for option in entry.options if not option.name.startswith(f"{entry.name}_")]
    if wrong:
        return f"has options whose names must begin with {entry.name}_, got {', '.join(wrong)}"
    ours = {option.name for target in TARGETS.ours for option in target.options}
    taken = sorted(ours.intersection(knob.name for kind in entry.sessions for knob in kind.knobs))
    return f"has knobs whose names options of other targets have, {', '.join(taken)}" if taken else ""


TARGETS = Registry("target", NamedTarget, first=DEFAULT_TARGET, check=_wrong_names)
"""By name; the first is the default."""


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
