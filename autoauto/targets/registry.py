"""The targets that users choose by name: `TARGETS`."""

from __future__ import annotations

from itertools import chain

from autoauto.plugins import Registry
from autoauto.records.costs.options import Session
from autoauto.records.errors import BadInput
from autoauto.targets.target import NamedTarget

DEFAULT_TARGET = "ipu"


def _wrong_names(entry: NamedTarget) -> str:
    """Why names of another package's target clash with ours; empty if they do not.

    Its options begin with its name, and its knobs have no name of an option of ours, so that each option is one thing.
    """
    wrong = [option.name for option in entry.options if not option.name.startswith(f"{entry.name}_")]
    if wrong:
        return f"has options whose names must begin with {entry.name}_, got {', '.join(wrong)}"
    ours = {option.name for target in TARGETS.ours for option in target.options}
    knobs = chain.from_iterable(kind.knobs for kind in entry.sessions)
    taken = sorted({knob.name for knob in knobs} & ours)
    return f"has knobs whose names options of other targets have, {', '.join(taken)}" if taken else ""


TARGETS = Registry("target", NamedTarget, first=DEFAULT_TARGET, check=_wrong_names)
"""The targets by name; the first is the default."""


def target_named(name: object) -> NamedTarget:
    """The target called `name`; raises BadInput if there is none."""
    if not isinstance(name, str) or name not in TARGETS:
        raise BadInput(f"a target is {', '.join(TARGETS)} or an object that compiles layers, got {name!r}")
    return TARGETS[name]


def precisions_of(name: str) -> tuple[str, ...]:
    """The formats in which the sessions of a target compute, where that is a knob of theirs; else none."""
    words: list[str] = []
    for knob in chain.from_iterable(kind.knobs for kind in TARGETS[name].sessions):
        if knob.name == "precision":
            words += knob.domain.words
    return tuple(dict.fromkeys(words))


def session_classes() -> tuple[type[Session], ...]:
    """The classes of the sessions of all targets, each with knobs of its own."""
    return tuple(chain.from_iterable(entry.sessions for entry in TARGETS.values()))


def default_options() -> dict[str, object]:
    """The default value of every option of every target; the targets have different options."""
    return {option.name: option.default for entry in TARGETS.values() for option in entry.options}
