"""Inputs that an output feeds in the next call, KV caches and states of recurrent models: `states_of`.

An input and an output are such a pair where their names say so and their shapes agree, but for one axis that may grow:

    past_key_values.0.key (1, 8, 127, 64)    present.0.key (1, 8, 128, 64)
    state                 (2, 1, 128)        stateN        (2, 1, 128)
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import onnx

from autoauto.graph.shapes.values import Value
from autoauto.records.layers import ModelInputs

_STATE = re.compile(r"past|present|state|cache|hidden|memory|(^|_)(h|c|hx|cx|k|v|kv)(_?[0-9nN])?$", re.IGNORECASE)
_SIDE = re.compile(
    r"(?<![a-z])(?:past_key_values?|present_key_values?|past|present|prev|previous|next|new|old|init|initial|input"
    r"|output|in|out|update|updated|cur|current)(?![a-z])"
)
"""Words that say on which side of a call a tensor is."""
_SEPARATORS = re.compile(r"[._/:\-]+")
_LAST = re.compile(r"(?<=[a-z])_?[0n]$")


class State(NamedTuple):
    """An input, the output that feeds it in the next call, and whether the user said so."""

    before: str
    after: str
    is_given: bool


def states_of(model: onnx.ModelProto, values: Mapping[str, Value], given: ModelInputs) -> tuple[State, ...]:
    """The states of a model, those that were given first."""
    named = dict(given.states)
    states = [State(before, after, is_given=True) for before, after in named.items()]
    inputs: dict[str, list[str]] = defaultdict(list)
    for entry in model.graph.input:
        if entry.name not in named and _STATE.search(entry.name):
            inputs[_stem(entry.name)].append(entry.name)
    outputs: dict[str, list[str]] = defaultdict(list)
    for entry in model.graph.output:
        if entry.name not in named.values():
            outputs[_stem(entry.name)].append(entry.name)
    for stem, names in inputs.items():
        # Where several inputs or outputs have a stem, nothing says which of them belong together.
        if len(names) == 1 and len(outputs[stem]) == 1 and _agree(values[names[0]], values[outputs[stem][0]]):
            states.append(State(names[0], outputs[stem][0], is_given=False))
    return tuple(states)


def _stem(name: str) -> str:
    """The part of the name of a state that its input and its output share.

    >>> _stem("past_key_values.0.key"), _stem("present.0.key"), _stem("state"), _stem("stateN"), _stem("h0")
    ('0.key', '0.key', 'state', 'state', 'h')
    >>> _stem("in_state"), _stem("state_out"), _stem("past_key_3")
    ('state', 'state', 'key.3')
    """
    parts = _SEPARATORS.sub(" ", _SIDE.sub(" ", name.lower())).split()
    if not parts:
        return ""
    parts[-1] = _LAST.sub("", parts[-1])
    return ".".join(parts)


def _agree(before: Value, after: Value) -> bool:
    if before.dtype != after.dtype or len(before.shape) != len(after.shape) or not before.shape:
        return False
    return sum(a != b for a, b in zip(before.shape, after.shape, strict=True)) <= 1
