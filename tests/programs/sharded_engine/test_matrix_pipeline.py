"""The matrix pipeline against one device, and its gradients against slopes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autoauto.programs.sharded_engine.matrix_pipeline import PipeliningInferenceOnly, SingleDevice, layer_weights, relu
from autoauto.programs.sharded_engine.peers import Peers
from autoauto.programs.sharded_engine.run import run_sharded
from autoauto.records.errors import BadInput
from autoauto.records.units import Array

MODEL_DIM, HIDDEN_DIM = 4, 6


def random_checkpoint(n_layers: int, name: str = "layers_{}/weights") -> dict[str, Array]:
    rng = np.random.default_rng(n_layers)
    shapes = [(HIDDEN_DIM, MODEL_DIM) if i % 2 else (MODEL_DIM, HIDDEN_DIM) for i in range(n_layers)]
    return {name.format(i): rng.normal(size=shape).astype(np.float32) for i, shape in enumerate(shapes)}


def random_inputs(n_requests: int) -> list[Array]:
    rng = np.random.default_rng(n_requests)
    return [rng.normal(size=(1 + i % 3, MODEL_DIM)).astype(np.float32) for i in range(n_requests)]


def single(checkpoint: dict[str, Array]) -> SingleDevice:
    engine = SingleDevice(MODEL_DIM, HIDDEN_DIM, len(checkpoint))
    engine.load_checkpoint(checkpoint)
    return engine


@pytest.mark.parametrize("n_devices", [1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4, 5, 8))])
def test_a_pipeline_computes_what_one_device_does(n_devices: int) -> None:
    checkpoint, inputs = random_checkpoint(n_devices), random_inputs(5)
    run = run_sharded(PipeliningInferenceOnly, n_devices, checkpoint, inputs, MODEL_DIM, HIDDEN_DIM)
    reference = single(checkpoint)
    for x, y in zip(inputs, run.outputs, strict=True):
        np.testing.assert_array_equal(y, reference.forward(x), strict=True)


def test_one_device_runs_the_reference_in_a_process() -> None:
    checkpoint, inputs = random_checkpoint(2), random_inputs(3)
    run = run_sharded(SingleDevice, 1, checkpoint, inputs, MODEL_DIM, HIDDEN_DIM)
    w0, w1 = checkpoint.values()
    for x, y in zip(inputs, run.outputs, strict=True):
        np.testing.assert_allclose(y, np.maximum(x @ w0, 0) @ w1, rtol=1e-5, atol=1e-6)


def test_weights_are_read_by_either_name() -> None:
    x = random_inputs(1)[0]
    first, second = (single(random_checkpoint(4, name)) for name in ("layers_{}/weights", "layer_{}/weights"))
    np.testing.assert_array_equal(first.forward(x), second.forward(x))


def test_gradients_are_slopes() -> None:
    checkpoint = {name: array.astype(np.float64) for name, array in random_checkpoint(3).items()}
    x, step = random_inputs(2)[1].astype(np.float64), 1e-3
    engine = single(checkpoint)
    gradients = engine.backward(np.ones_like(engine.forward(x)))
    assert engine.activations == []
    assert list(gradients) == ["layer_2/weights", "layer_1/weights", "layer_0/weights"]
    for i in range(3):
        sums = []
        for moved in (-step, step):
            other = {name: array.copy() for name, array in checkpoint.items()}
            other[f"layers_{i}/weights"][1, 2] += moved
            sums.append(single(other).forward(x).sum())
        slope = (sums[1] - sums[0]) / (2 * step)
        assert gradients[f"layer_{i}/weights"][1, 2] == pytest.approx(slope, rel=1e-3, abs=1e-3)


def test_the_tape_has_the_inputs_of_layers_and_is_empty_after_inference() -> None:
    engine, x = single(random_checkpoint(2)), random_inputs(1)[0]
    engine.forward(x)
    layer_input, z = engine.activations
    np.testing.assert_array_equal(layer_input, x)
    np.testing.assert_array_equal(z, np.einsum("bd,df->bf", x, engine.weights[0]))
    engine.activations.clear()
    engine.inference_loop([x, x], Outputs())
    assert engine.activations == []


class Outputs:
    def write(self, x: Array, /) -> None:
        pass


def test_relu_keeps_the_type() -> None:
    assert relu(np.array([-1, 0, 2], np.int8)).tolist() == [0, 0, 2]
    assert relu(np.array(2, np.float32)).dtype == np.float32


def test_wrong_weights_and_inputs_are_refused_with_one_line(connect: Callable[..., list[Peers]]) -> None:
    engine = PipeliningInferenceOnly.on_device(connect(2)[1], MODEL_DIM, HIDDEN_DIM)
    with pytest.raises(BadInput, match="must have layers_1/weights or layer_1/weights, got layers_0/weights"):
        engine.load_checkpoint(random_checkpoint(1))
    with pytest.raises(BadInput, match=r"layer_1/weights must have shape \(6, 4\), got \(4, 6\)"):
        engine.load_checkpoint({"layer_1/weights": np.zeros((4, 6))})
    for shape in ((3, MODEL_DIM), (HIDDEN_DIM,)):
        with pytest.raises(BadInput, match=r"layer 1 takes arrays of shape \(batch, 6\), got"):
            engine.forward(np.zeros(shape))
    with pytest.raises(BadInput, match="got none"):
        layer_weights({}, 0, (1, 1))
