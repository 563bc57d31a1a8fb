"""The options that people are shown first, by the target: `typical_options`, of which `unused_options` say nothing.

The short help of commands and the form of the server both show these.
"""

from __future__ import annotations

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
_COMMON = frozenset(
    {
        *("model", "shape", "target", "cluster", "precision", "mode", "n_ipu", "replicas", "batch_size"),
        *("schedule", "n_micro_batches", "steps", "io_mode"),
        *("runtime", "cores_per_device", "memory_proportion"),
        *("engine", "tensor_parallel", "expert_parallel", "attention_data_parallel", "input_tokens", "output_tokens"),
        *OF_ENGINES,
        *("objective", "max_latency_s", "quick"),
    }
)
"""Options of models, devices, spaces and bounds that are shown for every target that uses them."""


def typical_options(target: NamedTarget) -> frozenset[str]:
    """The common options that a target uses, and those that only this target has.

    Those of the default target are many and rare.
    """
    own = () if target.name == DEFAULT_TARGET else tuple(option.name for option in target.options)
    return (_COMMON - unused_options(target)).union(own)


def unused_options(target: NamedTarget) -> frozenset[str]:
    """The options that say nothing on a target: knobs of other targets' sessions, and of modes that it lacks."""
    generation = {knob.name for knob in Generation.knobs}
    training = {"mode", "global_batch", *(knob.name for knob in (*Training.knobs, *Phased.knobs, STRATEGY))}
    own = {"precision", *(knob.name for kind in target.sessions for knob in kind.knobs)}
    measures = any(kind.runtime is not None for kind in target.sessions)
    if measures:
        own.add("runtime")
    unused = SESSION_KNOBS.keys() - own | (set() if measures else {"quick"})
    if target.serves_decoders:
        unused |= training | {"shape", *(knob.name for knob in Inference.knobs)}
    else:
        unused |= {*generation, *OF_ENGINES}
    if not target.trains:
        unused |= training
    return frozenset(unused)
