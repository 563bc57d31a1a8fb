"""Samples of a micro-batch that depend on each other are noticed, whatever the dependence, and no others are."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from autoauto.records.errors import BadInput
from autoauto.records.units import Array, Precision
from autoauto.targets.host.run.independence import UNCHECKED, BatchTensor, SampleProbe, dependence

Model = Callable[..., Array]


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    probabilities: Array = e / e.sum(axis, keepdims=True)
    return probabilities


def quantised(x: Array, axis: int | None) -> Array:
    """Rounded to 8 bits with one scale, or one for each sample."""
    scale = (np.abs(x).max(axis, keepdims=True) / 127).astype(np.float32)
    rounded: Array = np.round(x / scale) * scale
    return rounded


def outcome(
    model: Model,
    inputs: Mapping[str, tuple[tuple[int, ...], str]],
    batch_size: int,
    precision: Precision = Precision.FP32,
    **probe: Any,
) -> str | None:
    """What is said of a model of NumPy that computes every micro-batch with all its inputs."""
    tensors = [BatchTensor(name, shape, dtype, 0) for name, (shape, dtype) in inputs.items()]

    def micro_batches(arrays: Mapping[str, Array]) -> list[Array]:
        n = len(next(iter(arrays.values()))) // tensors[0].shape[0]
        parts = {name: np.split(array, n) for name, array in arrays.items()}
        return [model(**{name: part[i] for name, part in parts.items()}) for i in range(n)]

    first = model(**{each.name: np.ones(each.shape, each.dtype) for each in tensors})
    outputs = [BatchTensor("y", first.shape, first.dtype.name, 0)]
    sample_probe = SampleProbe(tensors, outputs, batch_size, precision, **probe)
    return dependence(sample_probe, lambda arrays: {"y": np.concatenate(micro_batches(arrays))})


SEEN = "output y of a sample changes with the others"


@pytest.mark.parametrize("batch_size", [2, 3, 4, 7])
@pytest.mark.parametrize(
    "model",
    [
        lambda x: x - x.mean(0),
        lambda x: (x - x.mean(0)) / (x.std(0) + 1e-5),
        lambda x: softmax(x, 0),
        lambda x: x[::-1],
        lambda x: np.roll(x, 1, 0),
        lambda x: np.cumsum(x, 0, np.float32),
        lambda x: np.cumsum(x[::-1], 0, np.float32)[::-1],
        lambda x: np.sort(x, 0),
        lambda x: x - x[:1],
        lambda x: x - x[-1:],
        lambda x: x + np.arange(len(x), dtype=np.float32)[:, None],
        lambda x: quantised(x, None),
        lambda x: x > x.mean(0),
        lambda x: np.where(np.arange(len(x))[:, None] == len(x) // 2, x + 0.01 * x[:1], x),
    ],
)
def test_samples_that_depend_on_each_other_are_noticed(model: Model, batch_size: int) -> None:
    assert outcome(model, {"x": ((batch_size, 64), "float32")}, batch_size) == SEEN


@pytest.mark.parametrize("batch_size", [2, 3, 4, 7])
@pytest.mark.parametrize(
    "model",
    [
        lambda x: softmax(x, 1),
        lambda x: quantised(x, 1),
        lambda x: np.sort(x, 1)[:, ::-1],
        lambda x: np.argmax(x, 1),
        lambda x: np.log(x) * 2,  # not a number in half of all places
        lambda x: x / np.maximum(x, 0),  # infinite, too
        lambda x: x * 0,
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value|divide by zero:RuntimeWarning")
def test_samples_that_do_not_are_not_refused(model: Model, batch_size: int) -> None:
    assert outcome(model, {"x": ((batch_size, 64), "float32")}, batch_size) is None


TABLE = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)


def test_ids_of_tokens_and_lengths_and_masks_are_varied() -> None:
    """Scales over all tokens, padding to the longest of the batch, and a mask of the first sample for all."""
    ids: dict[str, tuple[tuple[int, ...], str]] = {"ids": ((4, 6), "int64")}
    assert outcome(lambda ids: quantised(TABLE[ids], None), ids, 4) == SEEN
    assert outcome(lambda ids: quantised(TABLE[ids], (1, 2)), ids, 4) is None  # type: ignore[arg-type]
    padded = {"x": ((4, 6), "float32"), "x_lengths": ((4,), "int64")}
    longest = outcome(lambda x, x_lengths: x / x_lengths.max().astype(np.float32), padded, 4)
    own = outcome(lambda x, x_lengths: x * (np.arange(6) < x_lengths[:, None]), padded, 4)
    assert (longest, own) == (SEEN, None)
    masked = {"x": ((4, 6), "float32"), "mask": ((4, 6), "bool")}
    assert outcome(lambda x, mask: x * mask[:1], masked, 4) == SEEN
    assert outcome(lambda x, mask: x * mask, masked, 4) is None


def test_several_rows_a_sample_belong_together() -> None:
    rows: dict[str, tuple[tuple[int, ...], str]] = {"x": ((12, 5), "float32")}
    assert outcome(lambda x: x.reshape(4, 3, 5)[:, ::-1].reshape(12, 5), rows, 4) is None
    assert outcome(lambda x: x[::-1], rows, 4) == SEEN


def test_rounding_of_formats_and_of_repeated_runs_is_no_dependence() -> None:
    rng, runs = np.random.default_rng(0), itertools.count()
    x: dict[str, tuple[tuple[int, ...], str]] = {"x": ((4, 8), "float16")}
    assert outcome(lambda x: x * (1 + 1e-3 * rng.random()), x, 4, Precision.BF16) is None
    assert outcome(lambda x: x * (1 + 0.01 * (next(runs) % 2)), x, 4) is None
    assert outcome(lambda x: x - x.mean(0), x, 4, Precision.BF16) == SEEN


def refusing(ids: Array) -> Array:
    """Takes 7, 8 and 9 only."""
    if not np.isin(ids, (7, 8, 9)).all():
        raise BadInput("no such id")
    centred: Array = (ids - ids.mean(0)).astype(np.float32)
    return centred


def test_where_made_up_inputs_are_refused_those_that_are_given_are_tried() -> None:
    """Without them nothing is known, and samples count as dependent."""
    tensors, outputs = [BatchTensor("ids", (3, 1), "int64", 0)], [BatchTensor("y", (3, 1), "float32", 0)]

    def run(arrays: Mapping[str, Array]) -> dict[str, Array]:
        parts = np.split(arrays["ids"], len(arrays["ids"]) // 3)
        return {"y": np.concatenate([refusing(part) for part in parts])}

    given = {"ids": np.array([[7], [8], [9]])}
    assert dependence(SampleProbe(tensors, outputs, 3, given=given), run) == SEEN
    assert dependence(SampleProbe(tensors, outputs, 3), run) == UNCHECKED
