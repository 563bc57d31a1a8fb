"""All modes, `MODES`, and the one of values by name, `mode_of`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoauto.records.errors import BadInput
from autoauto.records.schedule import Order
from autoauto.space.modes.generation import Generation
from autoauto.space.modes.inference import Inference
from autoauto.space.modes.mode import Mode, Strategy
from autoauto.space.modes.phased import Phased
from autoauto.space.modes.training import Training

MODES = (Inference, Training, Phased, Generation)


def mode_of(values: Mapping[str, Any]) -> Mode:
    """The mode of values by name, those of knobs of other modes among them if they say nothing.

    Raises:
        BadInput: a value is of a knob that the mode does not have.

    >>> mode_of({"schedule": Order.GPIPE, "n_micro_batches": 8}).training, mode_of({"recompute": False})
    (True, Inference(stage_replicas=False))
    """
    order = values.get("schedule", Order.INFERENCE)
    if values.get("strategy", Strategy.PIPELINE) is Strategy.PHASED:
        own = {name: values[name] for name in ("n_micro_batches", "recompute") if name in values}
        return Phased(training=order is not Order.INFERENCE, **_checked(Phased, own, values))
    kind = Training if order is not Order.INFERENCE else Generation if values.get("output_tokens") else Inference
    own = {knob.field: values[knob.field] for knob in kind.knobs if knob.field in values}
    return kind(**_checked(kind, own, values))


def _checked(kind: type[Mode], own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a mode; refuses values of others that say something."""
    for knob in (knob for other in MODES for knob in other.knobs):
        name = knob.field
        is_other = name in given and name not in own and name != "schedule"
        if is_other and given[name] != knob.absent:
            raise BadInput(f"{name} {'are' if name.endswith('s') else 'is'} for {_owners(name)}")
    return dict(own)


def _owners(name: str) -> str:
    """What the modes are for that have a knob, and how one asks for them.

    >>> _owners("recompute"), _owners("optimizer")
    ('training; try --mode training', 'training by pipelines; try --mode training --strategy pipeline')
    """
    first, *others = (mode for mode in MODES if any(knob.field == name for knob in mode.knobs))
    if others or "--mode" not in first.option:
        return f"{first.purpose}; try {first.option}"
    return f"{first.purpose} by pipelines; try {first.option} --strategy {first.strategy}"
