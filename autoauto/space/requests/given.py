"""A configuration that a person names by some of its knobs, as in "n_ipu=2,batch_size=8": `configuration_given`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoauto.records.errors import BadInput
from autoauto.records.knob import Domain
from autoauto.space.knobs import Knobs
from autoauto.space.space import SearchSpace
from autoauto.space.table import KNOBS, TABLE, flat, flat_value, no_such_knob, shown


def knob_values(text: str) -> dict[str, Any]:
    """The values in a text, by the names of their knobs; a BadInput if there is no such knob, or no such value."""
    values: dict[str, Any] = {}
    for item in text.split(","):
        word, equals, value = (part.strip() for part in item.partition("="))
        name = word.strip("-").replace("-", "_")
        if not equals or not value:
            raise BadInput(f"a configuration is written n_ipu=2,batch_size=8, got {text!r:.60}")
        if name not in TABLE:
            raise BadInput(no_such_knob(word))
        if name in values:
            raise BadInput(f"a configuration has one {name}, got two in {text!r:.60}; leave one out")
        domain = TABLE[name].domain
        plain = _plain(value, domain)
        if plain is None or not domain.allows(plain):
            raise BadInput(f"{name} must be {domain.text}, got {value!r:.60}")
        values[name] = domain.read(plain)
    return values


def values_given(knobs: Knobs) -> dict[str, Any]:
    """The values that say which configuration it is, by the names of their knobs."""
    return {knob.name: flat_value(knobs, knob.name) for knob in shown(knobs)}


def configuration_given(space: SearchSpace, given: object) -> Knobs:
    """The configuration of a space that has the given values, and else defaults, or the first values of the space.

    Raises:
        BadInput: the space has no such configuration; the message says in which knob.
    """
    if isinstance(given, Knobs):
        if given in space:
            return given
        given = values_given(given)
    values = knob_values(given) if isinstance(given, str) else given
    if not isinstance(values, Mapping) or not values or not set(values) <= set(TABLE):
        raise BadInput(f"a configuration to try is values of knobs, as in 'n_ipu=2,batch_size=8', got {given!r:.60}")
    fields = {TABLE[name].field: value for name, value in values.items()}
    alike = [knobs for cell in space.cells for knobs in cell if fields.items() <= flat(knobs).items()]
    if not alike:
        raise BadInput(_outside(space, values))
    return min(alike, key=_others)


def _others(knobs: Knobs) -> list[bool]:
    """For every knob whether its value is no default; first whether it is one of phases, which have their own."""
    values = knobs.values
    return [knobs.is_phased, *(values.get(knob.field, knob.default) != knob.default for knob in KNOBS)]


def _outside(space: SearchSpace, values: Mapping[str, Any]) -> str:
    text = ", ".join(f"{name} {value}" for name, value in values.items())
    for name, value in values.items():
        known = space[name]
        if value not in known:
            shown_values = ", ".join(map(str, known))
            if len(known) > _MAX_SHOWN:
                shown_values = f"{known[0]} to {known[-1]}"
            part = f"must be part of the space, whose {name} is {shown_values}"
            return f"a configuration to try {part}, got {value}; widen it"
    return f"a configuration to try must be part of the space, which has none of {text} together; change one of them"


def _plain(text: str, domain: Domain) -> int | float | bool | str | None:
    """A text as TOML would have the value of a knob; None for what is no such value."""
    if domain.kind is bool:
        return {"on": True, "off": False, "true": True, "false": False}.get(text, text)
    if domain.by_device and ":" in text:
        return text
    try:
        return text if domain.kind is str else domain.kind(text)
    except ValueError:
        return None


_MAX_SHOWN = 6
