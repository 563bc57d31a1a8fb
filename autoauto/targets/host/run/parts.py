"""Sub-models that compute a micro-batch in equal parts at the same time, a part a stream: `cut_in_parts`."""

from __future__ import annotations

from dataclasses import replace

from autoauto.records.errors import BadInput
from autoauto.records.layers import LayerGraph, LayerRange, Port, Source, SubModel


def cut_in_parts(source: Source, graph: LayerGraph, layers: LayerRange, batch_size: int, n_parts: int) -> SubModel:
    """Cut out `layers` for a part of a micro-batch; its inputs and outputs are those of the whole micro-batch.

    Raises:
        BadInput: the samples do not lie one behind the other in an input, or in every output.
    """
    whole = source.cut(graph, layers, batch_size)
    if n_parts == 1:
        return whole
    part = source.cut(graph, layers, batch_size // n_parts)
    for ports, parts, has_samples in ((whole.inputs, part.inputs, False), (whole.outputs, part.outputs, True)):
        for port, own in zip(ports, parts, strict=True):
            if not (_is_of_parts(port, own, n_parts) or (port == own and not has_samples)):
                raise BadInput(
                    f"streams need the batch as the first axis of every tensor, {port.name} has the shape "
                    f"{list(port.shape)}; try --streams 1"
                )
    return replace(whole, content=part.content)


def _is_of_parts(port: Port, part: Port, n_parts: int) -> bool:
    """Whether a tensor is the tensors of its parts, one behind the other."""
    return bool(part.shape) and port.shape == (n_parts * part.shape[0], *part.shape[1:])
