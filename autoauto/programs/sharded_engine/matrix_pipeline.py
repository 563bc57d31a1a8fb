"""The matrix pipeline of [sharding-book, Pipelining], and the same layers on one device [sharding-book, Sharding].

x @ W0 ──▶ relu @ W1 ──▶ @ W2 ──▶ relu @ W3 ──▶ ...         even layers widen, odd ones apply ReLU and narrow
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from autoauto.programs.sharded_engine.engine import Reader, ShardedEngine, Writer
from autoauto.records.errors import BadInput
from autoauto.records.units import Array


def relu(x: Array) -> Array:
    """The positive elements, and 0 elsewhere."""
    return np.asarray(x * (x > 0))


class PipeliningInferenceOnly(ShardedEngine):
    """One layer a device: every device sends its output on and receives the next input.

    Even layers are (model_dim, hidden_dim), odd ones (hidden_dim, model_dim).
    """

    def __init__(self, model_dim: int, hidden_dim: int) -> None:
        self.weights = _zeros(self.device_id, model_dim, hidden_dim)

    def load_checkpoint(self, params: Mapping[str, npt.ArrayLike]) -> None:
        """Take the weights of this device's layer; raises as `layer_weights`."""
        self.weights[...] = layer_weights(params, self.device_id, self.weights.shape)

    def forward(self, x: npt.ArrayLike) -> Array:
        """(batch, fan in) to (batch, fan out) of this device's layer; raises as `layer`."""
        return layer(self.device_id, np.asarray(x), self.weights)

    def inference_loop(self, input_stream: Reader[Array], output_stream: Writer[Array]) -> None:
        """Device 0 reads inputs, the last device writes outputs, and messages connect the devices in between.

        `receive` ends the loop when the previous device has ended.
        """
        if self.device_id == 0:
            for x in input_stream:
                self._send_on(self.forward(x), output_stream)
        else:
            while True:
                self._send_on(self.forward(self.receive(self.device_id - 1)), output_stream)

    def _send_on(self, out: Array, output_stream: Writer[Array]) -> None:
        if self.device_id == self.num_devices - 1:
            output_stream.write(out)
        else:
            self.send(self.device_id + 1, out)


class SingleDevice(ShardedEngine):
    """All layers on one device, with a backward: the reference for pipelines.

    Layers are shaped as those of `PipeliningInferenceOnly`. `activations` is the tape: the input of each layer of each
    forward, before its ReLU.
    """

    def __init__(self, model_dim: int, hidden_dim: int, n_layers: int = 2) -> None:
        self.weights = [_zeros(i, model_dim, hidden_dim) for i in range(n_layers)]
        self.activations: list[Array] = []

    def load_checkpoint(self, params: Mapping[str, npt.ArrayLike]) -> None:
        """Take the weights of all layers; raises as `layer_weights`."""
        for i, weights in enumerate(self.weights):
            weights[...] = layer_weights(params, i, weights.shape)

    def forward(self, x: npt.ArrayLike) -> Array:
        """(batch, model_dim) through all layers; raises as `layer`."""
        x = np.asarray(x)
        for i, weights in enumerate(self.weights):
            self.activations.append(x)
            x = layer(i, x, weights)
        return x

    def backward(self, grads: npt.ArrayLike) -> dict[str, Array]:
        """Gradients of all weights, given the gradients of the outputs of the latest forward on the tape."""
        output_grads, gradients = np.asarray(grads), {}
        for i, weights in reversed(list(enumerate(self.weights))):
            x = self.activations.pop()  # before the ReLU, which odd layers begin with
            multiplied = relu(x) if i % 2 else x
            gradients[f"layer_{i}/weights"] = np.einsum("bd,bf->df", multiplied, output_grads)
            output_grads = np.einsum("bf,df->bd", output_grads, weights)
            if i % 2:
                output_grads = output_grads * (x > 0)
        return gradients

    def inference_loop(self, input_stream: Reader[Array], output_stream: Writer[Array]) -> None:
        """Read all inputs, and write the output of each; nothing stays on the tape."""
        for x in input_stream:
            output_stream.write(self.forward(x))
            self.activations.clear()


def layer(i: int, x: Array, weights: Array) -> Array:
    """Layer i: x @ weights, with ReLU first where i is odd.

    Raises BadInput if x is not (batch, rows of the weights).
    """
    if x.ndim != 2 or x.shape[1] != len(weights):
        raise BadInput(f"layer {i} takes arrays of shape (batch, {len(weights)}), got {x.shape}")
    return np.asarray(np.einsum("bd,df->bf", relu(x) if i % 2 else x, weights))


def layer_weights(params: Mapping[str, npt.ArrayLike], i: int, shape: tuple[int, ...]) -> Array:
    """The weights of layer i in a checkpoint, by either name of [sharding-book].

    Raises BadInput if the weights are missing, or have another shape.
    """
    name = f"layers_{i}/weights"
    if name not in params:
        name = f"layer_{i}/weights"
    if name not in params:
        raise BadInput(
            f"a checkpoint must have layers_{i}/weights or layer_{i}/weights, got {', '.join(params) or 'none'}"
        )
    weights = np.asarray(params[name])
    if weights.shape != shape:
        raise BadInput(f"{name} must have shape {shape}, got {weights.shape}")
    return weights


def random_weights(model_dim: int, hidden_dim: int, n_layers: int) -> dict[str, Array]:
    """A checkpoint of normal weights, the same every time."""
    random = np.random.default_rng(0)
    shapes = [_zeros(i, model_dim, hidden_dim).shape for i in range(n_layers)]
    return {f"layers_{i}/weights": random.normal(size=shape).astype(np.float32) for i, shape in enumerate(shapes)}


def _zeros(i: int, model_dim: int, hidden_dim: int) -> Array:
    return np.zeros((hidden_dim, model_dim) if i % 2 else (model_dim, hidden_dim), dtype=np.float32)
