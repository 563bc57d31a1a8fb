"""The arguments in the short help of a command with many options: `short_help`, by the target that is named."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise

from autoauto.space.modes.generation import Generation
from autoauto.space.modes.inference import Inference
from autoauto.space.modes.mode import STRATEGY
from autoauto.space.modes.phased import Phased
from autoauto.space.modes.training import Training
from autoauto.space.sessions import SESSION_KNOBS
from autoauto.targets.registry import DEFAULT_TARGET, TARGETS
from autoauto.targets.target import NamedTarget

_COMMON = frozenset(
    {
        *("model", "study", "shape", "target", "cluster", "precision", "mode", "n_ipu", "replicas", "batch_size"),
        *("schedule", "stages", "n_micro_batches", "steps", "io_mode"),
        *("runtime", "cores_per_device"),
        *("engine", "tensor_parallel", "expert_parallel", "input_tokens", "output_tokens"),
        *("objective", "max_latency_s", "dry_run", "storage", "study_name", "server", "config"),
        *("to", "output", "check", "explain", "html", "json", "help", "help_all"),
    }
)
"""Options that the short help shows for every target."""


def short_help(actions: Sequence[argparse.Action], words: Sequence[str]) -> list[argparse.Action]:
    """The common arguments that the target named in `words` uses, and the options that only this target has.

    Those of the default target are many and rare; --help-all shows them.
    """
    if not any(action.dest == "target" for action in actions):
        return [action for action in actions if action.dest in _COMMON or not action.option_strings]
    target = TARGETS[_target_name(words)]
    shown = _COMMON - _unused(target)
    if target.name != DEFAULT_TARGET:
        shown |= {option.name for option in target.options}
    return [action for action in actions if action.dest in shown or not action.option_strings]


def _target_name(words: Sequence[str]) -> str:
    """The target after --target, before or after --help; the default one where none or an unknown one is named."""
    name = DEFAULT_TARGET
    for previous, word in pairwise(["", *words]):
        if previous == "--target":
            name = word
        elif word.startswith("--target="):
            name = word.removeprefix("--target=")
    return name if name in TARGETS else DEFAULT_TARGET


def _unused(target: NamedTarget) -> frozenset[str]:
    """The arguments that say nothing on a target: knobs of other targets' sessions, and of modes that it lacks."""
    generation = {knob.name for knob in Generation.knobs}
    training = {"mode", "global_batch", *(knob.name for knob in (*Training.knobs, *Phased.knobs, STRATEGY))}
    own = {"precision", *(knob.name for kind in target.sessions for knob in kind.knobs)}
    if any(kind.runtime is not None for kind in target.sessions):
        own.add("runtime")
    unused = SESSION_KNOBS.keys() - own
    if target.serves_decoders:
        unused |= training | {"shape", *(knob.name for knob in Inference.knobs)}
    else:
        unused |= generation
    if not target.trains:
        unused |= training
    return frozenset(unused)
