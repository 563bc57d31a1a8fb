"""What the update of weights costs."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import Optimizer, WeightUpdate
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph
from autoauto.records.units import Precision
from autoauto.targets.ipu.kernels import elementwise
from autoauto.targets.ipu.operators.backward import weight_update_cycles
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


def test_devices_wait_for_the_hosts_with_pytorch_and_longest_with_lamb() -> None:
    sgd, lamb = WeightUpdate(Optimizer.SGD), WeightUpdate(Optimizer.LAMB)
    assert step_overhead(Framework.POPART, 1e9, lamb).host_cycles == 0
    waits = [step_overhead(Framework.POPTORCH, 1e9, update).host_cycles for update in (sgd, lamb)]
    assert 0 < waits[0] < waits[1]
