"""Forward passes by pipelines: `Inference`, and its knob."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autoauto.records.knob import SWITCH, Knob
from autoauto.space.modes.mode import Mode

STAGE_REPLICAS = Knob(
    "stage_replicas",
    SWITCH,
    False,
    "whether several devices of a pipeline may run one stage, and take its micro-batches in turn",
    "on|off",
    ("off", "off"),
    label="stage replicas",
    breaks_ties=True,
)


@dataclass(frozen=True, slots=True)
class Inference(Mode):
    """Forward passes by pipelines.

    With `stage_replicas` several of the `n_ipu` devices may run one stage and take its micro-batches in turn; the best
    plan then has at most that many devices.
    """

    knobs: ClassVar[tuple[Knob, ...]] = (STAGE_REPLICAS,)
    purpose: ClassVar[str] = "inference"
    option: ClassVar[str] = "--mode inference"
    stage_replicas: bool = False
