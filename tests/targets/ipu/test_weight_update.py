"""What the update of weights costs."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import Optimizer, WeightUpdate
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph
from autoauto.records.target import StepOverhead
from autoauto.records.units import Precision
from autoauto.targets.ipu.kernels import elementwise
from autoauto.targets.ipu.operators.backward import SHARED_NORM_CYCLES, weight_update_cycles
from autoauto.targets.ipu.step import Framework, step_overhead

Chain = Callable[..., LayerGraph]
Cycles = Callable[..., Sequence[int]]


@pytest.fixture
def cycles(chain: Chain, device: Device, options: Callable[..., CompileOptions]) -> Cycles:
    """Cycles by layer of a chain of matrices of 64 x 64, by default on a device of eight tiles."""

    def make(
        update: WeightUpdate, n: int = 2, tie: Sequence[int] = (), precision: Precision = Precision.FP16
    ) -> Sequence[int]:
        chosen = replace(options(1, training=True), precision=precision)
        return weight_update_cycles(chain(["a"] * n, tie), replace(device, n_tiles=8), chosen, update)

    return make


def test_plain_gradient_descent_is_one_pass(cycles: Cycles) -> None:
    passed = round(elementwise(64 * 64 / 8, ("add", "add"), 2, Precision.FP16))
    assert cycles(WeightUpdate()) == (passed, passed)


def test_better_optimizers_take_longer(cycles: Cycles) -> None:
    times = [cycles(WeightUpdate(optimizer))[0] for optimizer in Optimizer]
    assert times == sorted(set(times))


def test_master_weights_take_longer_unless_weights_are_as_long(cycles: Cycles) -> None:
    for precision, longer in ((Precision.FP16, True), (Precision.FP32, False)):
        plain, copied = (
            cycles(WeightUpdate(Optimizer.ADAM, master), precision=precision)[0] for master in (False, True)
        )
        assert (copied > plain) is longer


def test_every_shard_is_updated_once(cycles: Cycles) -> None:
    whole, half = (cycles(WeightUpdate(Optimizer.ADAM, n_shards=n))[0] for n in (1, 2))
    assert half < whole <= 2 * half


def test_tied_weights_are_updated_once(cycles: Cycles) -> None:
    first, second, third = cycles(WeightUpdate(), n=3, tie=(0, 2))
    assert (first, third) == (second, 0)


def test_two_norms_a_tensor_are_shared_with_lamb_and_states_sharded_on_the_chip(cycles: Cycles) -> None:
    lamb = WeightUpdate(Optimizer.LAMB, n_shards=2)
    shared, streamed = cycles(lamb), cycles(lamb._replace(streams=True))
    assert [a - b for a, b in zip(shared, streamed, strict=True)] == [2 * SHARED_NORM_CYCLES] * 2
    assert cycles(lamb._replace(n_shards=1))[0] < SHARED_NORM_CYCLES
    assert cycles(WeightUpdate(Optimizer.ADAM, n_shards=2))[0] < SHARED_NORM_CYCLES


def test_devices_wait_for_the_hosts_with_pytorch_and_lamb() -> None:
    waits = [
        step_overhead(framework, 1e9, WeightUpdate(optimizer)).host_cycles
        for framework in (Framework.POPART, Framework.POPTORCH)
        for optimizer in (Optimizer.ADAM, Optimizer.LAMB)
    ]
    assert waits == [0, 0, 0, 220_000_000]


def test_waits_of_a_step_are_counted_at_the_clock() -> None:
    assert step_overhead(Framework.TENSORFLOW, 2e9, WeightUpdate()) == StepOverhead(24_000, 50 * 1024**2, 560_000, 0)
