"""Shapes of Fourier transforms and windows, against ONNX Runtime."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from autoauto.graph.load import load_graph
from autoauto.graph.shapes.trace import trace
from autoauto.records.errors import UnreadableModel

FRAMES = {"h": np.array(10), "l": np.array(64), "w": np.ones(64, np.float32)}


def check(model: Any, execute: Any, sample: Any) -> None:
    (result,) = execute(model, sample(model, np.random.default_rng(0)))
    assert trace(model)["y"].shape == result.shape


@pytest.mark.parametrize("shape", [[2, 100, 1], [2, 100]])
@pytest.mark.parametrize("onesided", ["", " onesided=1", " onesided=0"])
@pytest.mark.parametrize("read", ["x h w l", "x h w", "x h - l"])
def test_short_time_transforms(shape: Any, onesided: str, read: str, make: Any, execute: Any, sample: Any) -> None:
    check(make(f"STFT {read} > y{onesided}", {"x": shape}, "y", FRAMES), execute, sample)


@pytest.mark.parametrize(("onesided", "inverse"), [*product((0, 1), (0, 1))])
@pytest.mark.parametrize("length", [None, 7, 12])
@pytest.mark.parametrize("version", [17, 20])
def test_transforms(
    onesided: int, inverse: int, length: int | None, version: int, make: Any, execute: Any, sample: Any
) -> None:
    parts = 2 if inverse else 1  # half of the bins of a real signal, and back
    read, constants = ("x n", {"n": np.array(length)}) if length else ("x", {})
    program = f"DFT {read} > y onesided={onesided} inverse={inverse}"
    check(make(program, {"x": [2, 10, parts]}, "y", constants, version), execute, sample)


def test_the_axis_is_an_attribute_or_an_operand(make: Any, execute: Any, sample: Any) -> None:
    images = {"x": [2, 6, 8, 1]}
    check(make("DFT x > y axis=2 onesided=1", images, "y", {}, 17), execute, sample)
    check(make("DFT x - a > y onesided=1", images, "y", {"a": np.array(-3)}, 20), execute, sample)


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows_are_constants(op: str, make: Any) -> None:
    graph = load_graph(make(f"{op} n > w; Mul x w > y", {"x": ["b", 16]}, "y", {"n": np.array(16)}))
    assert [layer.op for layer in graph.layers] == ["Mul"]


def test_mel_filters_of_a_short_time_transform(make: Any, execute: Any, sample: Any) -> None:
    program = (
        "STFT x h w l > s; Slice s zero one last > r; Squeeze r last > q; "
        "MelWeightMatrix bands l rate low high > m; MatMul q m > y"
    )
    constants = FRAMES | {
        "zero": [0], "one": [1], "last": [3], "bands": np.array(8), "rate": np.array(8000),
        "low": np.array(0.0, np.float32), "high": np.array(4000.0, np.float32),
    }  # fmt: skip
    check(make(program, {"x": [2, 128, 1]}, "y", constants), execute, sample)


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"h": np.array(0)}, "frames of 64 at steps of 0"),
        ({"l": np.array(200)}, "frames of 200 and reads a signal of 100"),
    ],
)
def test_frames_that_do_not_fit_are_refused(constants: Any, message: str, make: Any) -> None:
    model = make("STFT x h - l > y", {"x": [2, 100, 1]}, "y", FRAMES | constants)
    with pytest.raises(UnreadableModel, match=message):
        trace(model)
