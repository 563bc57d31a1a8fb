"""A target with costs that can be computed by hand: `LinearTarget`."""

from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import GRADIENT, CompiledRange, ProgramStep
from autoauto.records.hardware import Device
from autoauto.records.layers import LayerGraph, LayerRange

MIB = 1024**2
DEVICE = Device("small", 1e6, 100 * MIB, 1472, 638976)


class LinearTarget:
    """A layer takes 1,000 cycles and 1 MiB a sample; compiled whole, a range takes `surplus` times the memory.

    In training the backward pass takes twice as long, half of it for weights, half of the memory is stashed for it, and
    a layer has gradients of 100,000 bytes.
    """

    version = "linear 1"

    def __init__(self, surplus: float = 1.0) -> None:
        self.surplus = surplus

    def profiled(self, batch_size: int) -> tuple[int, ...]:
        return (batch_size,)

    def depends_on(self, device: Device, options: CompileOptions) -> object:
        return device, options

    def compile(self, graph: LayerGraph, layers: LayerRange, device: Device, options: CompileOptions) -> CompiledRange:
        n_layers = layers.stop - layers.start
        surplus = self.surplus if n_layers > 1 else 1.0
        n_bytes = int(n_layers * options.batch_size * MIB * surplus)
        cycles = 1000 * n_layers * options.batch_size
        step = ProgramStep("all", cycles, 0)
        if not options.training:
            return CompiledRange((step,), 0, {}, {"state": n_bytes})
        exclusive = {"state": n_bytes, GRADIENT: 100_000 * n_layers}
        return CompiledRange((step,), 2 * cycles, {}, exclusive, cycles, activation_bytes=n_bytes // 2)
