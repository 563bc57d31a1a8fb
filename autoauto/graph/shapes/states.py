"""Inputs that an output feeds in the next call, KV caches and states of recurrent models: `states_of`.

An input and an output are such a pair where their names say so and their shapes agree, but for one axis that may grow:

    past_key_values.0.key (1, 8, 127, 64)    present.0.key (1, 8, 128, 64)
    state                 (2, 1, 128)        stateN        (2, 1, 128)
"""

from __future__ import annotations

import re
from collections import Counter
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
    inputs = [entry.name for entry in model.graph.input if entry.name not in named and _STATE.search(entry.name)]
    outputs = [entry.name for entry in model.graph.output if entry.name not in named.values()]
    how_often = Counter(map(_stem, inputs)), Counter(map(_stem, outputs))
    by_stem = {_stem(name): name for name in outputs}
    for name in inputs:
        output = by_stem.get(_stem(name))
        if output and all(count[_stem(name)] == 1 for count in how_often) and _agree(values[name], values[output]):
            named[name] = output
    return tuple(State(before, after, before in dict(given.states)) for before, after in named.items())


def _stem(name: str) -> str:
    """What the names of an input and of the output that feeds it have in common.

    >>> _stem("past_key_values.0.key"), _stem("present.0.key"), _stem("state"), _stem("stateN"), _stem("h0")
    ('0.key', '0.key', 'state', 'state', 'h')
    >>> _stem("in_state"), _stem("state_out"), _stem("past_key_3")
    ('state', 'state', 'key.3')
    """
    parts = _SEPARATORS.sub(" ", _SIDE.sub(" ", name.lower())).split()
    return ".".join([*parts[:-1], _LAST.sub("", parts[-1])]) if parts else ""


def _agree(before: Value, after: Value) -> bool:
    """Whether two tensors have one type, and shapes that differ on one axis at most."""
    differ = sum(a != b for a, b in zip(before.shape, after.shape, strict=False))
    return before.dtype == after.dtype and len(before.shape) == len(after.shape) > 0 and differ <= 1
