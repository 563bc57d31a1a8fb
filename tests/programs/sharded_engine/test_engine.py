"""Engines: collectives against NumPy, and clear errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autoauto.programs.sharded_engine.engine import ShardedEngine
from autoauto.programs.sharded_engine.peers import Peers
from autoauto.records.errors import BadInput
from autoauto.records.units import Array

Connect = Callable[..., list[Peers]]
Together = Callable[[list["Plain"], Callable[["Plain"], Any]], list[Any]]
DTYPES = ("float32", "float64", "int8", "uint16", "int64", "complex128", "bool")
AXES = (0, 1, 2, -1, -3)


class Plain(ShardedEngine):
    """An engine that defines the abstract methods only."""

    def __init__(self, factor: float = 2) -> None:
        self.factor = factor * (1 + self.device_id)

    def load_checkpoint(self, params: dict[str, Array]) -> None:
        self.factor = float(params["factor"])

    def forward(self, x: Array) -> Array:
        return x * self.factor


Engines = Callable[[int], list[Plain]]


@pytest.fixture
def engines(connect: Connect) -> Engines:
    return lambda n_devices: [Plain.on_device(peers) for peers in connect(n_devices)]


def random(dtype: str, *shape: int, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).normal(size=shape) * 50).astype(dtype)


def test_an_engine_made_alone_is_device_0_of_1() -> None:
    engine = Plain(3)
    assert (engine.device_id, engine.num_devices, engine.factor) == (0, 1, 3)
    engine.barrier()
    assert engine.all_gather([1, 2]).tolist() == [1, 2]
    assert engine.all_reduce([1, 2]).tolist() == [1, 2]
    assert engine.all_to_all([1, 2]).tolist() == [1, 2]


def test_results_are_new_arrays() -> None:
    engine, array = Plain(), np.array([1, 2])
    for result in (engine.all_gather(array), engine.all_reduce(array), engine.all_to_all(array)):
        result[:] = 0
    assert array.tolist() == [1, 2]


def test_devices_know_their_number_when_they_are_made(engines: Engines) -> None:
    assert [(engine.device_id, engine.num_devices, engine.factor) for engine in engines(3)] == [
        (0, 3, 2),
        (1, 3, 4),
        (2, 3, 6),
    ]


def test_collectives_give_the_results_of_the_vectors(
    engines: Engines, together: Together, vectors: Callable[[str], Any]
) -> None:
    calls: dict[str, Callable[[Plain, Any], Array]] = {
        "all_gather axis0": lambda engine, arr: engine.all_gather(arr, axis=0),
        "all_reduce sum": lambda engine, arr: engine.all_reduce(arr, op="sum"),
        "all_to_all axis0": lambda engine, arr: engine.all_to_all(arr, axis=0),
    }
    checked = []
    for case in vectors("fake_api")["collective_vectors_computed"]:
        for name in calls.keys() & case.keys():
            call, given = calls[name], case[name]
            results = together(engines(case["n"]), lambda engine: call(engine, given[engine.device_id]).tolist())  # noqa: B023
            assert results == case.get("result", [case.get("result_each")] * case["n"])
            checked.append(name)
    assert sorted(checked) == sorted(calls)


@pytest.mark.parametrize("n_devices", range(1, 5))
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_gather_is_numpys_concatenate(engines: Engines, together: Together, n_devices: int, dtype: str) -> None:
    for axis in AXES:
        shapes = [(3, 4, 2)] * n_devices
        shapes[-1] = tuple(np.add(shapes[-1], np.eye(3, dtype=int)[axis]).tolist())  # the last device has more
        arrays = [random(dtype, *shape, seed=device) for device, shape in enumerate(shapes)]
        for gathered in together(engines(n_devices), lambda engine: engine.all_gather(arrays[engine.device_id], axis)):  # noqa: B023
            np.testing.assert_array_equal(gathered, np.concatenate(arrays, axis), strict=True)


@pytest.mark.parametrize("n_devices", range(1, 5))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (30, 20)])
def test_all_reduce_is_numpys_reduction(
    engines: Engines, together: Together, n_devices: int, dtype: str, shape: tuple[int, ...]
) -> None:
    arrays = [random(dtype, *shape, seed=device) for device in range(n_devices)]
    oracles = {
        "sum": np.sum(arrays, axis=0, dtype=dtype),
        "mean": np.mean(arrays, axis=0),
        "max": np.max(arrays, axis=0),
        "min": np.min(arrays, axis=0),
    }
    for op, oracle in oracles.items():
        results = together(engines(n_devices), lambda engine: engine.all_reduce(arrays[engine.device_id], op))  # noqa: B023
        if op != "mean":
            assert results[0].dtype == dtype
        if dtype not in {"bool", "int8", "uint16"} or op != "mean":  # their mean is that of a sum which overflows
            np.testing.assert_allclose(results[0], oracle, rtol=1e-6, atol=1e-5)
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0], strict=True)  # bit by bit


@pytest.mark.parametrize("n_devices", range(1, 5))
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_to_all_transposes_chunks(engines: Engines, together: Together, n_devices: int, dtype: str) -> None:
    for axis in AXES:
        shape = [4, 3, 2]
        shape[axis] = 2 * n_devices
        arrays = [random(dtype, *shape, seed=device) for device in range(n_devices)]
        chunks = [np.split(array, n_devices, axis) for array in arrays]
        results = together(engines(n_devices), lambda engine: engine.all_to_all(arrays[engine.device_id], axis))  # noqa: B023
        for device, got in enumerate(results):
            oracle = np.concatenate([chunks[other][device] for other in range(n_devices)], axis)
            np.testing.assert_array_equal(got, oracle, strict=True)


@pytest.mark.parametrize("n_devices", [2, 3, 4])
def test_collectives_of_arrays_far_larger_than_the_ring(engines: Engines, together: Together, n_devices: int) -> None:
    array = random("float64", 12, 500)
    results = together(engines(n_devices), lambda engine: engine.all_to_all(engine.all_to_all(array, 0), 0))
    for result in results:
        np.testing.assert_array_equal(result, array)


def test_no_device_leaves_a_barrier_before_all_have_reached_it(engines: Engines, together: Together) -> None:
    reached: list[int] = []

    def act(engine: Plain) -> int:
        reached.append(engine.device_id)
        engine.barrier()
        return len(reached)

    assert together(engines(4), act) == [4] * 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda engine: engine.all_reduce(1, "median"), "all_reduce can sum, mean, max, min, got 'median'"),
        (
            lambda engine: engine.all_reduce(np.zeros(1 + engine.device_id)),
            "all_reduce needs the same shape on all devices, got (1,) on device 0, (2,) on device 1",
        ),
        (lambda engine: engine.all_gather(1), "all_gather needs an axis of the array, got axis 0 and shape ()"),
        (
            lambda engine: engine.all_gather([1], -2),
            "all_gather needs an axis of the array, got axis -2 and shape (1,)",
        ),
        (
            lambda engine: engine.all_gather(np.zeros((1, 1 + engine.device_id))),
            "all_gather needs shapes that differ along axis 0 only, got (1, 1) on device 0, (1, 2) on device 1",
        ),
        (
            lambda engine: engine.all_to_all([1, 2], 1),
            "all_to_all needs an axis of the array, got axis 1 and shape (2,)",
        ),
        (
            lambda engine: engine.all_to_all([1, 2, 3]),
            "all_to_all needs a length along axis 0 that 2 devices divide, got shape (3,)",
        ),
        (lambda engine: engine.send(engine.device_id, 1), "device {0} can send to other devices ({1}), got {0}"),
        (lambda engine: engine.receive(2), "device {0} can receive from other devices ({1}), got 2"),
        (lambda engine: engine.backward([1]), "Plain has no backward; try an engine that defines it"),
    ],
)
def test_wrong_calls_are_refused_with_one_line(
    engines: Engines, together: Together, call: Callable[[Plain], object], message: str
) -> None:
    for device, failure in enumerate(together(engines(2), call)):
        assert isinstance(failure, BadInput)
        assert str(failure) == message.replace("{0}", str(device)).replace("{1}", str(1 - device))


def test_the_default_loop_writes_the_output_of_every_input() -> None:
    class Written(list[Array]):
        write = list.append

    written = Written()
    engine = Plain()
    engine.load_checkpoint({"factor": np.array(3)})
    engine.inference_loop([np.array(1), np.array(2)], written)
    assert [int(x) for x in written] == [3, 6]


@pytest.mark.parametrize("missing", ["load_checkpoint", "forward"])
def test_an_engine_without_an_abstract_method_cannot_be_made(missing: str) -> None:
    class Incomplete(Plain):
        pass

    setattr(Incomplete, missing, getattr(ShardedEngine, missing))
    Incomplete.__abstractmethods__ = frozenset({missing})
    with pytest.raises(TypeError, match=missing):
        Incomplete()
