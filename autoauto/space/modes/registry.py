"""All modes, `MODES`, and the one of values by name, `mode_of`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
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
    """The mode of values by name; knobs of other modes may be among them with values that say nothing.

    Raises:
        BadInput: a value is of a knob that the mode does not have.

    >>> mode_of({"schedule": Order.GPIPE, "n_micro_batches": 8}).training, mode_of({"recompute": False})
    (True, Inference(stage_replicas=False))
    """
    is_training = values.get("schedule", Order.INFERENCE) is not Order.INFERENCE
    kind: type[Mode] = Inference
    if values.get("strategy", Strategy.PIPELINE) is Strategy.PHASED:
        kind = Phased
    elif is_training:
        kind = Training
    elif values.get("output_tokens"):
        kind = Generation
    own = {knob.field: values[knob.field] for knob in kind.knobs if knob.field in values}
    _check_others(own, values)
    if kind is Phased:
        own["training"] = is_training
    return kind(**own)


def _check_others(own: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse values of other modes that say something."""
    for knob in chain.from_iterable(mode.knobs for mode in MODES):
        name = knob.field
        if name not in given or name in own or name == "schedule":
            continue
        if given[name] != knob.absent:
            verb = "are" if name.endswith("s") else "is"
            raise BadInput(f"{name} {verb} for {_owners(name)}")


def _owners(name: str) -> str:
    """The purpose of the first mode that has a knob, and the options that choose it.

    >>> _owners("recompute"), _owners("optimizer")
    ('training; try --mode training', 'training by pipelines; try --mode training --strategy pipeline')
    """
    first, *others = (mode for mode in MODES if any(knob.field == name for knob in mode.knobs))
    if others or "--mode" not in first.option:
        return f"{first.purpose}; try {first.option}"
    return f"{first.purpose} by pipelines; try {first.option} --strategy {first.strategy}"
