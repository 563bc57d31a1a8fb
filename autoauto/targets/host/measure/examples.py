"""Made-up inputs that a model takes: `examples`, of all its inputs together, and `example` of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autoauto.records.layers import Port
from autoauto.records.units import Array
from autoauto.targets.host.memory_budget import shared_array

LENGTHS = ("_lens", "_len", "_lengths", "_length", "lengths", "length")
"""Ends of the names of inputs that say how long others are."""
_CHUNK = 1 << 18


def examples(ports: Sequence[Port]) -> dict[str, Array]:
    """A made-up array in shared memory for every input; the lengths of others are those that these have at least."""
    lengths = lengths_of(ports)
    made = {port.name: example(port) for port in ports}
    for name, length in lengths.items():
        made[name][...] = length
    return made


def example(port: Port) -> Array:
    """A made-up input in shared memory: seeded noise for floats, zeros for integers (valid indices), true for masks."""
    array = shared_array(port)
    if array.dtype.kind != "f" or array.size == 0:
        array[...] = array.dtype.kind == "b"
        return array
    noise, elements = np.random.default_rng(array.size), array.reshape(-1)
    for start in range(0, array.size, _CHUNK):  # part by part, so that no copy of the whole array is made
        part = elements[start : start + _CHUNK]
        part[:] = noise.standard_normal(len(part), np.float32)
    return array


def lengths_of(ports: Sequence[Port]) -> Mapping[str, int]:
    """A value for every input that holds lengths of another, by its name: never 0, and no more than that has.

    Which axis they count is not known: so it is the shortest behind the first, of the input whose name begins alike, or
    of all others.
    """
    counting = [port for port in ports if np.dtype(port.dtype).kind in "iu" and port.name.lower().endswith(LENGTHS)]
    counted = [port for port in ports if port not in counting and len(port.shape) > 1]
    lengths = {}
    for port in counting:
        end = next(end for end in LENGTHS if port.name.lower().endswith(end))
        stem = port.name[: -len(end)].rstrip("_.")
        alike = [other for other in counted if stem and other.name.startswith(stem)]
        shortest = min((min(other.shape[1:]) for other in alike or counted), default=1)
        lengths[port.name] = max(1, shortest)
    return lengths
