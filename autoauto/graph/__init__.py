"""graph: an ONNX file or a built-in name becomes a `LayerGraph`."""

from autoauto.graph.load import builtin_models, load_graph
from autoauto.graph.quantise import quantise
from autoauto.graph.rebatch import rebatch

__all__ = ["builtin_models", "load_graph", "quantise", "rebatch"]
