"""Fixtures for every room: the numeric vectors, and the seed's profiles in their full form."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from autoauto.records.layers import Layer, LayerGraph, Tensor

VECTORS = Path(__file__).parent / "vectors"


@pytest.fixture(scope="session")
def vectors() -> Callable[[str], Any]:
    """Read `tests/vectors/NAME.json`."""
    return lambda name: json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def expand_profile() -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Turn a vector's compact columns into the seed's ModelInfo dictionary."""
    return _expand


def _expand(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "layerName": columns["layerName"],
        "layerType": [f"type {name}" for name in columns["layerName"]],
        "layerInfo": [
            {
                "cycle": {"forward": cycles, "backward": 0, "total": cycles},
                "memory": {
                    "shared": columns["shared"][i],
                    "exclusive": columns["exclusive"][i],
                    "inputs": columns["inputs"][i],
                    "outputs": columns["outputs"][i],
                    "curActivation": 0,
                    "maxTemporary": columns["maxTemporary"][i],
                    "curCarryOver": columns["curCarryOver"][i],
                },
            }
            for i, cycles in enumerate(columns["cycles"])
        ],
    }


@pytest.fixture(scope="session")
def chain() -> Callable[..., LayerGraph]:
    """Make a model of layers in a row, one matrix multiplication each."""
    return _chain


def _chain(kinds: Sequence[str], tie: Sequence[int] = ()) -> LayerGraph:
    """Layer i has `kinds[i]`, reads tensor i, writes tensor i + 1; layers in `tie` read one weight."""
    n = len(kinds)
    activations = [Tensor(f"x{i}", (1, 64), 0, "float", i - 1, i) for i in range(n + 1)]
    weights = [Tensor(f"w{i}", (64, 64), None, "float", -1, -1) for i in range(n)]
    layers = []
    for i, kind in enumerate(kinds):
        weight = n + 1 + (min(tie) if i in tie else i)
        tied = "shared" if i in tie else None
        layers.append(Layer(f"layer{i}", "MatMul", (), (i,), (i + 1,), (weight,), (i, weight), kind, tied))
    return LayerGraph("chain", tuple(layers), (*activations, *weights), None, "content of " + " ".join(kinds))
