"""Where memory ends: what fits at a batch size fits below, and what lets a program fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from autoauto.graph.kinds import quantise
from autoauto.graph.load import load_graph
from autoauto.records.costs.memory import compiled_bytes
from autoauto.records.costs.options import CompileOptions
from autoauto.records.costs.profile import OUTLINED, CompiledRange
from autoauto.records.hardware import Device
from autoauto.records.layers import Layer, LayerGraph, LayerRange
from autoauto.records.units import Precision
from autoauto.targets.ipu.target import IpuTarget


def compiled(graph: LayerGraph, device: Device, options: CompileOptions) -> CompiledRange:
    return IpuTarget().compile(graph, LayerRange(0, len(graph)), device, options)


def total_bytes(graph: LayerGraph, device: Device, batch_sizes: range) -> Iterator[int]:
    """Memory at every batch size without a limit on it."""
    endless = replace(device, memory_bytes=float(2**60))
    for batch_size in batch_sizes:
        yield sum(compiled_bytes(compiled(graph, endless, CompileOptions(batch_size, Precision.FP16))).values())


def test_memory_never_falls_when_the_batch_grows(device: Device) -> None:
    """So whichever limit a device has, "fits" at a batch size implies "fits" below."""
    n_bytes = list(total_bytes(load_graph("bert-base-256"), device, range(44, 62)))
    assert n_bytes == sorted(n_bytes)
    assert n_bytes[0] < n_bytes[-1]


def test_equal_layers_become_one_subgraph_only_where_a_program_does_not_fit_otherwise(device: Device) -> None:
    graph, options = load_graph("bert-base-128"), CompileOptions(1, Precision.FP16)
    plain = compiled(graph, device, options)
    needed = sum(compiled_bytes(plain).values())
    outlined = compiled(graph, replace(device, memory_bytes=needed - 1.0), options)
    assert OUTLINED not in compiled_bytes(plain)
    assert sum(compiled_bytes(outlined).values()) < 0.95 * needed
    assert outlined.forward_cycles > plain.forward_cycles, "every call copies its weights"
    assert {name: n for name, n in compiled_bytes(outlined).items() if name != OUTLINED} == compiled_bytes(plain)
    small = compiled(graph, replace(device, memory_bytes=0.5 * needed), options)
    assert small == outlined, "it lacks less, though it does not fit either"


def test_layers_without_an_equal_save_nothing(device: Device) -> None:
    graph, options = load_graph("bert-base-128"), CompileOptions(1, Precision.FP16)
    encoder = LayerRange(5, 6)
    needed = sum(compiled_bytes(IpuTarget().compile(graph, encoder, device, options)).values())
    small = IpuTarget().compile(graph, encoder, replace(device, memory_bytes=needed - 1.0), options)
    assert sum(compiled_bytes(small).values()) == needed


def test_a_product_in_fp8_frees_the_halves_that_it_is_the_last_to_read(device: Device) -> None:
    graph = load_graph("bert-base-128")
    marked = quantise(graph)
    index = next(i for i, layer in enumerate(graph.layers) if "layer.0.output.dense.MatMul" in layer.name)
    (tensor,) = marked.layers[index].inputs
    halves = marked.tensors[tensor].n_bytes(8, Precision.FP8)
    whole, quarters = (
        IpuTarget().compile(model, LayerRange(index, index + 1), device, CompileOptions(8, Precision.FP8))
        for model in (replace(marked, layers=tuple(_unmarked(marked))), marked)
    )
    assert marked.tensors[tensor].last_use == index
    assert whole.temporary_bytes - quarters.temporary_bytes > halves // 2


def _unmarked(graph: LayerGraph) -> Iterator[Layer]:
    for layer in graph.layers:
        yield replace(layer, attributes=tuple(pair for pair in layer.attributes if pair[0] != "precision"))
