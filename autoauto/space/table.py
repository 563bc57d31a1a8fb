"""The flat view of configurations, `KNOBS`: what options, files, databases, constraints and columns need.

It is derived from the classes whose fields are knobs: `Knobs`, the modes, and the sessions of all targets. A new knob
is a `Knob` in one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any

from autoauto.records.errors import did_you_mean
from autoauto.records.knob import Knob, largest_by_device
from autoauto.space.knobs import BATCH_SIZE, N_IPU, REPLICAS, Knobs
from autoauto.space.modes.generation import Generation
from autoauto.space.modes.inference import STAGE_REPLICAS, Inference
from autoauto.space.modes.mode import STRATEGY
from autoauto.space.modes.phased import STEPS, Phased
from autoauto.space.modes.training import Training
from autoauto.space.sessions import SESSION_KNOBS
from autoauto.targets.ipu.session import MEMORY_PROPORTION


def _unique(*groups: Iterable[Knob]) -> tuple[Knob, ...]:
    return tuple({knob.name: knob for knob in chain.from_iterable(groups)}.values())


KNOBS = _unique(
    (N_IPU, REPLICAS),
    Inference.knobs,
    SESSION_KNOBS.values(),
    (BATCH_SIZE,),
    Training.knobs,
    (STRATEGY,),
    Phased.knobs,
    Generation.knobs,
)
"""Every knob, in the order in which it is shown."""
TABLE = {knob.name: knob for knob in KNOBS}
"""Every knob by its name."""
SHORT_NAMES = {
    "pipeline-parallel": "n_ipu",
    "pp": "n_ipu",
    "tp": "tensor_parallel",
    "ep": "expert_parallel",
    "attention-dp": "attention_data_parallel",
    "prefill-tp": "prefill_tensor_parallel",
    "prefill-ep": "prefill_expert_parallel",
    "prefill-dp": "prefill_attention_data_parallel",
    "isl": "input_tokens",
    "osl": "output_tokens",
}
"""The knobs by the names of options of serving engines and their tools."""
COLUMNS = tuple(knob for knob in KNOBS if not knob.sets)
"""The knobs that configurations have, each under one name: `STEPS` sets a number of micro-batches, too."""
KNOB_NAMES = (*(knob.name for knob in COLUMNS if knob.domain.kind is not str), "n_devices", "n_samples")
"""The names of knobs, and of numbers that follow from them, that a constraint may contain; a switch is 0 or 1."""
_SWITCHES = {knob.name: knob.domain for knob in COLUMNS if knob.domain.kind is bool and knob.domain.words}
"""Switches that have other values besides on and off, which are numbered after these, 0 and 1."""
PIPELINE_KNOBS = tuple(knob for knob in KNOBS if knob not in (STRATEGY, STEPS))
"""The knobs of pipelines."""
OF_EVERY = ("n_ipu", "memory_proportion", "batch_size")
"""The knobs that tables show of every study on targets that have them."""
AXES = _unique(
    (N_IPU, MEMORY_PROPORTION),
    Training.knobs,
    (STEPS, REPLICAS, STAGE_REPLICAS),
    SESSION_KNOBS.values(),
    Generation.knobs,
)
"""The knobs of a cell of the grid, the one that changes last first."""
_BREAK_TIES = tuple(knob for knob in COLUMNS if knob.breaks_ties)


def flat(knobs: Knobs) -> dict[str, Any]:
    """The value of every knob in `COLUMNS`, by its name."""
    values = knobs.values
    return {knob.name: values.get(knob.name, knob.absent) for knob in COLUMNS}


def own_values(knobs: Knobs) -> dict[str, Any]:
    """A configuration as JSON has it: `flat`, or where engines generate text only the knobs that it has.

    The count `n_ipu` is repeated under the target's name for it.
    """
    values = knobs.values if isinstance(knobs.mode, Generation) else flat(knobs)
    noun = knobs.session.words.name(N_IPU.name)
    if noun != N_IPU.name:
        values[f"n_{noun.lower()}"] = knobs.n_ipu
    return values


def speed_values(knobs: Knobs, samples_per_s: float | None) -> dict[str, float | None]:
    """A throughput as JSON has it: in every mode `samples_per_s`, and where text is generated `tokens_per_s`, too."""
    values = {"samples_per_s": samples_per_s}
    values[f"{knobs.mode.sample}s_per_s"] = samples_per_s
    return values


def no_such_knob(name: str) -> str:
    """A line for a name that no knob has.

    >>> no_such_knob("tp")
    "there is no knob 'tp'; did you mean 'tensor_parallel'?"
    """
    meant = SHORT_NAMES.get(name.replace("_", "-"), name)
    hint = did_you_mean(meant, TABLE, "knobs are " + ", ".join(TABLE))
    return f"there is no knob {name!r:.60}; {hint}"


def flat_value(knobs: Knobs, name: str) -> Any:
    """The value of a knob as tables and files hold it; `Knob.absent` where the configuration does not have the knob."""
    return knobs.values.get(name, TABLE[name].absent)


def shown(knobs: Knobs) -> list[Knob]:
    """The knobs that say something of a configuration: those it has and that are no defaults, or always shown."""
    values = knobs.values
    return [knob for knob in COLUMNS if knob.name in values and (knob.is_shown or values[knob.name] != knob.default)]


def varying(configurations: Iterable[Knobs]) -> list[str]:
    """The knobs in which configurations differ."""
    rows = list(map(flat, configurations))
    return [knob.name for knob in COLUMNS if len({row[knob.name] for row in rows}) > 1]


def of_every(configurations: Collection[Knobs]) -> list[str]:
    """The knobs in `OF_EVERY` that any of the configurations has; all of these without configurations."""
    own = {name for knobs in configurations for name in knobs.values}
    return [name for name in OF_EVERY if not configurations or name in own]


def numbers(knobs: Knobs) -> dict[str, float]:
    """The values to which a constraint may refer, by `KNOB_NAMES`."""
    values = {**flat(knobs), "n_devices": knobs.n_devices, "n_samples": knobs.n_samples}
    made: dict[str, float] = {}
    for name in KNOB_NAMES:
        if name in _SWITCHES:
            made[name] = _SWITCHES[name].stored.index(values[name])
        else:
            made[name] = largest_by_device(values[name])
    return made


def simplicity(knobs: Knobs) -> tuple[int, ...]:
    """Smaller for the simpler configuration: fewer devices, then fewer replicas, and so on."""
    values = knobs.values
    return (knobs.n_devices, *(values.get(knob.name, knob.absent) for knob in _BREAK_TIES))
