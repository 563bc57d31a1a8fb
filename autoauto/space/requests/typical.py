"""The options that people are shown first, by the target: `typical_options`, of which `unused_options` say nothing.

The short help of commands and the form of the server both show these.
"""

from __future__ import annotations

from collections.abc import Iterable

from autoauto.records.knob import Knob
from autoauto.space.modes.generation import Generation
from autoauto.space.modes.inference import Inference
from autoauto.space.modes.mode import STRATEGY
from autoauto.space.modes.phased import Phased
from autoauto.space.modes.training import Training
from autoauto.space.sessions import SESSION_KNOBS
from autoauto.targets.registry import DEFAULT_TARGET
from autoauto.targets.target import NamedTarget

OF_ENGINES = ("gpus", "max_ttft_ms", "max_tpot_ms")
"""Options that targets have which serve decoders."""
_COMMON = frozenset(OF_ENGINES).union(
    ("model", "shape", "target", "cluster", "precision", "mode", "n_ipu", "replicas", "batch_size"),
    ("schedule", "n_micro_batches", "steps", "io_mode"),
    ("runtime", "cores_per_device", "memory_proportion"),
    ("engine", "tensor_parallel", "expert_parallel", "attention_data_parallel", "input_tokens", "output_tokens"),
    ("objective", "max_latency_s", "quick"),
)
"""Options of models, devices, spaces and bounds that are shown for every target that uses them."""


def typical_options(target: NamedTarget) -> frozenset[str]:
    """The common options that a target uses, and those that only this target has."""
    typical = _COMMON - unused_options(target)
    if target.name == DEFAULT_TARGET:  # its own are many and rare
        return typical
    return typical.union(option.name for option in target.options)


def unused_options(target: NamedTarget) -> frozenset[str]:
    """The options that say nothing on a target: knobs of other targets' sessions, and of modes that it lacks."""
    unused = set(SESSION_KNOBS) - {"precision"}
    for kind in target.sessions:
        unused -= _names(kind.knobs)
    if any(kind.runtime is not None for kind in target.sessions):  # it measures on devices of this machine
        unused.discard("runtime")
    else:
        unused.add("quick")
    if target.serves_decoders:
        unused |= _names(Inference.knobs) | {"shape"}
    else:
        unused |= _names(Generation.knobs) | set(OF_ENGINES)
    if target.serves_decoders or not target.trains:
        unused |= _names((*Training.knobs, *Phased.knobs, STRATEGY)) | {"mode", "global_batch"}
    return frozenset(unused)


def _names(knobs: Iterable[Knob]) -> set[str]:
    return {knob.name for knob in knobs}
